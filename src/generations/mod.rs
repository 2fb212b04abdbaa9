//! Staged generations of a service: what users name and see of them.
//!
//! What may start, switch and end is decided in `dunnage_runtime::generation`; `crate::service` carries it out.

mod digest;
mod entry;
pub(crate) mod fifo;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub(crate) mod hook;
mod link;
pub(crate) mod notify;
mod paths;
pub(crate) mod record_file;
mod service;
mod sockets;
pub(crate) mod tier;

pub(crate) use digest::Digest;
pub(crate) use link::CanonicalLink;
pub(crate) use record_file::{Kept, Particulars};
pub(crate) use service::{BarKind, Layout, Runtime, Service};
pub(crate) use sockets::{Directories, Home, Owner};
