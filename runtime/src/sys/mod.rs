//! The only unsafe code: what neither std nor nix offers safely.
#![allow(unsafe_code)]

mod local_time;
mod pages;

pub use local_time::utc_offset;
pub use pages::Pages;
