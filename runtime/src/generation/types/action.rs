//! What is to be done, and what comes of it.

use super::{Outcome, Process, RequestId, Role, Serial, Source, StartId};
use crate::cgroup::Name;
use crate::generation::{Number, Tier};

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
    /// Write what [`Generations::record`](crate::generation::Generations::record) is now; answer with `handle_recorded`.
    WriteRecord(Serial),
    /// Read whether the cgroup is populated, at once; answer with `handle_found`.
    Inspect(Role, Name),
    /// Mark the cgroup and kill what is in it until nothing is left; answer with `handle_emptied` once it is empty, with
    /// `handle_kill_failed`, and with `handle_unmarked` where it could not be marked (G21).
    Evict(Role, Name),
    /// Nobody waits for that any more.
    EndEviction(Name),
    /// Send SIGTERM to the process.
    Terminate(Role),
    /// Send SIGKILL to the process, which is not in its cgroups or cannot be reached there.
    KillLeader(Role),
    /// It is proven gone: remove its cgroups and sockets, and the canonical link only if that names it (G18).
    Retire(Role, Vec<Name>),
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
        from: Vec<Name>,
        /// Where to.
        to: Name,
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
