//! Staged generations of a service: what users name and see of them.
//!
//! What may start, switch and end is decided in `dunnage_runtime::generation`.

mod digest;
pub(crate) mod tier;

pub(crate) use digest::Digest;
