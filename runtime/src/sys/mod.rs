//! The only unsafe code: what neither std nor nix offers safely.
#![allow(unsafe_code)]

mod capabilities;
mod child;
mod inherited;
mod launch;
mod lease;
mod local_time;
mod memory;
mod pages;
mod pidfd;
mod rename;
mod signals;
mod socket;
mod spawn;
mod task;
mod terminal;
mod xattr;

pub use capabilities::{Capabilities, CapabilitySets};
pub use inherited::InheritedFds;
pub use launch::{Birth, Failure, Identity, Launch, Privileges, Progress, ResourceLimit, Step, Verdict, Way};
pub use lease::{has_read_lease, take_read_lease};
pub use local_time::utc_offset;
pub use memory::give_back_memory;
pub use pages::Pages;
pub use pidfd::{Pidfd, is_zombie, reap_zombie};
pub use rename::{exchange_names, rename_to_free_name};
pub use signals::Signals;
pub use socket::{accept, receive_fds};
pub use spawn::{CANNOT_EXECUTE, Environment, Program, Side, Spawned, Ties, detach};
pub use task::{Answer, Task, TaskError};
pub use terminal::{set_window_size, unread_bytes, window_size};
pub use xattr::{has_attribute, set_attribute};
