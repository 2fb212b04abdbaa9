//! Signals to the shim, and the shutdown with a deadline (R18 to R21).

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::child::Kind;
use super::timing::InvalidBudget;
use super::types::Outcome;
use super::{Action, Reaper, Timer};

/// A shutdown in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shutdown {
    began: Instant,
    ends_at: Instant,
    stage: Stage,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Processes were told to end; calls may end by themselves.
    Waiting,
    /// Calls are stopped.
    Stopping,
    /// Everything is killed.
    Killing,
    /// It was reported.
    Over,
}

impl Reaper {
    /// SIGTERM, SIGINT or SIGQUIT for the shim: passed on to the processes that it is there for; while there is none,
    /// to the runtimes (R18).
    pub fn handle_termination(&mut self, now: Instant, signal: Signal) {
        if self.children.iter().any(|child| child.kind == Kind::Main) {
            self.signal_main(signal);
        } else {
            for call in &mut self.calls {
                if call.runtime.is_some() {
                    self.actions.push_back(Action::SignalRuntime(call.id, signal));
                } else {
                    call.pending_signal = Some(signal);
                }
            }
        }
        if let Some(deadline) = self.timing.shutdown_timeout
            && self.shutdown.is_none()
        {
            if signal != Signal::SIGTERM {
                self.signal_main(Signal::SIGTERM);
            }
            self.begin_shutdown(now, deadline);
        }
    }

    /// A shutdown within `deadline` is asked for (R19). Asked again, it can only come to its end earlier.
    pub fn handle_shutdown(&mut self, now: Instant, deadline: Duration) -> Result<(), InvalidBudget> {
        self.timing.validate()?;
        self.timing.validate_shutdown(deadline)?;
        if self.shutdown.is_none() {
            self.signal_main(Signal::SIGTERM);
        }
        self.begin_shutdown(now, deadline);
        Ok(())
    }

    fn begin_shutdown(&mut self, now: Instant, deadline: Duration) {
        let ends_at = now + deadline;
        let stage = match self.shutdown {
            Some(shutdown) if shutdown.ends_at <= ends_at => return,
            Some(shutdown) => shutdown.stage,
            None => Stage::Waiting,
        };
        self.shutdown = Some(Shutdown { began: now, ends_at, stage });
        let kill_at = now + deadline.saturating_sub(self.timing.stop_budget);
        if stage < Stage::Stopping {
            self.bring_forward(Timer::StopCalls, kill_at.min(now + self.timing.in_flight_wait));
        }
        if stage < Stage::Killing {
            self.bring_forward(Timer::KillChildren, kill_at);
        }
        if stage < Stage::Over {
            self.bring_forward(Timer::EndShutdown, ends_at);
        }
        // Nothing is deferred any more (R5).
        self.look();
        self.go_on_shutting_down();
    }

    pub(super) fn handle_stop_calls(&mut self, now: Instant) {
        self.set_stage(Stage::Stopping);
        self.stop_calls(now);
    }

    pub(super) fn handle_kill_children(&mut self) {
        self.set_stage(Stage::Killing);
        self.kill_children();
    }

    /// The deadline: what is left is named, and not waited for.
    pub(super) fn handle_end_shutdown(&mut self) {
        let children = self.children.iter().filter(|child| child.is_awaited()).filter_map(|child| child.pid);
        let calls = self.calls.iter().flat_map(|call| [call.runtime, call.killed_process()]).flatten();
        let mut left: Vec<Pid> = children.chain(calls).chain(self.abandoned.iter().copied()).collect();
        left.sort_unstable_by_key(|pid| pid.as_raw());
        left.dedup();
        self.set_stage(Stage::Over);
        self.fail_calls();
        self.end_shutdown(left);
    }

    /// Takes the next step early where there is nothing left to wait for.
    pub(super) fn go_on_shutting_down(&mut self) {
        let Some(shutdown) = self.shutdown else { return };
        if shutdown.stage == Stage::Over || !self.calls.is_empty() {
            return;
        }
        let awaited = self.children.iter().filter(|child| child.is_awaited());
        if awaited.clone().next().is_none() {
            if self.abandoned.is_empty() {
                self.end_shutdown(Vec::new());
            }
        } else if shutdown.stage < Stage::Killing && awaited.clone().all(|child| child.kind != Kind::Main) {
            // Due at once.
            self.bring_forward(Timer::KillChildren, shutdown.began);
        }
    }

    pub(super) fn calls_are_stopped(&self) -> bool {
        self.shutdown.is_some_and(|shutdown| shutdown.stage >= Stage::Stopping)
    }

    /// Whether what is registered now is killed at once (R19).
    pub(super) fn kills_at_once(&self) -> bool {
        self.shutdown.is_some_and(|shutdown| shutdown.stage >= Stage::Killing)
    }

    fn signal_main(&mut self, signal: Signal) {
        let main = self.children.iter().filter(|child| child.kind == Kind::Main && child.pid.is_some());
        self.actions.extend(main.map(|child| Action::SignalChild(child.id, signal)));
    }

    fn set_stage(&mut self, stage: Stage) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.stage = shutdown.stage.max(stage);
        }
    }

    fn end_shutdown(&mut self, left: Vec<Pid>) {
        self.set_stage(Stage::Over);
        for timer in [Timer::StopCalls, Timer::KillChildren, Timer::EndShutdown] {
            self.deadlines.cancel(timer);
        }
        self.report(Outcome::ShutDown { left });
    }
}
