//! Staged generations of a service: what users name and see of them.
//!
//! What may start, switch and end is decided in `dunnage_runtime::generation`.

#![cfg_attr(not(test), expect(dead_code, reason = "the monitor serves no generations yet"))]

mod digest;
mod entry;
mod fifo;
mod hook;
mod link;
mod notify;
mod paths;
mod service;
mod sockets;
pub(crate) mod tier;

pub(crate) use digest::Digest;
pub(crate) use link::CanonicalLink;
pub(crate) use service::{Layout, Runtime, Service};
pub(crate) use sockets::Owner;
