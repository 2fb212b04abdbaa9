//! Decides about children, calls, orphans and the shutdown. No I/O and no clock: events and the time go in through
//! `handle_*`, actions come out of [`Reaper::poll_action`], and [`Reaper::next_timeout`] says when
//! [`Reaper::handle_timeout`] is due.
//!
//! All actions are carried out, in their order and each with its answer, before the next event goes in.
//!
//! The rules (R1 to R22) are those of `docs/reaper.md`.

mod call;
mod child;
mod shutdown;
mod snapshot;
mod sweep;
#[cfg(test)]
mod tests;
mod timing;
mod types;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::deadlines::Deadlines;
use call::Call;
use child::Child;
use shutdown::Shutdown;
use sweep::Sweep;

pub use snapshot::{CallInProgress, Snapshot, Zombie};
pub use timing::{InvalidBudget, Timing};
pub use types::{
    Action, CallId, CallSpec, ChildId, ExitStatus, Failure, Job, Kinship, Outcome, PidFile, Timeout, Walk,
};

/// Between two slices of what takes long: the loop runs, and what was told to stop gets to it.
const SLICE_PAUSE: Duration = Duration::from_millis(1);

/// What has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// The phase of a call.
    Call(CallId),
    /// The timeout of a child, and each step of what follows it.
    Child(ChildId),
    /// The status of a child that another process reaps.
    Status(ChildId),
    /// A look at zombies that had to wait.
    Look,
    /// A zombie that is left alone is due.
    Sweep,
    /// The next slice of orphans to reap.
    Slice,
    /// The steps of a shutdown.
    StopCalls,
    KillChildren,
    EndShutdown,
}

/// The state of all that the shim is parent of.
#[derive(Debug)]
pub struct Reaper {
    timing: Timing,
    calls: Vec<Call>,
    children: Vec<Child>,
    /// Children that did not die of SIGKILL and were given up by their calls; the sweep reaps them.
    abandoned: Vec<Pid>,
    sweep: Sweep,
    shutdown: Option<Shutdown>,
    deadlines: Deadlines<Timer>,
    actions: VecDeque<Action>,
    /// Numbers for calls and registrations.
    next_number: u32,
}

impl Reaper {
    /// A reaper without children.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            calls: Vec::new(),
            children: Vec::new(),
            abandoned: Vec::new(),
            sweep: Sweep::default(),
            shutdown: None,
            deadlines: Deadlines::default(),
            actions: VecDeque::new(),
            next_number: 0,
        }
    }

    /// The next thing to do, if there is one.
    pub fn poll_action(&mut self) -> Option<Action> {
        loop {
            match self.actions.pop_front()? {
                // It may have been claimed since it was found to be due.
                Action::ReapOrphan(pid) if !self.give_up_orphan(pid) => {}
                // It may have been reaped since it was to be signalled (R9).
                Action::SignalChild(id, _) | Action::KillChild(id) | Action::StopTree(id) if !self.is_unreaped(id) => {}
                action => return Some(action),
            }
        }
    }

    /// When [`Reaper::handle_timeout`] is to be called at the latest.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.deadlines.pop_due(now) {
            match timer {
                Timer::Call(id) => self.handle_call_timeout(now, id),
                Timer::Child(id) => self.handle_child_timeout(id),
                Timer::Status(id) => self.handle_status_timeout(id),
                Timer::Look | Timer::Sweep => self.look(),
                Timer::Slice => self.sweep_slice(now),
                Timer::StopCalls => self.handle_stop_calls(now),
                Timer::KillChildren => self.handle_kill_children(),
                Timer::EndShutdown => self.handle_end_shutdown(),
            }
        }
    }

    /// Gives up memory that is not needed for what there is now.
    pub fn shrink(&mut self) {
        self.calls.shrink_to_fit();
        self.children.shrink_to_fit();
        self.actions.shrink_to_fit();
        self.deadlines.shrink();
        self.sweep.shrink();
    }

    /// Makes `timer` due at `when`, unless it is due earlier.
    fn bring_forward(&mut self, timer: Timer, when: Instant) {
        if self.deadlines.get(timer).is_none_or(|at| when < at) {
            self.deadlines.set(timer, when);
        }
    }

    fn report(&mut self, outcome: Outcome) {
        self.actions.push_back(Action::Report(outcome));
    }

    fn take_number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }
}
