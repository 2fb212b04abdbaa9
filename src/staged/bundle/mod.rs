//! Staged bundles: config.json is read once, by a task, and what was checked then is rewritten into a private bundle for
//! the OCI runtime (G3): its root file system and whatever else it has by a relative path stays where it is, and it runs
//! in the generation's cgroup, under its limits, with its directory.

mod cgroup;
mod config;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod object;
mod private;
mod reading;
#[cfg(test)]
mod tests;

pub(crate) use cgroup::CgroupsPath;
pub(crate) use config::HOME;
pub(crate) use private::{Place, PrivateBundle, Writing, remove};
pub(crate) use reading::{Bundle, Reading};
