//! Carries the reaper's decisions out and feeds it what the kernel says.

/// The name of a watched process; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Watched(pub u32);
