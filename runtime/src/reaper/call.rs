//! One call: from the start of its runtime until its process is registered, or the call failed.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::types::{CallId, Failure};

/// A call in progress. Its PIDs are pending: nobody else may reap them.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: CallId,
    /// The runtime, until it was reaped or abandoned.
    pub(super) runtime: Option<Pid>,
    /// The process it reported, once that is known.
    pub(super) process: Option<Pid>,
    pub(super) phase: Phase,
    /// How long the runtime may run.
    pub(super) runtime_timeout: Duration,
    /// When that is over.
    pub(super) runtime_deadline: Instant,
    pub(super) terminal: Terminal,
    /// Nobody holds the runtime's output any more.
    pub(super) output_closed: bool,
    /// What is for the process as soon as it is registered, as there was no runtime either to send it to.
    pub(super) pending_signal: Option<Signal>,
}

/// How far a call is. All but `Running` are bounded by RUNTIME_GRACE.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// The runtime runs, until its deadline.
    Running,
    /// The runtime ended well; its terminal is still on the way (R16).
    AwaitingTerminal,
    /// The PID is looked up and examined, which takes no time: to register the process, or to clean up (R15).
    Claiming(Purpose),
    /// The call failed before its runtime ended, which may still do so by itself (R14).
    Failing(Failure),
    /// The runtime was killed, and is to be gone soon (R12).
    RuntimeKilled(Failure),
    /// The process of the failed call was killed, and is to be gone soon (R15).
    ProcessKilled(Failure),
    /// Helpers of the runtime may still have something to say (R16).
    Draining(Failure),
}

/// What a PID is looked up for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Register,
    CleanUp(Failure),
}

/// The terminal of a call's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terminal {
    NotAsked,
    Awaited,
    Connected,
}

impl Call {
    /// Whether `pid` is the call's to reap.
    pub(super) fn claims(&self, pid: Pid) -> bool {
        self.runtime == Some(pid) || self.process == Some(pid)
    }
}
