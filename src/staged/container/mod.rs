//! Containers of staged bundles: the OCI runtime is called to create, start and delete them, each time with a deadline
//! (R12). It runs outside of their cgroups, and no call waits.

mod call;
mod creation;
mod deletion;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod log;

pub(crate) use call::{Caller, Container};
pub(crate) use creation::{Context, Created, Creation};
pub(crate) use deletion::Deletion;
