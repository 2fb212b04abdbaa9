//! Registered children: from registration until they were reaped.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::call::Call;
use super::types::{ChildId, ExitStatus, Outcome, Walk};
use super::{Action, Reaper, SLICE_PAUSE, Timer};

/// In how many slices a tree is to be stopped: one that cannot be is killed as it is. Counted rather than timed, so that
/// a loop that was held up still walks all of it.
const TREE_SLICES: u32 = 500;

/// A registered child.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) id: ChildId,
    /// Until it was reaped: another process may have its PID after that (R6).
    pub(super) pid: Option<Pid>,
    pub(super) kind: Kind,
    state: State,
}

/// What a child is to the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What the shim is there for.
    Main,
    /// A process executed beside that.
    Exec,
    /// A program that runs for the shim itself: its starter sees to its end.
    Helper,
}

/// How far a child is. `limit` is the timeout that it did not keep (R17).
#[derive(Clone, Copy, Debug)]
enum State {
    /// It runs, for so long at most.
    Running(Option<Duration>),
    /// Its time is over. Has it ended already?
    Expiring { limit: Duration },
    /// All that is below it is told to stop, so that nothing new turns up.
    Stopping { limit: Duration, slices: u32 },
    /// All that is below it is killed; then it is, if it is still there.
    Killing { limit: Duration },
    /// All was killed. It is to be reaped.
    Killed { limit: Duration },
    /// It has ended by itself, and its own parent is to reap it (R11).
    Ended,
}

impl Reaper {
    /// A program that runs for the shim itself was started: a child that only its starter signals.
    pub fn handle_helper_started(&mut self, pid: Pid) -> ChildId {
        self.take_from_sweep(pid);
        self.push_child(pid, Kind::Helper, None)
    }

    /// Whether the child is what the shim is there for.
    #[must_use]
    pub fn is_main(&self, id: ChildId) -> bool {
        self.children.iter().any(|child| child.id == id && child.kind == Kind::Main)
    }

    /// Whether the child was executed beside that.
    #[must_use]
    pub fn is_exec(&self, id: ChildId) -> bool {
        self.children.iter().any(|child| child.id == id && child.kind == Kind::Exec)
    }

    /// Registers the process of a call that has just ended.
    pub(super) fn add_child(&mut self, now: Instant, call: &Call, pid: Pid) {
        let kind = if call.is_main() { Kind::Main } else { Kind::Exec };
        let timeout = call.process_deadline(now);
        let id = self.push_child(pid, kind, timeout.map(|(limit, _)| limit));
        // One that was abandoned has an owner again.
        self.abandoned.retain(|&abandoned| abandoned != pid);
        self.actions.push_back(Action::Register(call.id, id));
        self.report(Outcome::Started { call: call.id, child: id, pid });
        if self.kills_at_once() {
            self.actions.push_back(Action::KillChild(id));
            return;
        }
        if let Some((_, when)) = timeout {
            self.deadlines.set(Timer::Child(id), when);
        }
        let shutting_down = self.shutdown.is_some() && kind == Kind::Main;
        if let Some(signal) = call.pending_signal.or(shutting_down.then_some(Signal::SIGTERM)) {
            self.actions.push_back(Action::SignalChild(id, signal));
        }
    }

    fn push_child(&mut self, pid: Pid, kind: Kind, limit: Option<Duration>) -> ChildId {
        let id = ChildId(self.take_number());
        self.children.push(Child { id, pid: Some(pid), kind, state: State::Running(limit) });
        id
    }

    /// Sends `signal` to the child, if it was not reaped yet.
    pub fn handle_signal(&mut self, id: ChildId, signal: Signal) {
        self.actions.push_back(Action::SignalChild(id, signal));
    }

    /// Nobody waits for the child any more: it is killed with all below it, as at a timeout (R17).
    pub fn handle_cancel(&mut self, id: ChildId) {
        let Some(child) = self.child(id) else { return };
        if let State::Running(_) = child.state {
            child.state = State::Expiring { limit: Duration::ZERO };
            self.deadlines.cancel(Timer::Child(id));
            self.actions.push_back(Action::Collect(id));
        }
    }

    /// The child ended and was reaped, by this process or by its own parent.
    pub fn handle_child_exit(&mut self, id: ChildId, status: ExitStatus) {
        let Some(child) = self.child(id) else { return };
        if child.pid.take().is_none() {
            return;
        }
        self.deadlines.cancel(Timer::Status(id));
        self.go_on_after_end(id, Some(status));
        if self.sweep.take_collecting() {
            self.look();
        }
    }

    /// The child ended, but is not this process's to reap: its status is there once its own parent did so (R11).
    pub fn handle_child_ended(&mut self, now: Instant, id: ChildId) {
        if self.child(id).is_none_or(|child| child.pid.is_none()) || self.deadlines.get(Timer::Status(id)).is_some() {
            return;
        }
        self.deadlines.set(Timer::Status(id), now + self.timing.runtime_grace);
        self.go_on_after_end(id, None);
    }

    /// The answer to [`Action::Collect`] of a child that has not ended.
    pub fn handle_child_running(&mut self, id: ChildId) {
        let Some(child) = self.child(id) else { return };
        if let State::Expiring { limit } = child.state {
            child.state = State::Stopping { limit, slices: TREE_SLICES };
            self.actions.push_back(Action::StopTree(id));
        }
    }

    /// The answer to [`Action::StopTree`].
    pub fn handle_tree_stopped(&mut self, now: Instant, id: ChildId, walk: Walk) {
        let Some(child) = self.child(id) else { return };
        let State::Stopping { limit, slices } = child.state else { return };
        if walk == Walk::Settled || slices == 0 {
            self.kill_tree(id, limit);
        } else {
            child.state = State::Stopping { limit, slices: slices - 1 };
            self.deadlines.set(Timer::Child(id), now + SLICE_PAUSE);
        }
    }

    /// The answer to [`Action::KillTree`].
    pub fn handle_tree_killed(&mut self, now: Instant, id: ChildId, walk: Walk) {
        let Some(child) = self.child(id) else { return };
        let State::Killing { limit } = child.state else { return };
        if walk == Walk::Unfinished {
            self.deadlines.set(Timer::Child(id), now + SLICE_PAUSE);
        } else if child.pid.is_none() {
            self.finish_timed_out(id, limit);
        } else {
            child.state = State::Killed { limit };
            self.actions.push_back(Action::KillChild(id));
        }
    }

    pub(super) fn handle_child_timeout(&mut self, id: ChildId) {
        let Some(child) = self.child(id) else { return };
        match child.state {
            State::Running(Some(limit)) => {
                child.state = State::Expiring { limit };
                self.actions.push_back(Action::Collect(id));
            }
            State::Stopping { .. } => self.actions.push_back(Action::StopTree(id)),
            State::Killing { .. } => self.actions.push_back(Action::KillTree(id)),
            _ => {}
        }
    }

    /// Nobody told the status of a child that is not this process's to reap.
    pub(super) fn handle_status_timeout(&mut self, id: ChildId) {
        self.actions.push_back(Action::ForgetChild(id));
        self.handle_child_exit(id, ExitStatus::Unknown);
    }

    /// Kills what is left of the shim's children (R19).
    pub(super) fn kill_children(&mut self) {
        for id in self.children.iter().filter(|child| child.is_awaited()).map(|child| child.id).collect::<Vec<_>>() {
            let Some(child) = self.child(id) else { continue };
            match child.state {
                State::Running(_) | State::Expiring { .. } => {
                    // Whatever it dies of now, it is not its timeout.
                    child.state = State::Running(None);
                    self.deadlines.cancel(Timer::Child(id));
                    self.actions.push_back(Action::KillChild(id));
                }
                // Its tree is on the way already, and takes a moment only.
                State::Stopping { .. } | State::Killing { .. } | State::Killed { .. } | State::Ended => {}
            }
        }
    }

    /// The child has ended, with `status` if it was reaped. One that was about to be killed at its timeout, with all
    /// below it, has left what is below it.
    fn go_on_after_end(&mut self, id: ChildId, status: Option<ExitStatus>) {
        let Some(child) = self.child(id) else { return };
        match (child.state, status) {
            (State::Running(_) | State::Expiring { .. }, None) => {
                child.state = State::Ended;
                self.deadlines.cancel(Timer::Child(id));
            }
            (State::Running(_) | State::Expiring { .. } | State::Ended, Some(status)) => {
                self.remove_child(id);
                self.report(Outcome::Exited { child: id, status });
                self.go_on_shutting_down();
            }
            (State::Stopping { limit, .. }, _) => self.kill_tree(id, limit),
            (State::Killed { limit }, Some(_)) => self.finish_timed_out(id, limit),
            (State::Killing { .. } | State::Killed { .. } | State::Ended, _) => {}
        }
    }

    fn kill_tree(&mut self, id: ChildId, limit: Duration) {
        if let Some(child) = self.child(id) {
            child.state = State::Killing { limit };
            self.actions.push_back(Action::KillTree(id));
        }
    }

    fn finish_timed_out(&mut self, id: ChildId, limit: Duration) {
        self.remove_child(id);
        self.report(Outcome::TimedOut { child: id, limit });
        self.go_on_shutting_down();
    }

    fn remove_child(&mut self, id: ChildId) {
        self.deadlines.cancel(Timer::Child(id));
        self.deadlines.cancel(Timer::Status(id));
        self.children.retain(|child| child.id != id);
    }

    pub(super) fn is_unreaped(&self, id: ChildId) -> bool {
        self.children.iter().any(|child| child.id == id && child.pid.is_some())
    }

    fn child(&mut self, id: ChildId) -> Option<&mut Child> {
        self.children.iter_mut().find(|child| child.id == id)
    }
}

impl Child {
    /// Whether a shutdown waits for it: helpers are their starters' business.
    pub(super) fn is_awaited(&self) -> bool {
        self.kind != Kind::Helper
    }
}
