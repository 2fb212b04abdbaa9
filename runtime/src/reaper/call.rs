//! One call: from the start of its runtime until its process is registered, or the call failed.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::types::{CallId, CallSpec, ExitStatus, Failure, Job, Kinship, Outcome, PidFile, Timeout};
use super::{Action, Reaper, Timer, Timing};

/// A call in progress. Its PIDs are pending: nobody else may reap them.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: CallId,
    spec: CallSpec,
    started: Instant,
    /// The runtime, until it was reaped or abandoned.
    pub(super) runtime: Option<Pid>,
    /// The process it reported, once that is known.
    pub(super) process: Option<Pid>,
    phase: Phase,
    /// How long the runtime may run.
    runtime_timeout: Duration,
    /// When that is over.
    pub(super) runtime_deadline: Instant,
    terminal: Terminal,
    /// Nobody holds the runtime's output any more.
    output_closed: bool,
    /// What is for the process as soon as it is registered, as there was no runtime either to send it to.
    pub(super) pending_signal: Option<Signal>,
}

/// How far a call is. The runtime's deadline bounds `Running` and `Failing`; looking a PID up (`Reading`, `Examining`)
/// takes no time; RUNTIME_GRACE bounds the rest.
#[derive(Clone, Debug)]
enum Phase {
    /// The runtime runs, until its deadline.
    Running,
    /// The runtime ended well; its terminal is still on the way (R16).
    AwaitingTerminal,
    /// The PID file is read.
    Reading(Purpose),
    /// The process with the PID found there is looked at (R10).
    Examining(Purpose, Pid),
    /// The call failed before its runtime ended, which may still do so by itself (R14).
    Failing(Failure),
    /// The runtime was killed, and is to be gone soon (R12).
    RuntimeKilled(Failure),
    /// The process of the failed call was killed, and is to be gone soon (R15).
    ProcessKilled(Failure, Kinship),
    /// Helpers of the runtime may still have something to say (R16).
    Draining(Failure),
}

impl Phase {
    /// Why the call fails, if that is settled.
    fn failure(&self) -> Option<Failure> {
        match self {
            Self::Failing(failure)
            | Self::RuntimeKilled(failure)
            | Self::ProcessKilled(failure, _)
            | Self::Draining(failure)
            | Self::Reading(Purpose::CleanUp(failure))
            | Self::Examining(Purpose::CleanUp(failure), _) => Some(failure.clone()),
            _ => None,
        }
    }
}

/// What a PID is looked up for.
#[derive(Clone, Debug)]
enum Purpose {
    /// To register the process: its runtime ended like this.
    Register(ExitStatus),
    /// To kill what the failed call left (R15).
    CleanUp(Failure),
}

impl Purpose {
    /// Why the call fails for which there is no PID.
    fn without_pid(self, reason: Failure) -> Failure {
        match self {
            Self::Register(status) if status.success() => reason,
            Self::Register(status) => Failure::Runtime(status),
            Self::CleanUp(failure) => failure,
        }
    }

    /// Why the call fails whose PID is refused.
    fn refused(self, reason: Failure) -> Failure {
        match self {
            Self::Register(_) => reason,
            Self::CleanUp(failure) => failure,
        }
    }
}

/// The terminal of a call's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Terminal {
    NotAsked,
    Awaited,
    Connected,
}

impl Call {
    /// Whether `pid` is the call's to reap.
    pub(super) fn claims(&self, pid: Pid) -> bool {
        self.runtime == Some(pid) || self.process == Some(pid)
    }

    /// Whether the call may still find its process among the zombies.
    pub(super) fn may_claim(&self) -> bool {
        !matches!(self.phase, Phase::ProcessKilled(..) | Phase::Draining(_))
    }

    /// Its process, if that was killed and is not gone.
    pub(super) fn killed_process(&self) -> Option<Pid> {
        self.process.filter(|_| matches!(self.phase, Phase::ProcessKilled(..)))
    }

    /// When its process is to be killed, if that becomes known `now` (R17).
    pub(super) fn process_deadline(&self, now: Instant) -> Option<(Duration, Instant)> {
        let timeout = self.spec.timeout?;
        let begin = match timeout {
            Timeout::SinceKnown(_) => now,
            Timeout::SinceRequest(_) => self.started,
        };
        Some((timeout.limit(), begin + timeout.limit()))
    }

    pub(super) fn is_main(&self) -> bool {
        self.spec.main
    }
}

/// How long a runtime may run (R12).
fn runtime_timeout(spec: &CallSpec, timing: &Timing) -> Duration {
    match spec.job {
        Job::Create => timing.create_runtime_timeout,
        Job::Exec => spec.timeout.map_or(Duration::ZERO, Timeout::limit) + timing.exec_runtime_grace,
    }
}

impl Reaper {
    /// Whether a call may be started: not once a shutdown has begun (R19).
    #[must_use]
    pub fn accepts_calls(&self) -> bool {
        self.shutdown.is_none()
    }

    /// A runtime was started: its call begins, and owns `runtime` from now on.
    pub fn handle_runtime_started(&mut self, now: Instant, runtime: Pid, spec: &CallSpec) -> CallId {
        let id = CallId(self.take_number());
        let runtime_timeout = runtime_timeout(spec, &self.timing);
        let runtime_deadline = now + runtime_timeout;
        self.take_from_sweep(runtime);
        self.calls.push(Call {
            id,
            spec: *spec,
            started: now,
            runtime: Some(runtime),
            process: None,
            phase: Phase::Running,
            runtime_timeout,
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
            Phase::Running if !status.success() && call.spec.job == Job::Create => {
                self.clean_up(id, Failure::Runtime(status));
            }
            Phase::Running if status.success() && call.terminal == Terminal::Awaited => {
                self.enter(id, Phase::AwaitingTerminal, now + self.timing.runtime_grace);
            }
            Phase::Running => self.look_up(id, Purpose::Register(status)),
            Phase::Failing(failure) | Phase::RuntimeKilled(failure) => self.clean_up(id, failure),
            // Without a runtime already: it was abandoned.
            _ => {}
        }
    }

    /// The runtime handed over the terminal.
    pub fn handle_terminal_connected(&mut self, id: CallId) {
        let Some(call) = self.call(id) else { return };
        call.terminal = Terminal::Connected;
        if matches!(call.phase, Phase::AwaitingTerminal) {
            self.look_up(id, Purpose::Register(ExitStatus::Code(0)));
        }
    }

    /// The terminal can no longer be connected, whatever the runtime does.
    pub fn handle_terminal_failed(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.call(id) else { return };
        match call.phase {
            Phase::Running => {
                let until = call.runtime_deadline.min(now + self.timing.runtime_grace);
                self.enter(id, Phase::Failing(Failure::NoTerminal), until);
            }
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
        match (call.phase.clone(), pid_file) {
            (Phase::Reading(purpose), PidFile::Pid(pid)) => {
                if self.sweep.reaped_during(id, pid) {
                    self.drain(now, id, purpose.refused(Failure::Swept(pid)));
                } else if self.is_anothers(id, pid, &purpose) {
                    self.drain(now, id, purpose.refused(Failure::NotOurs(pid)));
                } else {
                    self.claim(id, pid);
                    self.set_phase(id, Phase::Examining(purpose, pid));
                    self.actions.push_back(Action::Examine(id, pid));
                }
            }
            (Phase::Reading(purpose), PidFile::Absent) => {
                self.drain(now, id, purpose.without_pid(Failure::NoPid));
            }
            (Phase::Reading(purpose), PidFile::Invalid(what)) => {
                self.drain(now, id, purpose.without_pid(Failure::InvalidPid(what)));
            }
            // Read before the sweep reaps (R4): what is named here is not an orphan.
            (
                Phase::Running | Phase::AwaitingTerminal | Phase::Failing(_) | Phase::RuntimeKilled(_),
                PidFile::Pid(pid),
            ) if !self.sweep.reaped_during(id, pid) => {
                self.claim(id, pid);
            }
            _ => {}
        }
    }

    /// The answer to [`Action::Examine`].
    pub fn handle_kinship(&mut self, now: Instant, id: CallId, kinship: Kinship) {
        let Some(call) = self.call(id) else { return };
        let Phase::Examining(purpose, pid) = call.phase.clone() else { return };
        match (kinship, purpose) {
            (Kinship::Child | Kinship::Descendant, Purpose::Register(_)) => self.register(now, id, pid),
            (Kinship::Child | Kinship::Descendant, Purpose::CleanUp(failure)) => {
                // One that was abandoned has an owner again.
                self.abandoned.retain(|&abandoned| abandoned != pid);
                self.actions.push_back(Action::KillProcess(id));
                self.enter(id, Phase::ProcessKilled(failure, kinship), now + self.process_exit_wait());
                self.look_again();
            }
            (Kinship::None, purpose) => self.drain(now, id, purpose.refused(Failure::NotOurs(pid))),
        }
    }

    /// The process that [`Action::KillProcess`] was about is gone and reaped.
    pub fn handle_process_exit(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.call(id) else { return };
        if let Phase::ProcessKilled(failure, _) = call.phase.clone() {
            call.process = None;
            self.drain(now, id, failure);
        }
    }

    pub(super) fn handle_call_timeout(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.call(id) else { return };
        match call.phase.clone() {
            Phase::Running => {
                let limit = call.runtime_timeout;
                self.kill_runtime(now, id, Failure::TimedOut(limit));
            }
            Phase::Failing(failure) => self.kill_runtime(now, id, failure),
            Phase::RuntimeKilled(failure) => {
                if let Some(runtime) = call.runtime.take() {
                    self.abandoned.push(runtime);
                    self.actions.push_back(Action::AbandonRuntime(id));
                }
                self.clean_up(id, failure);
            }
            Phase::AwaitingTerminal => self.clean_up(id, Failure::NoTerminal),
            Phase::ProcessKilled(failure, kinship) => {
                if let Some(process) = call.process.take_if(|_| kinship == Kinship::Child) {
                    self.abandoned.push(process);
                }
                self.actions.push_back(Action::AbandonProcess(id));
                self.drain(now, id, failure);
            }
            Phase::Draining(failure) => self.fail(id, failure),
            Phase::Reading(_) | Phase::Examining(..) => {}
        }
    }

    /// The shutdown waits no longer for calls (R19): each ends within STOP_BUDGET from now on (R21).
    pub(super) fn stop_calls(&mut self, now: Instant) {
        for id in self.calls.iter().map(|call| call.id).collect::<Vec<_>>() {
            let Some(call) = self.call(id) else { continue };
            match call.phase.clone() {
                Phase::Running => self.kill_runtime(now, id, Failure::ShuttingDown),
                Phase::Failing(failure) => self.kill_runtime(now, id, failure),
                Phase::AwaitingTerminal => self.clean_up(id, Failure::ShuttingDown),
                Phase::RuntimeKilled(_) => self.bring_forward(Timer::Call(id), now + self.runtime_exit_wait()),
                Phase::ProcessKilled(..) => self.bring_forward(Timer::Call(id), now + self.process_exit_wait()),
                Phase::Draining(_) => self.bring_forward(Timer::Call(id), now + self.output_wait()),
                Phase::Reading(_) | Phase::Examining(..) => {}
            }
        }
    }

    /// The shutdown is over: whoever waits for a call is told.
    pub(super) fn fail_calls(&mut self) {
        while let Some(call) = self.calls.first() {
            let failure = call.phase.failure().unwrap_or(Failure::ShuttingDown);
            self.fail(call.id, failure);
        }
    }

    fn runtime_exit_wait(&self) -> Duration {
        if self.calls_are_stopped() { self.timing.stopped_exit_wait } else { self.timing.runtime_grace }
    }

    fn process_exit_wait(&self) -> Duration {
        if self.calls_are_stopped() { self.timing.stopped_process_wait() } else { self.timing.runtime_grace }
    }

    fn output_wait(&self) -> Duration {
        if self.calls_are_stopped() { self.timing.stopped_output_wait } else { self.timing.runtime_grace }
    }

    fn enter(&mut self, id: CallId, phase: Phase, until: Instant) {
        self.deadlines.set(Timer::Call(id), until);
        self.set_phase(id, phase);
    }

    fn kill_runtime(&mut self, now: Instant, id: CallId, failure: Failure) {
        self.actions.push_back(Action::KillRuntime(id));
        self.enter(id, Phase::RuntimeKilled(failure), now + self.runtime_exit_wait());
    }

    /// Looks for what the runtime of a failed call left (R15).
    fn clean_up(&mut self, id: CallId, failure: Failure) {
        self.look_up(id, Purpose::CleanUp(failure));
    }

    fn look_up(&mut self, id: CallId, purpose: Purpose) {
        self.deadlines.cancel(Timer::Call(id));
        self.set_phase(id, Phase::Reading(purpose));
        self.actions.push_back(Action::ReadPidFile(id));
    }

    /// The call failed and has nothing left to claim: it lets go of its PIDs, and hears the runtime's helpers out.
    fn drain(&mut self, now: Instant, id: CallId, failure: Failure) {
        let Some(call) = self.call(id) else { return };
        let let_go = call.process.take().is_some();
        if call.output_closed {
            self.fail(id, failure);
        } else {
            self.enter(id, Phase::Draining(failure), now + self.output_wait());
            if let_go { self.look() } else { self.look_again() }
        }
    }

    /// The end of a call that went well: its process passes from the call to its registration in one step, so that
    /// it is claimed at every moment.
    fn register(&mut self, now: Instant, id: CallId, pid: Pid) {
        let Some(call) = self.end_call(id) else { return };
        self.add_child(now, &call, pid);
        // What was left alone for this call is no longer (R4).
        self.look_again();
    }

    fn fail(&mut self, id: CallId, failure: Failure) {
        self.end_call(id);
        self.report(Outcome::Failed { call: id, failure });
        // What the runtime left behind, its helpers among them, has no owner now (R7).
        self.look();
        self.go_on_shutting_down();
    }

    fn end_call(&mut self, id: CallId) -> Option<Call> {
        self.deadlines.cancel(Timer::Call(id));
        let position = self.calls.iter().position(|call| call.id == id)?;
        let call = self.calls.remove(position);
        self.sweep.forget_reaped_before(self.calls.iter().map(|call| call.id).min());
        Some(call)
    }

    /// The call has a process now, which nobody else reaps.
    fn claim(&mut self, id: CallId, pid: Pid) {
        self.take_from_sweep(pid);
        let Some(call) = self.call(id) else { return };
        if call.process.replace(pid).is_some_and(|before| before != pid) {
            // The file was only half written before; what it named then is let go.
            self.look();
        }
    }

    /// Whether `pid` belongs to a registered child, or is the runtime of another call. What another call holds as its
    /// process is not killed either; but if both would register it, nobody knows whose it is, and the first has it.
    fn is_anothers(&self, id: CallId, pid: Pid, purpose: &Purpose) -> bool {
        let to_be_killed = matches!(purpose, Purpose::CleanUp(_));
        self.children.iter().any(|child| child.pid == Some(pid))
            || self.calls.iter().filter(|call| call.id != id).any(|call| {
                call.runtime == Some(pid)
                    || (call.process == Some(pid) && (to_be_killed || matches!(call.phase, Phase::ProcessKilled(..))))
            })
    }

    fn call(&mut self, id: CallId) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| call.id == id)
    }

    fn set_phase(&mut self, id: CallId, phase: Phase) {
        if let Some(call) = self.call(id) {
            call.phase = phase;
        }
    }
}
