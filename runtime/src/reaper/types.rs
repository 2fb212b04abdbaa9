//! The plain types that go in and out of the reaper.

use std::fmt;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited with this status, 0 to 255.
    Code(i32),
    /// A signal of this number ended it.
    Signal(i32),
    /// It is gone, and somebody else has its status (R11).
    Unknown,
}

impl ExitStatus {
    /// As exit files have it: the status, 128 and the signal's number, -1 for unknown.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::Unknown => -1,
        }
    }

    /// Whether it is an exit with status 0.
    #[must_use]
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with status {code}"),
            Self::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "was killed by {signal}"),
                Err(_) => write!(f, "was killed by signal {number}"),
            },
            Self::Unknown => f.write_str("ended with an unknown status"),
        }
    }
}

/// The number of a call; later calls have higher ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub(super) u32);

/// The number of a registration. A child is forgotten by it, never by its PID (R6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildId(pub(super) u32);

/// What a call is started with.
#[derive(Clone, Copy, Debug)]
pub struct CallSpec {
    /// What the runtime is to do.
    pub job: Job,
    /// Whether the shim is there for this process: it gets the signals that the shim gets (R18, R19).
    pub main: bool,
    /// Whether the runtime is to connect a terminal.
    pub terminal: bool,
    /// When the process is killed, if it has not ended by then (R17).
    pub timeout: Option<Timeout>,
}

/// What a runtime is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Create or restore a container.
    Create,
    /// Execute a process in one. A runtime that fails at this but left a PID has not failed: what the process does
    /// counts.
    Exec,
}

/// How long a process may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// From when its PID is known: conmon's `-T`.
    SinceKnown(Duration),
    /// From the start of its call: `timeout_ms` of the control socket.
    SinceRequest(Duration),
}

impl Timeout {
    /// How long that is, whenever it begins.
    pub(super) fn limit(self) -> Duration {
        match self {
            Self::SinceKnown(limit) | Self::SinceRequest(limit) => limit,
        }
    }
}

/// What a runtime's PID file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PidFile {
    /// A number above 1.
    Pid(Pid),
    /// It is not there, or empty: CRI-O makes an empty one before the call.
    Absent,
    /// Anything else, which is shown, or an error of reading it.
    Invalid(String),
}

/// What a PID that a runtime reported is to this process (R10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinship {
    /// A child, running or a zombie.
    Child,
    /// A child's child, or further down.
    Descendant,
    /// Another's process, or none.
    None,
}

/// How far the stopping or killing of a process tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// There is more to do.
    Unfinished,
    /// That was all.
    Settled,
}

/// What the reaper wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Kill the runtime of the call, and its group. Its exit is then reported as always.
    KillRuntime(CallId),
    /// Send the signal to the runtime of the call.
    SignalRuntime(CallId, Signal),
    /// Stop watching the call's runtime, which did not die of SIGKILL: the sweep reaps it whenever it does.
    AbandonRuntime(CallId),
    /// Read the call's PID file and answer with [`Reaper::handle_pid_file`](super::Reaper::handle_pid_file).
    ReadPidFile(CallId),
    /// Open a pidfd for the PID, see what it is, and answer with
    /// [`Reaper::handle_kinship`](super::Reaper::handle_kinship).
    Examine(CallId, Pid),
    /// Kill the process that was examined last for the call, and watch it.
    /// Answer with [`Reaper::handle_process_exit`](super::Reaper::handle_process_exit).
    KillProcess(CallId),
    /// Stop watching that process: the sweep reaps it whenever it dies.
    AbandonProcess(CallId),
    /// Watch the process that was examined last for the call as this child.
    Register(CallId, ChildId),
    /// Send the signal to the child.
    SignalChild(ChildId, Signal),
    /// Kill the child, and its group if it leads one (R9).
    KillChild(ChildId),
    /// See whether the child has exited, and answer with [`Reaper::handle_child_exit`](super::Reaper::handle_child_exit),
    /// [`Reaper::handle_child_ended`](super::Reaper::handle_child_ended) or
    /// [`Reaper::handle_child_running`](super::Reaper::handle_child_running).
    Collect(ChildId),
    /// Stop watching the child, whose status nobody will tell (R11).
    ForgetChild(ChildId),
    /// Stop (SIGSTOP) the child and its group, and a slice of what is below. Answer with
    /// [`Reaper::handle_tree_stopped`](super::Reaper::handle_tree_stopped): settled once a whole walk found all of it
    /// stopped and nothing new.
    StopTree(ChildId),
    /// Kill a slice of what is below the child, what is deepest first. Answer with
    /// [`Reaper::handle_tree_killed`](super::Reaper::handle_tree_killed): settled once there is nothing left to kill.
    KillTree(ChildId),
    /// List the children that are zombies and answer with
    /// [`Reaper::handle_zombies`](super::Reaper::handle_zombies).
    ListZombies,
    /// Reap the zombie, which has no owner.
    ReapOrphan(Pid),
    /// Tell the owner.
    Report(Outcome),
}

/// What the owner of calls and children is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call's process runs, or has run: it is registered.
    Started {
        /// The call, which has ended.
        call: CallId,
        /// The registration.
        child: ChildId,
        /// The process.
        pid: Pid,
    },
    /// The call failed; what it left is cleaned up.
    Failed {
        /// The call, which has ended.
        call: CallId,
        /// Why.
        failure: Failure,
    },
    /// A registered child ended and was reaped.
    Exited {
        /// The registration.
        child: ChildId,
        /// How.
        status: ExitStatus,
    },
    /// A registered child was killed at its timeout, with all below it, and reaped (R17).
    TimedOut {
        /// The registration.
        child: ChildId,
        /// How long it was allowed to take.
        limit: Duration,
    },
    /// The shutdown is over (R19, R20).
    ShutDown {
        /// What did not die of SIGKILL in time. No exit was seen, and none is to be invented.
        left: Vec<Pid>,
    },
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The runtime did not end well.
    Runtime(ExitStatus),
    /// The runtime was killed at its deadline.
    TimedOut(Duration),
    /// The runtime did not connect the terminal that was asked for.
    NoTerminal,
    /// The runtime ended well and left no PID.
    NoPid,
    /// The runtime left something that is no PID.
    InvalidPid(String),
    /// The runtime reported the PID of a process that is not below this one, or another's.
    NotOurs(Pid),
    /// The process had ended, and was reaped as an orphan before the runtime reported it (R4).
    Swept(Pid),
    /// A shutdown stopped the call (R19).
    ShuttingDown,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(status) => write!(f, "the runtime {status}"),
            Self::TimedOut(limit) => {
                write!(f, "the runtime did not end within {limit:?} and was killed")
            }
            // conmon's words, which callers know.
            Self::NoTerminal => f.write_str("Runtime did not set up terminal"),
            Self::NoPid => f.write_str("the runtime ended well, but wrote no PID file"),
            Self::InvalidPid(what) => write!(f, "the runtime's PID file is not valid: {what}"),
            Self::NotOurs(pid) => {
                write!(
                    f,
                    "the runtime reported PID {pid}, which is no process of its own below this one: it is left alone"
                )
            }
            Self::Swept(pid) => {
                write!(
                    f,
                    "the process (PID {pid}) had ended and was reaped as an orphan before the runtime reported it"
                )
            }
            Self::ShuttingDown => f.write_str("it was stopped, as this monitor is shutting down"),
        }
    }
}
