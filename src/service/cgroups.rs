//! The cgroups of a service, and all that is being done with them.

use std::time::{Duration, Instant};

use dunnage_runtime::cgroup::{CgroupError, Parent, Proof, Removed};
use dunnage_runtime::generation::Failure;
use log::warn;

use super::killing::{Evicting, Removing};
use super::moving::Moving;
use crate::generations::Layout;

/// In place of a deadline where somebody else has one.
pub(super) const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// See the module.
#[derive(Debug)]
pub(super) struct Cgroups {
    /// The service's own, or why there is none.
    parent: Result<Parent, String>,
    pub(super) evictions: Vec<Evicting>,
    pub(super) removals: Vec<Removing>,
    pub(super) moves: Vec<Moving>,
}

impl Cgroups {
    /// Opens the service's cgroup. Without one, only the ends of processes are proven (G23).
    pub(super) fn open(layout: &Layout) -> Self {
        let parent = match layout.places() {
            None => Err("a systemd unit owns the processes".to_owned()),
            Some(places) => Parent::open(&places.cgroup).map_err(|error| error.to_string()),
        };
        if let (Err(reason), Some(_)) = (&parent, layout.places()) {
            warn!("nothing can be started: {reason}");
        }
        Self { parent, evictions: Vec::new(), removals: Vec::new(), moves: Vec::new() }
    }

    /// The service's own cgroup.
    pub(super) fn parent(&self) -> Result<&Parent, Failure> {
        self.parent.as_ref().map_err(|reason| Failure::Refused(reason.clone()))
    }

    /// When something is to be looked at without an event.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let evictions = self.evictions.iter().map(|one| one.eviction.next_timeout());
        let removals = self.removals.iter().map(|one| one.removal.next_timeout());
        let moves = self.moves.iter().filter_map(Moving::next_timeout);
        evictions.chain(removals).chain(moves).min()
    }
}

/// The parts that need the parent while they change.
impl Cgroups {
    pub(super) fn advance_eviction(&mut self, position: usize, now: Instant) -> Result<Proof, CgroupError> {
        match &self.parent {
            Ok(parent) => self.evictions[position].eviction.advance(parent, now),
            // None is begun then.
            Err(_) => Ok(Proof::Pending),
        }
    }

    pub(super) fn advance_removal(&mut self, position: usize, now: Instant) -> Result<Removed, CgroupError> {
        match &self.parent {
            Ok(parent) => self.removals[position].removal.advance(parent, now),
            Err(_) => Ok(Removed::Yes),
        }
    }
}
