//! A signal to all processes of a child.
//!
//! They are looked for until a walk finds nothing new, and only then signalled: what one does about a signal, to end its
//! children or to start new ones, changes nothing about who gets it. For SIGKILL and SIGSTOP, which no process can do
//! anything about, each is stopped as it is found, so that none gets away by forking. One signal after the other, and of
//! each a slice a turn (R22).

use std::time::{Duration, Instant};

use log::info;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::Driver;
use super::processes::Role;
use super::tree::{Tree, Way, share_of_turn};
use crate::privileges;
use crate::reaper::{ChildId, Walk};

/// How many wait for those before them, at most.
const MAX_BROADCASTS: usize = 64;

/// How often processes that do not stop are looked for: of those that fork all the time, whoever was there at the request
/// is found by then.
const WALKS: u32 = 3;
/// How often those that are to stop are walked, each time after a pause.
const STOPPING_WALKS: u32 = 500;

/// Between two slices: the loop runs, and what was told to stop gets to it.
const PAUSE: Duration = Duration::from_millis(1);

/// The number of a signal to all processes of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BroadcastId(u32);

/// A signal to all that is over with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broadcasted {
    /// Which.
    pub id: BroadcastId,
    /// Whether the child was still there, and to be seen in /proc. If not, nobody was signalled.
    pub reached: bool,
}

/// There are too many that wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyBroadcasts;

/// See the module.
#[derive(Debug)]
pub(super) struct Broadcast {
    id: BroadcastId,
    child: ChildId,
    signal: Signal,
    /// When its next slice is due.
    due: Instant,
    /// From the first slice on.
    tree: Option<Tree>,
    /// All were found.
    found: bool,
}

impl Broadcast {
    /// Whether each is stopped before any is signalled.
    fn stops(&self) -> bool {
        matches!(self.signal, Signal::SIGKILL | Signal::SIGSTOP)
    }
}

impl Driver {
    /// Sends `signal` to the child and to all that is below it; for the main one also to what its daemons left to this
    /// process and to the processes executed beside it, with all below them. [`Driver::poll_broadcast`] tells when that
    /// was done.
    pub fn signal_all(
        &mut self,
        now: Instant,
        child: ChildId,
        signal: Signal,
    ) -> Result<BroadcastId, TooManyBroadcasts> {
        if self.broadcasts.len() >= MAX_BROADCASTS {
            return Err(TooManyBroadcasts);
        }
        let id = BroadcastId(self.next_broadcast);
        self.next_broadcast = self.next_broadcast.wrapping_add(1);
        self.broadcasts.push_back(Broadcast { id, child, signal, due: now, tree: None, found: false });
        Ok(id)
    }

    /// The next signal to all that is over with.
    pub fn poll_broadcast(&mut self) -> Option<Broadcasted> {
        self.broadcasts_done.pop_front()
    }

    /// Whether a signal to all is on its way.
    #[must_use]
    pub fn is_broadcasting(&self) -> bool {
        !self.broadcasts.is_empty()
    }

    /// When [`Driver::go_on_broadcasting`] is due.
    pub(super) fn broadcast_due(&self) -> Option<Instant> {
        self.broadcasts.front().map(|broadcast| broadcast.due)
    }

    /// Does the next slice, if it is due. What is killed with all below it comes first: nothing of that is to go on.
    pub(super) fn go_on_broadcasting(&mut self, now: Instant) {
        if self.broadcast_due().is_none_or(|due| now < due) {
            return;
        }
        let Some(mut broadcast) = self.broadcasts.pop_front() else { return };
        // They may be another user's.
        let _raised = privileges::raise();
        broadcast.due = now + PAUSE;
        if self.trees.is_empty() && self.broadcast_slice(&mut broadcast) == Walk::Settled {
            self.broadcasts_done.push_back(Broadcasted { id: broadcast.id, reached: broadcast.tree.is_some() });
        } else {
            self.broadcasts.push_front(broadcast);
        }
    }

    /// What belongs to the child beside what is below `root`, its process.
    fn beside(&self, child: ChildId, root: Pid) -> Vec<Pid> {
        if !self.reaper.is_main(child) {
            return Vec::new();
        }
        let executed = self.processes.iter().filter(|process| match process.role {
            Role::Child(other) => self.reaper.is_exec(other),
            _ => false,
        });
        let mut beside = self.adopted(root);
        beside.extend(executed.map(|process| process.pid));
        beside
    }

    fn broadcast_slice(&self, broadcast: &mut Broadcast) -> Walk {
        let (role, signal, stops) = (Role::Child(broadcast.child), broadcast.signal, broadcast.stops());
        let time = share_of_turn(1);
        if broadcast.tree.is_none() {
            // It may have been reaped since.
            let Some(root) = self.processes.find(role).map(|process| process.pid) else { return Walk::Settled };
            broadcast.tree = Tree::new(root, if stops { Way::Stop } else { Way::Look });
            // Without it nobody else is found either, and nobody would have what was stopped go on.
            if broadcast.tree.is_some() {
                info!("{signal} to process {root} and all below it");
                if stops {
                    self.processes.signal(role, Signal::SIGSTOP);
                }
            }
        }
        let Some(tree) = &mut broadcast.tree else { return Walk::Settled };
        if !broadcast.found {
            let walk = tree.walk_slice(time, |root| self.beside(broadcast.child, root));
            let walks = if stops { STOPPING_WALKS } else { WALKS };
            broadcast.found = walk == Walk::Settled || tree.walks() >= walks;
            if broadcast.found && !stops {
                // Before those below it: it sees to their ends knowing why.
                self.processes.signal(role, signal);
            }
            return Walk::Unfinished;
        }
        if !stops {
            return tree.signal_slice_from_above(signal, time);
        }
        let walk = tree.signal_slice_from_below(signal, time);
        if walk == Walk::Settled {
            self.processes.signal(role, signal);
        }
        walk
    }
}
