//! What clients of the control socket ask for, and what there is for them.

use std::path::Path;
use std::time::{Duration, Instant};

use dunnage_runtime::event_loop::EventLoop;
use log::info;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::news::Told;
use super::status::Container;
use super::{Monitor, Phase};
use crate::cli::Stdio;
use crate::control::reply::{Description, Done, Info};
use crate::control::{self, ConnectionId, Control, Incoming, Refusal, Request, Signallers};
use crate::error::Result;
use crate::exec::{Caller, Exec, Execs, Order, State as ExecState};
use crate::relay::Relay;
use crate::source::Source;

/// What the container is called as a target.
pub(super) const CONTAINER: &str = "container";

/// Why a container's shim starts, switches and empties no generations.
const NO_GENERATIONS: &str = "this shim serves no generations: they need a shim started with --service";

/// All that there is for the control socket.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) control: Control,
    pub(super) execs: Execs,
    pub(super) container: Container,
    /// Who waits for the shutdown to be over.
    shutdown_callers: Vec<ConnectionId>,
    /// Who waits for a signal to be sent to all.
    pub(super) signallers: Signallers,
    pub(super) told: Told,
    /// When memory is given back.
    pub(super) idle: Option<Instant>,
}

/// How long nothing is asked before what was needed for answers is given back.
pub(super) const IDLE: Duration = Duration::from_secs(1);

impl Service {
    /// Makes the socket.
    pub(super) fn open(event_loop: &EventLoop<Source>, path: &Path) -> Result<Box<Self>> {
        let control = Control::open(event_loop, path, Instant::now())?;
        Ok(Box::new(Self {
            control,
            execs: Execs::default(),
            container: Container::default(),
            shutdown_callers: Vec::new(),
            signallers: Signallers::default(),
            told: Told::default(),
            idle: None,
        }))
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        [self.control.next_timeout(), self.execs.next_timeout(), self.idle, self.told.dropped_again]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn handle_timeout(&mut self, event_loop: &EventLoop<Source>, now: Instant) {
        if self.control.next_timeout().is_some_and(|at| at <= now) {
            self.control.handle_timeout(event_loop, now);
        }
        for exec in self.execs.iter_mut().filter(|exec| exec.relay.next_timeout().is_some_and(|at| at <= now)) {
            exec.relay.handle_timeout(event_loop, &exec.capture, now);
        }
    }
}

impl Monitor {
    /// Does what clients ask for, as much as one turn takes.
    pub(super) fn handle_calls(&mut self, now: Instant) {
        if self.service.is_some() {
            self.serve(now);
        }
    }

    // Inlined into the loop, its frame would take pages of the stack that shims without a control socket never need.
    #[inline(never)]
    fn serve(&mut self, now: Instant) {
        loop {
            let Some(service) = &mut self.service else { return };
            let incoming = service.control.next(&self.event_loop, now);
            if incoming.is_some() {
                service.idle = Some(now + IDLE);
            }
            match incoming {
                None => return,
                Some(Incoming::Message(from, message)) => self.handle_message(from, &message, now),
                Some(Incoming::Gone(client)) => self.forget_client(client, now),
                // Without generations nobody is asked, so this does not come.
                Some(Incoming::AnsweredOwnGate(start)) => service.control.close_connection(start),
            }
        }
    }

    fn handle_message(&mut self, from: ConnectionId, message: &[u8], now: Instant) {
        let call = control::parse(message);
        let Some(service) = &mut self.service else { return };
        let Some(call) = call else { return service.control.close_connection(from) };
        if call.oneway {
            service.control.expect_no_answer(from);
        }
        let done = call.request.and_then(|request| self.carry_out(from, request, now));
        if let (Err(refusal), Some(service)) = (done, &mut self.service) {
            service.control.refuse(from, &refusal, now);
        }
    }

    /// Answers, or has it answered later.
    fn carry_out(&mut self, from: ConnectionId, request: Request<'_>, now: Instant) -> Result<(), Refusal> {
        match request {
            Request::GetInfo => self.answer(from, &Info::new(), now),
            Request::GetInterfaceDescription(interface) => {
                let description = control::description_of(interface)?;
                self.answer(from, &Description { description }, now);
            }
            Request::Status => {
                let status = self.status(now);
                self.answer(from, &status, now);
            }
            Request::ExecSync(asked) => {
                let caller = Caller::Sync { connection: from, cancel_on_disconnect: asked.cancel_on_disconnect };
                let order = Order { process: asked.process, stdio: Stdio::Pipes, max_output: asked.max_output, caller };
                self.start_exec(&order, asked.timeout, now)?;
            }
            Request::Exec(asked) => {
                let stdio = match (asked.terminal, asked.stdin) {
                    (true, _) => Stdio::Terminal,
                    (false, true) => Stdio::PipesWithStdin,
                    (false, false) => Stdio::Pipes,
                };
                let caller = Caller::Stream { connection: from };
                let order = Order { process: asked.process, stdio, max_output: 0, caller };
                self.start_exec(&order, asked.timeout, now)?;
            }
            Request::Signal { target, signal, all } => self.signal(from, target, signal, all, now)?,
            Request::Resize { target, height, width } => {
                let relay = self.relay_of(target)?;
                if relay.stdio() != Stdio::Terminal {
                    return Err(Refusal::invalid("target"));
                }
                relay.resize(height, width);
                self.answer(from, &Done {}, now);
            }
            Request::CloseStdin { target } => {
                self.close_stdin(target)?;
                self.answer(from, &Done {}, now);
            }
            Request::ReopenLogs => {
                self.log.reopen();
                self.answer(from, &Done {}, now);
            }
            Request::Events => {
                if let Some(service) = &mut self.service {
                    service.control.subscribe(from, now);
                }
            }
            Request::Shutdown { timeout } => self.begin_shutdown(from, timeout, now)?,
            Request::Generations(_) => {
                return Err(Refusal::NotSwitchable { reason: NO_GENERATIONS.to_owned() });
            }
        }
        Ok(())
    }

    pub(super) fn answer(&mut self, to: ConnectionId, parameters: &impl serde::Serialize, now: Instant) {
        if let Some(service) = &mut self.service {
            service.control.answer(to, parameters, now);
        }
    }

    pub(super) fn exec_named(&mut self, name: &str) -> Option<&mut Exec> {
        self.service.as_mut()?.execs.by_name(name)
    }

    /// The relay of a target that has not ended.
    fn relay_of(&mut self, target: String) -> Result<&mut Relay, Refusal> {
        if target == CONTAINER {
            return if matches!(self.phase, Phase::Ending(_)) {
                Err(Refusal::NotFound { target })
            } else {
                Ok(&mut self.relay)
            };
        }
        match self.exec_named(&target).filter(|exec| !matches!(exec.state, ExecState::Flushing { .. })) {
            Some(exec) => Ok(&mut exec.relay),
            None => Err(Refusal::NotFound { target }),
        }
    }

    fn close_stdin(&mut self, target: String) -> Result<(), Refusal> {
        // Found once more below: the loop is needed beside the relay.
        self.relay_of(target.clone())?;
        let relay = match &mut self.service {
            Some(service) if target != CONTAINER => {
                service.execs.by_name(&target).map(|exec| &mut exec.relay).ok_or(Refusal::NotFound { target })?
            }
            _ => &mut self.relay,
        };
        if relay.close_stdin(&self.event_loop) { Ok(()) } else { Err(Refusal::invalid("target")) }
    }

    fn begin_shutdown(&mut self, from: ConnectionId, timeout: Duration, now: Instant) -> Result<(), Refusal> {
        let begun = self.driver.handle_shutdown(&self.event_loop, now, timeout);
        begun.map_err(|_| Refusal::invalid("timeout_ms"))?;
        info!("a client asks for a shutdown within {timeout:?}");
        if let Some(service) = &mut self.service {
            service.shutdown_callers.push(from);
        }
        self.hasten_end(now);
        Ok(())
    }

    /// The shutdown is over, but for the processes that are `left`.
    pub(super) fn answer_shutdowns(&mut self, left: &[Pid], now: Instant) {
        let Some(service) = &mut self.service else { return };
        for caller in std::mem::take(&mut service.shutdown_callers) {
            if left.is_empty() {
                service.control.answer(caller, &Done {}, now);
            } else {
                let left = left.iter().map(|pid| pid.as_raw()).collect();
                service.control.refuse(caller, &Refusal::Unproven { left, reason: None }, now);
            }
        }
    }

    /// A client is gone (K3).
    fn forget_client(&mut self, client: ConnectionId, now: Instant) {
        if let Some(service) = &mut self.service {
            service.shutdown_callers.retain(|&caller| caller != client);
            service.signallers.forget(client);
        }
        self.forget_caller(client, now);
    }

    /// Whether clients have all that they are to get before the end, and processes all signals that are on their way.
    pub(super) fn service_flushed(&self) -> bool {
        self.service.as_ref().is_none_or(|service| {
            service.execs.is_empty()
                && service.shutdown_callers.is_empty()
                && service.control.flushed()
                && !self.driver.is_broadcasting()
        })
    }

    /// Whether execs keep a shutdown from being over.
    pub(super) fn awaits_execs(&self) -> bool {
        self.service.as_ref().is_some_and(|service| !service.shutdown_callers.is_empty() || !service.execs.is_empty())
            && self.driver.is_shutting_down()
            && !self.driver.shutdown_is_over()
    }

    /// Gives up the socket, its clients and what still runs for them.
    pub(super) fn close_service(&mut self, now: Instant) {
        let Some(mut service) = self.service.take() else { return };
        for exec in service.execs.iter() {
            if let Some(child) = exec.child() {
                self.driver.signal_child(&self.event_loop, now, child, Signal::SIGKILL);
            }
            if let Some(connection) = exec.caller.connection() {
                service.control.refuse(connection, &Refusal::ShuttingDown, now);
            }
        }
        service.execs.close(&self.event_loop);
        service.control.close(&self.event_loop);
    }
}
