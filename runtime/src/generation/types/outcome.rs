//! What is told.

use crate::cgroup::Name;
use std::fmt;

use super::{Process, RequestId, Role, Token};
use crate::generation::Number;

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The one answer to a request.
    Answer(RequestId, Result<Reply, Failure>),
    /// The caller is asked whether to go on.
    Gate {
        /// Its request.
        request: RequestId,
        /// What the answer names.
        token: Token,
        /// What is to be started.
        role: Role,
        /// The build, as resolved for a cold start.
        build: String,
        /// At which moment.
        point: Point,
    },
    /// The pending record of the caller's start is written.
    Recorded(RequestId),
    /// A process runs.
    Started(Role, Process),
    /// A process ended and was reaped. What it forked may still run.
    Exited(Role),
    /// The generation says that it can serve, by its caller's word.
    Ready(Number),
    /// The canonical path leads to this generation.
    Switched(Number),
    /// All was killed, and is proven gone.
    Killed(Role),
    /// What an earlier shim has left (G29).
    Adopted(Role, Occupancy),
    /// The shutdown is over (R19, R20).
    ShutDown {
        /// What is not proven gone.
        left: Vec<Left>,
    },
}

/// At which of its two moments a gate is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// All is prepared.
    Prepared,
    /// The pending record is written.
    Recorded,
}

/// What is left where nothing was to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// A cgroup and what is in it.
    Cgroup(Name, String),
    /// A process that was not reaped.
    Leader(i32),
    /// A start whose outcome is not known yet.
    Starting(Role),
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup(cgroup, what) => write!(f, "{cgroup}: {what}"),
            Self::Leader(pid) => write!(f, "process {pid}, which was not reaped"),
            Self::Starting(role) => write!(f, "{role}, which is being started"),
        }
    }
}

/// What cgroups say of one that an earlier shim started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occupancy {
    /// There is something in them.
    Running,
    /// There is nothing in them.
    Empty,
    /// They do not tell.
    Unproven(String),
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A process runs.
    Started {
        /// As what.
        role: Role,
        /// The process.
        process: Process,
        /// The build, as resolved for a cold start.
        build: String,
    },
    /// It is proven gone.
    Gone(Role),
    /// What was asked for.
    Done,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no such thing here.
    NotFound(String),
    /// Something else must end first.
    Busy(String),
    /// The shim is ending.
    ShuttingDown,
    /// The start was refused. A gate's reason is the caller's own.
    Refused(String),
    /// The start failed.
    LaunchFailed(String),
    /// Not all is proven gone, or in its place.
    Unproven(Vec<Left>),
    /// It may run.
    StartUncertain(String),
    /// Nothing is delegated: only the exit of the leader is proven.
    NoDelegation,
    /// The kernel cannot kill cgroups: only the exit of the leader is proven.
    NoKill,
    /// No switch, for this reason.
    NotSwitchable(String),
    /// A limit of the parent's was refused (G13, G14).
    Limits(String),
    /// The parent uses more memory than the new limit, and keeps the old one (G12).
    MemoryInUse {
        /// `memory.current`
        current: u64,
        /// What `memory.max` was to be.
        wanted: u64,
    },
    /// The record could not be written.
    Record(String),
}

/// What may have been executed when an answer is given (G7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It was started.
    Started,
    /// Nothing ran.
    NothingRan,
    /// Something may have run, or may still.
    MayHaveRun,
}

impl Failure {
    /// What may have been executed, where it answers a start.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Unproven(_) | Self::StartUncertain(_) | Self::NoDelegation | Self::NoKill => Effect::MayHaveRun,
            _ => Effect::NothingRan,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(what) => write!(f, "there is no {what}"),
            Self::Busy(reason) => write!(f, "busy: {reason}"),
            Self::ShuttingDown => f.write_str("this shim is shutting down"),
            Self::Refused(reason) | Self::NotSwitchable(reason) => f.write_str(reason),
            Self::LaunchFailed(reason) => write!(f, "nothing was started: {reason}"),
            Self::StartUncertain(reason) => write!(f, "it may run: {reason}"),
            Self::Unproven(left) => {
                f.write_str("not proven gone:")?;
                left.iter().try_for_each(|left| write!(f, " {left};"))
            }
            Self::NoDelegation => f.write_str("no cgroup is delegated: only the exit of the leader is proven"),
            Self::NoKill => f.write_str("the kernel has no cgroup.kill: only the exit of the leader is proven"),
            Self::Limits(reason) => write!(f, "the parent's limits: {reason}"),
            Self::MemoryInUse { current, wanted } => {
                write!(f, "memory.max stays: the service uses {current} bytes, more than the {wanted} it was to get")
            }
            Self::Record(reason) => write!(f, "the record could not be written: {reason}"),
        }
    }
}
