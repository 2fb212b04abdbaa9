//! The only unsafe code: what neither std nor nix offers safely.
#![allow(unsafe_code)]

mod inherited;
mod local_time;
mod pages;
mod pidfd;
mod spawn;

pub use inherited::InheritedFds;
pub use local_time::utc_offset;
pub use pages::Pages;
pub use pidfd::{Pidfd, is_zombie, reap_zombie};
pub use spawn::{CANNOT_EXECUTE, Program, Side, Spawned, Ties, detach};
