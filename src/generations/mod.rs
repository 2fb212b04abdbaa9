//! Staged generations of a service: what users name and see of them.
//!
//! What may start, switch and end is decided in `dunnage_runtime::generation`.

#![cfg_attr(not(test), expect(dead_code, reason = "the monitor serves no generations yet"))]

mod digest;
mod hook;
mod paths;
mod service;
pub(crate) mod tier;

pub(crate) use digest::Digest;
pub(crate) use service::{Layout, Service};
