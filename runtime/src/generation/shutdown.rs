//! The part that generations have in a shutdown (R19, R20).

use std::time::Instant;

use super::types::{Failure, Left, Outcome, Role};
use super::{Action, Generations, Timer};

/// How far a shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shutdown {
    /// Processes were told to end.
    Waiting,
    /// All is killed.
    Killing,
    /// It was reported.
    Over,
}

impl Generations {
    /// The shim ends: all is told to end now, is killed at `kill_at`, and what is left at `end_at` is named.
    pub fn handle_shutdown(&mut self, now: Instant, kill_at: Instant, end_at: Instant) {
        if self.shutdown.is_none() {
            self.shutdown = Some(Shutdown::Waiting);
            let starts: Vec<_> =
                self.starts.iter().filter(|start| start.is_cancellable()).map(|start| start.id).collect();
            for id in starts {
                self.fail_start(now, id, Failure::ShuttingDown);
            }
            self.dismiss_sidecar(now);
            self.actions.extend(self.record.roles().map(Action::Terminate));
        }
        let earlier = |timer, when| self.deadlines.get(timer).map_or(when, |at: Instant| at.min(when));
        let (kill_at, end_at) = (earlier(Timer::KillAll, kill_at), earlier(Timer::EndShutdown, end_at));
        if self.shutdown < Some(Shutdown::Killing) {
            self.deadlines.set(Timer::KillAll, kill_at);
        }
        if self.shutdown < Some(Shutdown::Over) {
            self.deadlines.set(Timer::EndShutdown, end_at);
        }
        self.go_on_shutting_down(now);
    }

    /// Something runs that was being started when the shutdown began.
    pub(super) fn join_shutdown(&mut self, now: Instant, role: Role) {
        match self.shutdown {
            Some(Shutdown::Waiting) => self.actions.push_back(Action::Terminate(role)),
            Some(_) if self.record.run(role).is_some() => self.start_kill(now, role),
            _ => {}
        }
        self.go_on_shutting_down(now);
    }

    pub(super) fn kill_all(&mut self, now: Instant) {
        self.shutdown = self.shutdown.map(|stage| stage.max(Shutdown::Killing));
        self.deadlines.cancel(Timer::KillAll);
        for role in self.record.roles().collect::<Vec<_>>() {
            if !self.is_killing(role) {
                self.start_kill(now, role);
            }
        }
    }

    /// Takes the next step early where there is nothing left to wait for.
    pub(super) fn go_on_shutting_down(&mut self, now: Instant) {
        let Some(stage) = self.shutdown.filter(|&stage| stage < Shutdown::Over) else { return };
        let gone = self.record.roles().next().is_none() && self.evictions.is_empty() && self.starts.is_empty();
        if gone {
            self.end_shutdown();
        } else if stage == Shutdown::Waiting
            && self.starts.is_empty()
            && self.record.roles().all(|role| self.leader(role).is_none())
        {
            self.kill_all(now);
        }
    }

    pub(super) fn end_shutdown(&mut self) {
        if self.shutdown == Some(Shutdown::Over) {
            return;
        }
        self.shutdown = Some(Shutdown::Over);
        self.deadlines.cancel(Timer::KillAll);
        self.deadlines.cancel(Timer::EndShutdown);
        let mut left: Vec<Left> = self.record.roles().flat_map(|role| self.left(role)).collect();
        let starting = self.starts.iter().map(|start| start.role).filter(|&role| self.record.run(role).is_none());
        left.extend(starting.map(Left::Starting));
        self.report(Outcome::ShutDown { left });
    }
}
