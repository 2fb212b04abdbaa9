//! Decides about children, calls and orphans. No I/O and no clock: events and the time go in through `handle_*`,
//! actions come out of [`Reaper::poll_action`], and [`Reaper::next_timeout`] says when
//! [`Reaper::handle_timeout`] is due.
//!
//! The rules (R1 to R22) are those of `docs/reaper.md`.

mod call;
mod sweep;
#[cfg(test)]
mod tests;
mod timing;
mod types;

use std::collections::VecDeque;
use std::time::Instant;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::deadlines::Deadlines;
use call::{Call, Phase, Purpose, Terminal};
use sweep::Sweep;

pub use timing::Timing;
pub use types::{Action, CallId, CallSpec, ChildId, ExitStatus, Failure, Kinship, Outcome, PidFile};

/// What has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// The phase of a call.
    Call(CallId),
    /// The next look at zombies.
    Sweep,
}

/// A registered child, until it was reaped.
#[derive(Debug)]
struct Child {
    id: ChildId,
    pid: Pid,
}

/// The state of all that the shim is parent of.
#[derive(Debug)]
pub struct Reaper {
    timing: Timing,
    calls: Vec<Call>,
    children: Vec<Child>,
    sweep: Sweep,
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
            sweep: Sweep::default(),
            deadlines: Deadlines::default(),
            actions: VecDeque::new(),
            next_number: 0,
        }
    }

    /// The next thing to do, if there is one.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Reaper::handle_timeout`] is to be called at the latest.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// A runtime was started: its call begins, and owns `runtime` from now on.
    pub fn handle_runtime_started(&mut self, now: Instant, runtime: Pid, spec: &CallSpec) -> CallId {
        let id = CallId(self.take_number());
        let runtime_deadline = now + spec.runtime_timeout;
        self.calls.push(Call {
            id,
            runtime: Some(runtime),
            process: None,
            phase: Phase::Running,
            runtime_timeout: spec.runtime_timeout,
            runtime_deadline,
            terminal: if spec.terminal { Terminal::Awaited } else { Terminal::NotAsked },
            output_closed: false,
            pending_signal: None,
        });
        self.deadlines.set(Timer::Call(id), runtime_deadline);
        id
    }

    /// The call's runtime ended and was reaped.
    pub fn handle_runtime_exit(&mut self, now: Instant, id: CallId, status: ExitStatus) {
        let Some(call) = self.call(id) else { return };
        call.runtime = None;
        match call.phase.clone() {
            Phase::Running if !status.success() => self.clean_up(id, Failure::Runtime(status)),
            Phase::Running if call.terminal == Terminal::Awaited => self.enter(now, id, Phase::AwaitingTerminal),
            Phase::Running => self.claim(id, Purpose::Register),
            Phase::Failing(failure) | Phase::RuntimeKilled(failure) => self.clean_up(id, failure),
            // Without a runtime already: it was abandoned.
            Phase::AwaitingTerminal | Phase::Claiming(_) | Phase::ProcessKilled(_) | Phase::Draining(_) => {}
        }
    }

    /// The runtime handed over the terminal.
    pub fn handle_terminal_connected(&mut self, id: CallId) {
        let Some(call) = self.call(id) else { return };
        call.terminal = Terminal::Connected;
        if matches!(call.phase, Phase::AwaitingTerminal) {
            self.claim(id, Purpose::Register);
        }
    }

    /// The terminal can no longer be connected, whatever the runtime does.
    pub fn handle_terminal_failed(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.call(id) else { return };
        match call.phase {
            Phase::Running => self.enter(now, id, Phase::Failing(Failure::NoTerminal)),
            Phase::AwaitingTerminal => self.clean_up(id, Failure::NoTerminal),
            _ => {}
        }
    }

    /// Nobody holds the output that the call's runtime was given.
    pub fn handle_output_closed(&mut self, id: CallId) {
        let Some(call) = self.call(id) else { return };
        call.output_closed = true;
        if let Phase::Draining(failure) = call.phase.clone() {
            self.fail(id, failure);
        }
    }

    /// The answer to [`Action::ReadPidFile`].
    pub fn handle_pid_file(&mut self, now: Instant, id: CallId, pid_file: PidFile) {
        let Some(call) = self.call(id) else { return };
        let Phase::Claiming(purpose) = call.phase.clone() else { return };
        match (pid_file, purpose) {
            (PidFile::Pid(pid), purpose) => {
                if self.is_anothers(id, pid) {
                    self.refuse_pid(now, id, pid, purpose);
                } else {
                    self.set_process(id, Some(pid));
                    self.actions.push_back(Action::Examine(id, pid));
                }
            }
            (PidFile::Absent, Purpose::Register) => self.drain(now, id, Failure::NoPid),
            (PidFile::Invalid(what), Purpose::Register) => self.drain(now, id, Failure::InvalidPid(what)),
            (PidFile::Absent | PidFile::Invalid(_), Purpose::CleanUp(failure)) => self.drain(now, id, failure),
        }
    }

    /// The answer to [`Action::Examine`].
    pub fn handle_kinship(&mut self, now: Instant, id: CallId, kinship: Kinship) {
        let Some(call) = self.call(id) else { return };
        let Phase::Claiming(purpose) = call.phase.clone() else { return };
        let Some(pid) = call.process else { return };
        match (kinship, purpose) {
            (Kinship::Child | Kinship::Descendant, Purpose::Register) => self.register(id, pid),
            (Kinship::Child | Kinship::Descendant, Purpose::CleanUp(failure)) => {
                self.actions.push_back(Action::KillProcess(id));
                self.enter(now, id, Phase::ProcessKilled(failure));
            }
            (Kinship::None, purpose) => self.refuse_pid(now, id, pid, purpose),
        }
    }

    /// The process that [`Action::KillProcess`] was about is gone and reaped.
    pub fn handle_process_exit(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.call(id) else { return };
        call.process = None;
        if let Phase::ProcessKilled(failure) = call.phase.clone() {
            self.drain(now, id, failure);
        }
    }

    /// A program that runs for the shim itself was started: a child like any other.
    pub fn handle_helper_started(&mut self, pid: Pid) -> ChildId {
        let id = ChildId(self.take_number());
        self.children.push(Child { id, pid });
        id
    }

    /// The child ended and was reaped.
    pub fn handle_child_exit(&mut self, id: ChildId, status: ExitStatus) {
        let before = self.children.len();
        self.children.retain(|child| child.id != id);
        if self.children.len() < before {
            self.report(Outcome::Exited { child: id, status });
        }
    }

    /// SIGTERM, SIGINT or SIGQUIT: for the children, while there is none for the runtimes (R18).
    pub fn handle_termination(&mut self, signal: Signal) {
        if !self.children.is_empty() {
            let children = self.children.iter().map(|child| Action::SignalChild(child.id, signal));
            self.actions.extend(children);
            return;
        }
        for call in &mut self.calls {
            if call.runtime.is_some() {
                self.actions.push_back(Action::SignalRuntime(call.id, signal));
            } else {
                call.pending_signal = Some(signal);
            }
        }
    }

    /// A child changed its state (SIGCHLD): there may be a zombie.
    pub fn handle_sigchld(&mut self, now: Instant) {
        match self.sweep.hold_off(now) {
            None => self.actions.push_back(Action::ListZombies),
            Some(when) => self.look_for_zombies_at(when),
        }
    }

    /// The answer to [`Action::ListZombies`].
    pub fn handle_zombies(&mut self, now: Instant, zombies: &[Pid]) {
        let unclaimed: Vec<Pid> = zombies.iter().copied().filter(|&pid| !self.is_claimed(pid)).collect();
        let due = self.sweep.look(now, unclaimed, &self.calls, &self.timing);
        self.actions.extend(due.orphans.into_iter().map(Action::ReapOrphan));
        match due.next {
            Some(when) => self.deadlines.set(Timer::Sweep, when),
            None => self.deadlines.cancel(Timer::Sweep),
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.deadlines.pop_due(now) {
            match timer {
                Timer::Call(id) => self.handle_call_timeout(now, id),
                Timer::Sweep => self.actions.push_back(Action::ListZombies),
            }
        }
    }

    fn handle_call_timeout(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.call(id) else { return };
        match call.phase.clone() {
            Phase::Running => {
                let limit = call.runtime_timeout;
                self.kill_runtime(now, id, Failure::TimedOut(limit));
            }
            Phase::Failing(failure) => self.kill_runtime(now, id, failure),
            Phase::RuntimeKilled(failure) => {
                call.runtime = None;
                self.actions.push_back(Action::AbandonRuntime(id));
                self.clean_up(id, failure);
            }
            Phase::AwaitingTerminal => self.clean_up(id, Failure::NoTerminal),
            Phase::ProcessKilled(failure) => {
                call.process = None;
                self.actions.push_back(Action::AbandonProcess(id));
                self.drain(now, id, failure);
            }
            Phase::Draining(failure) => self.fail(id, failure),
            Phase::Claiming(_) => {}
        }
    }

    /// Enters a phase that RUNTIME_GRACE bounds.
    fn enter(&mut self, now: Instant, id: CallId, phase: Phase) {
        self.deadlines.set(Timer::Call(id), now + self.timing.runtime_grace);
        self.set_phase(id, phase);
    }

    fn kill_runtime(&mut self, now: Instant, id: CallId, failure: Failure) {
        self.actions.push_back(Action::KillRuntime(id));
        self.enter(now, id, Phase::RuntimeKilled(failure));
    }

    /// Looks for what the runtime of a failed call left (R15).
    fn clean_up(&mut self, id: CallId, failure: Failure) {
        self.claim(id, Purpose::CleanUp(failure));
    }

    fn claim(&mut self, id: CallId, purpose: Purpose) {
        self.deadlines.cancel(Timer::Call(id));
        self.set_phase(id, Phase::Claiming(purpose));
        self.actions.push_back(Action::ReadPidFile(id));
    }

    fn drain(&mut self, now: Instant, id: CallId, failure: Failure) {
        if self.call(id).is_some_and(|call| call.output_closed) {
            self.fail(id, failure);
        } else {
            self.enter(now, id, Phase::Draining(failure));
        }
    }

    /// The reported PID is not the call's: that process is neither signalled nor waited for (R10).
    fn refuse_pid(&mut self, now: Instant, id: CallId, pid: Pid, purpose: Purpose) {
        self.set_process(id, None);
        let failure = match purpose {
            Purpose::Register => Failure::NotOurs(pid),
            Purpose::CleanUp(failure) => failure,
        };
        self.drain(now, id, failure);
    }

    /// The end of a call that went well: its process passes from the call to its registration in one step, so that
    /// it is claimed at every moment.
    fn register(&mut self, id: CallId, pid: Pid) {
        let pending_signal = self.call(id).and_then(|call| call.pending_signal);
        self.end_call(id);
        let child = ChildId(self.take_number());
        self.children.push(Child { id: child, pid });
        self.actions.push_back(Action::Register(id, child));
        self.report(Outcome::Started { call: id, child, pid });
        if let Some(signal) = pending_signal {
            self.actions.push_back(Action::SignalChild(child, signal));
        }
        if self.sweep.has_candidates() {
            // What was left alone for this call is no longer (R4).
            self.actions.push_back(Action::ListZombies);
        }
    }

    fn fail(&mut self, id: CallId, failure: Failure) {
        self.end_call(id);
        self.report(Outcome::Failed { call: id, failure });
        // What the runtime left behind, its helpers among them, has no owner now (R7).
        self.actions.push_back(Action::ListZombies);
    }

    fn end_call(&mut self, id: CallId) {
        self.deadlines.cancel(Timer::Call(id));
        self.calls.retain(|call| call.id != id);
    }

    fn look_for_zombies_at(&mut self, when: Instant) {
        if self.deadlines.get(Timer::Sweep).is_none_or(|at| when < at) {
            self.deadlines.set(Timer::Sweep, when);
        }
    }

    fn is_claimed(&self, pid: Pid) -> bool {
        self.children.iter().any(|child| child.pid == pid) || self.calls.iter().any(|call| call.claims(pid))
    }

    /// Whether `pid` belongs to a registered child, or is the runtime of another call.
    fn is_anothers(&self, id: CallId, pid: Pid) -> bool {
        self.children.iter().any(|child| child.pid == pid)
            || self.calls.iter().any(|call| call.id != id && call.runtime == Some(pid))
    }

    fn call(&mut self, id: CallId) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| call.id == id)
    }

    fn set_phase(&mut self, id: CallId, phase: Phase) {
        if let Some(call) = self.call(id) {
            call.phase = phase;
        }
    }

    fn set_process(&mut self, id: CallId, process: Option<Pid>) {
        if let Some(call) = self.call(id) {
            call.process = process;
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
