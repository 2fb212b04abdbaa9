//! What the reaper knows, for those who ask.

use std::time::Instant;

use nix::unistd::Pid;

use super::{CallId, Reaper};

/// The state of the reaper at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The oldest first.
    pub calls: Vec<CallInProgress>,
    /// Zombies without an owner that are left alone for now.
    pub zombies: Vec<Zombie>,
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct CallInProgress {
    /// Its number.
    pub id: CallId,
    /// The runtime, until it has ended.
    pub runtime: Option<Pid>,
    /// The process, once the runtime has told.
    pub process: Option<Pid>,
    /// When the runtime was started.
    pub started: Instant,
}

/// A zombie.
#[derive(Clone, Copy, Debug)]
pub struct Zombie {
    /// The process that it was.
    pub pid: Pid,
    /// When it was seen first.
    pub first_seen: Instant,
}

impl Reaper {
    /// What there is now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let calls = self.calls.iter().map(|call| CallInProgress {
            id: call.id,
            runtime: call.runtime,
            process: call.process,
            started: call.started,
        });
        Snapshot { calls: calls.collect(), zombies: self.sweep.zombies().collect() }
    }
}
