//! The only unsafe code: what neither std nor nix offers safely.
#![allow(unsafe_code)]

mod pages;
mod socket;
mod terminal;

pub use pages::Pages;
pub use socket::{accept, receive_fds};
pub use terminal::{set_window_size, unread_bytes};
