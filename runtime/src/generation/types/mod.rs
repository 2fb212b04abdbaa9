//! The plain types that go in and out.

mod action;
mod outcome;
mod request;

use std::fmt;

use super::Number;

pub use action::{Action, Found, KillFailure, Launched, Opened, ParentLimits};
pub use outcome::{Effect, Failure, Left, Occupancy, Outcome, Point, Reply};
pub use request::{Launch, Request, Source, Target};

/// What a process of the service is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It serves clients.
    Generation(Number),
    /// It helps a generation (G26).
    Sidecar,
    /// It serves no socket (G32).
    Worker,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generation(number) => write!(f, "generation {number}"),
            Self::Sidecar => f.write_str("the sidecar"),
            Self::Worker => f.write_str("the worker"),
        }
    }
}

/// A process as it is found again after a restart (R9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its PID.
    pub pid: i32,
    /// When it started, as `/proc/PID/stat` has it.
    pub start_time: u64,
}

/// The number that a caller's request has with whoever passed it on; not used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// What an answer to a gate names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

/// The number of one start. Later ones have higher ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StartId(pub(in crate::generation) u64);

/// Which state of the record is meant. Later ones have higher numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial(pub(in crate::generation) u64);

/// How a service runs its generations, as far as it makes a difference here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Side by side, each on its own socket: flat and nested.
    Overlapping,
    /// One at a time, on the canonical socket itself, for this reason.
    Foreign(String),
    /// Nothing is started, for this reason: fenced and conflict.
    Barred(String),
    /// A systemd unit owns the processes.
    Unit,
}
