//! What callers ask for.

use crate::cgroup::Name;
use std::path::PathBuf;
use std::time::Duration;

use super::Role;
use crate::generation::{Number, Tier};

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
        to: Name,
        /// How long it may take.
        timeout: Duration,
    },
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
    pub(in crate::generation) fn role(self) -> Role {
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
