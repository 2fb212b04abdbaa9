//! The plain types that go in and out.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::{Number, Tier};

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

/// The name of a child cgroup of the service's own one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cgroup(Box<str>);

impl Cgroup {
    /// Where a process begins.
    #[must_use]
    pub fn of(role: Role) -> Self {
        Self(match role {
            Role::Generation(number) => format!("gen-{number}").into(),
            Role::Sidecar => "role-sidecar".into(),
            Role::Worker => "host".into(),
        })
    }

    /// A name that a caller gives. Nothing for what is no name of a child, or one that is kept for others (G28).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let reserved = ["gen-", "role-", "cgroup."].iter().any(|prefix| name.starts_with(prefix)) || name == "host";
        let valid =
            !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && !name.contains(['/', '\0', '\n']);
        (valid && !reserved).then(|| Self(name.into()))
    }

    /// A name as a record has it.
    #[must_use]
    pub fn recorded(name: &str) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
pub struct StartId(pub(super) u64);

/// Which state of the record is meant. Later ones have higher numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial(pub(super) u64);

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

/// What is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// As what.
    pub target: Target,
    /// From where.
    pub source: Source,
    /// Its limits, if they are not the build's own.
    pub tier: Option<Tier>,
    /// How long the caller has for each answer, if it is asked at all (G6).
    pub gate: Option<Duration>,
}

/// What a caller can have started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A generation.
    Generation(Number),
    /// The worker, in place of one that runs if so asked (G32).
    Worker {
        /// Whether one that runs is stopped for it.
        replace: bool,
    },
}

impl Target {
    pub(super) fn role(self) -> Role {
        match self {
            Self::Generation(number) => Role::Generation(number),
            Self::Worker { .. } => Role::Worker,
        }
    }
}

/// Where a program comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A staged build: the caller's own decision, which holds do not concern.
    Staged {
        /// Its name.
        build: String,
        /// Its executable or bundle.
        path: PathBuf,
        /// What its bytes must be, `sha256:HEX` (G4).
        digest: Option<String>,
    },
    /// Whatever the live link leads to at that moment (G30).
    Live {
        /// What it must lead to, if that is to be checked.
        build: Option<String>,
        /// What the bytes must be, `sha256:HEX` (G4).
        digest: Option<String>,
    },
    /// The sidecar of the staged build (G26).
    Sidecar {
        /// The build's name.
        build: String,
        /// The path of the build.
        path: PathBuf,
    },
}

/// A program that is open and checked, and cannot change any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The build, as resolved for a cold start.
    pub build: String,
    /// Its digest, if it was taken.
    pub digest: Option<String>,
    /// The limits that it gets: those asked for, its own, or the service's (G9).
    pub tier: Tier,
}

/// At which of its two moments a gate is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// All is prepared.
    Prepared,
    /// The pending record is written.
    Recorded,
}

/// What a caller asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `Stage`, `Start`, `StartWorker`.
    Start(Launch),
    /// `StartSidecar`, from the build of this generation.
    StartSidecar(Number),
    /// `Hold`
    Hold {
        /// The build that no cold start may run.
        build: String,
        /// Why.
        reason: String,
    },
    /// `Release`
    Release {
        /// The build.
        build: String,
    },
    /// `Ready`
    Ready(Number),
    /// `Switch`
    Switch(Number),
    /// `RaiseParent`: the limits of both together.
    RaiseParent {
        /// Those of what runs.
        incumbent: Tier,
        /// Those of what is about to be started.
        successor: Tier,
    },
    /// `RestoreParent`: the limits of this generation alone.
    RestoreParent(Number),
    /// `KillGeneration`, `KillHost`, `KillSidecar`
    Kill(Role, Duration),
    /// `Empty`, `EmptyHost`
    Empty(Role, Duration),
    /// `Move`
    Move {
        /// Which generation.
        number: Number,
        /// Where to.
        to: Cgroup,
        /// How long it may take.
        timeout: Duration,
    },
}

/// What a launch came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launched {
    /// The process executes its program.
    Running(Process),
    /// Nothing was executed, and nothing is left.
    Nothing(String),
    /// Nobody can tell.
    Uncertain(String),
}

/// What was found in a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// `populated 0`, or the child is not there (G23).
    Empty,
    /// These are in it, in words.
    Populated(String),
    /// It could not be read.
    Unreadable(String),
    /// Nothing is delegated.
    NoDelegation,
}

/// Why a cgroup cannot be killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KillFailure {
    /// The kernel has no `cgroup.kill`. Emptiness is still seen (G23).
    NoKill,
    /// Nothing is delegated.
    NoDelegation,
    /// Another error.
    Error(String),
}

/// What writing the parent's limits came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentLimits {
    /// What the files say now.
    pub are: Tier,
    /// What the kernel refused: file, value and error (G13), or the controller that is missing (G14).
    pub refused: Option<String>,
}

/// What is left where nothing was to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// A cgroup and what is in it.
    Cgroup(Cgroup, String),
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

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open the program, check it, and find its limits; answer with `handle_opened`.
    Open {
        /// The start.
        start: StartId,
        /// As what.
        role: Role,
        /// From where.
        source: Source,
        /// The limits asked for.
        tier: Option<Tier>,
    },
    /// Make the cgroup afresh (G21) with these limits, and what else the launch needs; answer with `handle_prepared`.
    Prepare(StartId, Role, Tier),
    /// Execute what is prepared; answer with `handle_launched`.
    Launch(StartId, Role),
    /// Undo what a start has opened and prepared. Nothing of it was executed.
    Discard(StartId, Role),
    /// Write what [`Generations::record`](super::Generations::record) is now; answer with `handle_recorded`.
    WriteRecord(Serial),
    /// Read whether the cgroup is populated, at once; answer with `handle_found`.
    Inspect(Role, Cgroup),
    /// Mark the cgroup and kill what is in it until nothing is left; answer with `handle_found` once it is empty, with
    /// `handle_kill_failed`, and with `handle_unmarked` where it could not be marked (G21).
    Evict(Role, Cgroup),
    /// Nobody waits for that any more.
    EndEviction(Cgroup),
    /// Send SIGTERM to the process.
    Terminate(Role),
    /// Send SIGKILL to the process, which is not in its cgroups or cannot be reached there.
    KillLeader(Role),
    /// It is proven gone: remove its cgroups and sockets, and the canonical link only if that names it (G18).
    Retire(Role, Vec<Cgroup>),
    /// Widen the mode of the generation's socket (G15); answer with `handle_widened`.
    Widen(RequestId, Number),
    /// Point the canonical path at the generation's socket (G15, G16, G19); answer with `handle_switched`.
    Switch(Number),
    /// Run the switch hook (G17).
    RunHook(Number),
    /// Find out which generation the canonical link names; answer with `handle_link`.
    ReadLink,
    /// Read the parent's limits; answer with `handle_parent_read`.
    ReadParent,
    /// Write the parent's limits in G13's order; answer with `handle_parent_set`.
    SetParent {
        /// What they are to be.
        tier: Tier,
        /// Whether `memory.max` is left as it is.
        keep_memory_max: bool,
    },
    /// Read the parent's `memory.current`; answer with `handle_memory`.
    ReadMemory,
    /// Reclaim so many bytes of the parent's; answer with `handle_reclaimed`.
    Reclaim(u64),
    /// Move every process of the generation into a cgroup that is made for it (G28); answer with `handle_moved`.
    Move {
        /// Which generation.
        number: Number,
        /// All cgroups that it may be in.
        from: Vec<Cgroup>,
        /// Where to.
        to: Cgroup,
        /// The limits of what is made.
        tier: Tier,
    },
    /// Stop moving, and thaw; `handle_moved` does not follow.
    EndMove(Number),
    /// Watch a process of an earlier shim, if it is still the one of the record (R9); answer with `handle_adopted`.
    Adopt(Role, Process),
    /// Tell.
    Report(Outcome),
}

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
            Self::NotFound(what) => write!(f, "{what} does not exist"),
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
