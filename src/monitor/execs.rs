//! Execs of the control socket's clients, from the call of the runtime to the answer.
//!
//! What the loop calls is not inlined into it, as `Monitor::serve` is not.

use std::time::{Duration, Instant};

use dunnage_runtime::driver::{RuntimeCall, StartError};
use dunnage_runtime::event_loop::Event;
use dunnage_runtime::privileges;
use dunnage_runtime::reaper::{CallId, CallSpec, ChildId, Failure, Job, Timeout};
use dunnage_runtime::sys::{Environment, Program, Ties};
use log::{info, warn};
use nix::unistd::Pid;

use super::service::IDLE;
use super::{Monitor, Phase, failure_text};
use crate::cli::Stdio;
use crate::control::reply::{
    Event as ShimEvent, EventKind, ExecExited, ExecStarted, Executed, ExitedExec, StartedExec,
};
use crate::control::{ConnectionId, Refusal};
use crate::exec::{Caller, Capture, Exec, Order, State, borrowed};
use crate::source::{ExecId, RelaySource};
use crate::start::{Console, exec_args};

impl Monitor {
    /// Has the runtime start a process in the container.
    pub(super) fn start_exec(
        &mut self,
        order: &Order<'_>,
        timeout: Option<Duration>,
        now: Instant,
    ) -> Result<(), Refusal> {
        match self.phase {
            Phase::Running(_) if !self.driver.is_shutting_down() => {}
            Phase::Running(_) | Phase::Ending(_) => return Err(Refusal::ShuttingDown),
            _ => return Err(Refusal::Busy { reason: "the container is not there yet".to_owned() }),
        }
        let (Some(service), Some(socket)) = (&mut self.service, &self.config.control_socket) else { return Ok(()) };
        let id = service.execs.admit(order.max_output).map_err(|reason| Refusal::Busy { reason })?;
        let stall_timeout = self.config.attach.stall_timeout;
        // For its directory and its socket.
        let _raised = privileges::raise();
        let launch_failed = |reason: String| Refusal::LaunchFailed { reason };
        let (mut exec, stdio) = Exec::prepare(&self.event_loop, id, order, socket, stall_timeout)
            .map_err(|error| launch_failed(error.to_string()))?;
        let console_path = exec.console.as_ref().map(Console::path);
        let runtime = &self.config.runtime;
        let program = Program {
            path: runtime.path.as_os_str(),
            args: exec_args(&self.config, &exec.process_path(), &exec.pid_file(), console_path.as_deref()),
            stdio: borrowed(&stdio),
            ties: Ties::OwnGroupDiesWithParent,
            mask: self.signals.original_mask(),
            oom_score_adj: self.oom_score.original,
            environment: Environment::Inherited,
        };
        let spec = CallSpec {
            job: Job::Exec,
            terminal: order.stdio == Stdio::Terminal,
            main: false,
            timeout: timeout.map(Timeout::SinceRequest),
        };
        let call = RuntimeCall { program, pid_file: exec.pid_file(), spec };
        let started = self.driver.start_call(&self.event_loop, now, call);
        let result = match started {
            Ok(call) => {
                exec.state = State::Starting { call };
                Ok(())
            }
            Err(StartError::ShuttingDown) => Err(Refusal::ShuttingDown),
            Err(StartError::Spawn(error)) => {
                Err(launch_failed(format!("cannot start the runtime {}: {error}", runtime.path.display())))
            }
        };
        service.execs.add(exec);
        if result.is_err() {
            service.execs.remove(&self.event_loop, id);
        }
        result
    }

    /// Something that the exec's relay watches has an event.
    #[inline(never)]
    pub(super) fn handle_exec_relay(&mut self, id: ExecId, event: Event<RelaySource>, now: Instant) {
        let Some(exec) = self.service.as_mut().and_then(|service| service.execs.get_mut(id)) else { return };
        exec.relay.handle(&self.event_loop, &mut exec.capture, event, now);
        let State::Starting { call } = exec.state else { return };
        if exec.relay.is_held_up() {
            // Of what the runtime says, no amount may keep it from its work (R13).
            exec.relay.await_nobody(&self.event_loop, &exec.capture);
        }
        if exec.relay.output_closed() {
            self.driver.handle_output_closed(&self.event_loop, now, call);
        }
    }

    pub(super) fn accept_exec_console(&mut self, id: ExecId, now: Instant) {
        let Some(exec) = self.service.as_mut().and_then(|service| service.execs.get_mut(id)) else { return };
        let Some(console) = &mut exec.console else { return };
        if let Err(error) = console.accept(&self.event_loop) {
            warn!("cannot accept the runtime's connection to the console socket of {id}: {error}");
            if let State::Starting { call } = exec.state {
                self.driver.handle_terminal_failed(&self.event_loop, now, call);
            }
        }
    }

    pub(super) fn receive_exec_terminal(&mut self, id: ExecId, now: Instant) {
        let Some(exec) = self.service.as_mut().and_then(|service| service.execs.get_mut(id)) else { return };
        let Some(connected) = exec.receive_terminal(&self.event_loop) else { return };
        let State::Starting { call } = exec.state else { return };
        if connected {
            self.driver.handle_terminal_connected(&self.event_loop, now, call);
        } else {
            self.driver.handle_terminal_failed(&self.event_loop, now, call);
        }
    }

    /// A call that is not the container's has come to its process.
    #[inline(never)]
    pub(super) fn exec_started(&mut self, call: CallId, child: ChildId, pid: Pid, now: Instant) {
        let exec = self.service.as_mut().and_then(|service| service.execs.by_call(call));
        let Some(exec) = exec else {
            // Whoever wanted it is not served any more.
            return self.driver.cancel_child(&self.event_loop, now, child);
        };
        exec.begin(&self.event_loop, child, pid);
        let (id, caller, socket, cancelled) = (exec.id, exec.caller, exec.socket(), exec.cancelled);
        info!("{id} is process {pid}");
        if cancelled {
            self.driver.cancel_child(&self.event_loop, now, child);
        }
        if let (Some(service), Caller::Stream { connection }) = (&mut self.service, caller) {
            let socket = socket.to_string_lossy().into_owned();
            let started = StartedExec { exec_id: id.to_string(), pid: pid.as_raw(), socket };
            service.control.go_on(connection, &ExecStarted { started }, now);
        }
        let event = ShimEvent::now(EventKind::Started);
        self.tell(ShimEvent { target: Some(id.to_string()), pid: Some(pid.as_raw()), ..event }, now);
    }

    /// A call that is not the container's has failed.
    #[inline(never)]
    pub(super) fn exec_failed(&mut self, call: CallId, failure: &Failure, now: Instant) {
        let Some(service) = &mut self.service else { return };
        let Some(exec) = service.execs.by_call(call) else { return };
        exec.relay.drain(&self.event_loop, &mut exec.capture, now);
        let (id, caller, stderr) = (exec.id, exec.caller, exec.relay.take_stderr_tail());
        info!("{id} was not started: {failure}");
        service.execs.remove(&self.event_loop, id);
        if let Some(connection) = caller.connection() {
            service.control.refuse(connection, &refusal(failure, stderr), now);
        }
    }

    /// The process of an exec has ended.
    #[inline(never)]
    pub(super) fn exec_ended(&mut self, child: ChildId, exit_code: i32, timed_out: bool, now: Instant) {
        let Some(service) = &mut self.service else { return };
        let Some(exec) = service.execs.by_child(child) else { return };
        service.idle = Some(now + IDLE);
        let State::Running { pid, .. } = exec.state else { return };
        exec.end(&self.event_loop, now);
        // One that was cancelled had no time of its own.
        let timed_out = timed_out && !exec.cancelled;
        let (name, caller) = (exec.id.to_string(), exec.caller);
        exec.caller = Caller::Gone;
        match caller {
            Caller::Sync { connection, .. } => {
                let (id, output) = (exec.id, exec.capture.take());
                // With the answer all of it is gone.
                service.execs.remove(&self.event_loop, id);
                service.control.answer_executed(connection, &Executed { exit_code, timed_out }, output, now);
            }
            Caller::Stream { connection } => {
                let exited = ExitedExec { exec_id: name.clone(), exit_code, timed_out };
                service.control.answer(connection, &ExecExited { exited }, now);
            }
            Caller::Gone => {}
        }
        let kind = if timed_out { EventKind::TimedOut } else { EventKind::Exited };
        let (target, pid, exit_code) = (Some(name), Some(pid.as_raw()), Some(exit_code));
        service.control.tell(ShimEvent { target, pid, exit_code, ..ShimEvent::now(kind) }, now);
    }

    /// A client is gone: what only it waits for ends, if it asked so, and nothing else (K3).
    pub(super) fn forget_caller(&mut self, client: ConnectionId, now: Instant) {
        let Some(service) = &mut self.service else { return };
        let execs = service.execs.iter_mut();
        for exec in execs.filter(|exec| exec.caller.connection() == Some(client)) {
            let cancels = matches!(exec.caller, Caller::Sync { cancel_on_disconnect: true, .. });
            exec.caller = Caller::Gone;
            exec.capture = Capture::new(0);
            exec.relay.await_nobody(&self.event_loop, &exec.capture);
            if cancels {
                exec.cancelled = true;
                if let Some(child) = exec.child() {
                    self.driver.cancel_child(&self.event_loop, now, child);
                }
            }
        }
    }

    /// The container is over: so is what runs beside it. Whether there is something that was not cancelled before.
    pub(super) fn cancel_execs(&mut self, now: Instant) -> bool {
        let Some(service) = &mut self.service else { return false };
        let mut found = false;
        for exec in service.execs.iter_mut().filter(|exec| !exec.cancelled && exec.is_alive()) {
            found = true;
            exec.cancelled = true;
            if let Some(child) = exec.child() {
                self.driver.cancel_child(&self.event_loop, now, child);
            }
        }
        found
    }

    /// Lets go of execs that are done with.
    pub(super) fn settle_execs(&mut self, now: Instant) {
        if let Some(service) = &mut self.service {
            service.execs.settle(&self.event_loop, now);
        }
    }
}

/// Why there is no process, as the caller is told (K4).
fn refusal(failure: &Failure, stderr: Vec<u8>) -> Refusal {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    match failure {
        Failure::Runtime(status) => Refusal::Runtime { exit_code: status.code(), stderr: text(stderr) },
        Failure::ShuttingDown => Refusal::ShuttingDown,
        Failure::TimedOut(_) | Failure::NoTerminal => {
            Refusal::LaunchFailed { reason: text(failure_text(failure, stderr)) }
        }
        Failure::NoPid | Failure::InvalidPid(_) | Failure::NotOurs(_) | Failure::Swept(_) => {
            Refusal::StartUncertain { reason: text(failure_text(failure, stderr)) }
        }
    }
}
