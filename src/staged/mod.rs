//! Staged executables: prepared by a task, so that nothing waits for disk (R22), and started from what was checked (G4).

mod accounts;
pub(crate) mod bundle;
pub(crate) mod container;
mod executable;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod manifest;
mod preparation;
mod start;
#[cfg(test)]
mod tests;

pub(crate) use preparation::{Preparation, Prepared, Staged};
pub(crate) use start::{Context, NotStarted, Place, Start, Started};
