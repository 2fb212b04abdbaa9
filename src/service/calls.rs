//! What clients of the control socket ask for.

use std::path::Path;
use std::time::Instant;

use dunnage_runtime::cgroup::Name;
use dunnage_runtime::generation::{self, Number, Role, Source as Origin, Target, Token};
use dunnage_runtime::reaper::ChildId;
use log::info;
use nix::sys::signal::Signal;

use super::Shim;
use super::answers::Kind;
use crate::control::reply::{Description, Done, Emptied, Info, LaidOut, LayoutKind, Outcome, Paths};
use crate::control::{self, ConnectionId, GateAnswer, GenerationRequest, Incoming, Launch, Refusal, Request};
use crate::generations::{BarKind, Layout};
use crate::rounds::Owner as _;

impl Shim {
    /// Does what clients ask for, as much as one turn takes.
    pub(super) fn serve(&mut self, now: Instant) {
        while let Some(incoming) = self.control.next(&self.event_loop, now) {
            match incoming {
                Incoming::Message(from, message) => self.handle_message(from, &message, now),
                Incoming::Gone(client) => {
                    self.signallers.forget(client);
                    if let Some(request) = self.callers.forget(client) {
                        self.generations.handle_caller_gone(now, request);
                    }
                }
                Incoming::AnsweredOwnGate(client) => {
                    if let Some(request) = self.callers.request_of(client) {
                        self.generations.handle_caller_spoke(now, request);
                    }
                }
            }
            self.settle(now);
        }
        self.signallers.answer(&mut self.driver, &mut self.control, now);
    }

    fn handle_message(&mut self, from: ConnectionId, message: &[u8], now: Instant) {
        let Some(call) = control::parse(message) else { return self.control.close_connection(from) };
        if call.oneway {
            self.control.expect_no_answer(from);
        }
        if let Err(refusal) = call.request.and_then(|request| self.carry_out_request(from, request, now)) {
            self.control.refuse(from, &refusal, now);
        }
    }

    /// Answers, or has it answered later.
    fn carry_out_request(&mut self, from: ConnectionId, request: Request<'_>, now: Instant) -> Result<(), Refusal> {
        match request {
            Request::GetInfo => self.control.answer(from, &Info::new(), now),
            Request::GetInterfaceDescription(interface) => {
                let description = control::description_of(interface)?;
                self.control.answer(from, &Description { description }, now);
            }
            Request::Status => {
                let status = self.status(now);
                self.control.answer(from, &status, now);
            }
            Request::Signal { target, signal, all } => self.signal(from, target, signal, all, now)?,
            Request::ReopenLogs => {
                self.output.log.reopen();
                self.control.answer(from, &Done {}, now);
            }
            Request::Events => self.control.subscribe(from, now),
            Request::Shutdown { timeout } => {
                self.begin_shutdown(timeout, now).map_err(|_| Refusal::invalid("timeout_ms"))?;
                info!("a client asks for a shutdown within {timeout:?}");
                self.callers.await_shutdown(from);
            }
            Request::ExecSync(_) | Request::Exec(_) => {
                let reason = "this shim has a service in generations, and no container to execute in";
                return Err(Refusal::NotSwitchable { reason: reason.to_owned() });
            }
            Request::Resize { target, .. } | Request::CloseStdin { target } => {
                // What runs has neither terminal nor stdin.
                return Err(match self.leader_of(&target) {
                    Some(_) => Refusal::invalid("target"),
                    None => Refusal::NotFound { target },
                });
            }
            Request::Generations(request) => self.carry_out_generations(from, request, now)?,
        }
        Ok(())
    }

    fn carry_out_generations(
        &mut self,
        from: ConnectionId,
        request: GenerationRequest,
        now: Instant,
    ) -> Result<(), Refusal> {
        use GenerationRequest as Asked;
        use generation::Request as Wanted;
        let kill = |role, timeout| (Kind::Proof, Wanted::Kill(role, timeout));
        let empty = |role, timeout| (Kind::Proof, Wanted::Empty(role, timeout));
        let (kind, wanted) = match request {
            Asked::Layout => {
                let laid_out = self.laid_out();
                self.control.answer(from, &laid_out, now);
                return Ok(());
            }
            Asked::Paths(number) => {
                let paths = self.paths(number);
                self.control.answer(from, &paths, now);
                return Ok(());
            }
            Asked::AnswerGate { token, answer } => {
                self.answer_gate(&token, answer, now)?;
                self.control.answer(from, &Done {}, now);
                return Ok(());
            }
            Asked::Stage { number, build, path, launch } => {
                start(Target::Generation(number), &launch, |digest| Origin::Staged { build, path, digest })
            }
            Asked::Start { number, build, launch } => {
                start(Target::Generation(number), &launch, |digest| Origin::Live { build, digest })
            }
            Asked::StartWorker { build, path: None, replace, launch } => {
                start(Target::Worker { replace }, &launch, |digest| Origin::Live { build, digest })
            }
            Asked::StartWorker { build, path: Some(path), replace, launch } => {
                let build =
                    build.unwrap_or_else(|| path.file_name().unwrap_or_default().to_string_lossy().into_owned());
                start(Target::Worker { replace }, &launch, |digest| Origin::Staged { build, path, digest })
            }
            Asked::StartSidecar(number) => (Kind::Sidecar, Wanted::StartSidecar(number)),
            Asked::Hold { build, reason } => (Kind::Plain, Wanted::Hold { build, reason }),
            Asked::Release { build } => (Kind::Plain, Wanted::Release { build }),
            Asked::Ready(number) => (Kind::Plain, Wanted::Ready(number)),
            Asked::Switch(number) => (Kind::Plain, Wanted::Switch(number)),
            Asked::RaiseParent { incumbent, successor } => (Kind::Plain, Wanted::RaiseParent { incumbent, successor }),
            Asked::RestoreParent(number) => (Kind::Plain, Wanted::RestoreParent(number)),
            Asked::KillGeneration { number, timeout } => kill(Role::Generation(number), timeout),
            Asked::Empty { number, timeout } => empty(Role::Generation(number), timeout),
            Asked::KillHost { timeout } => kill(Role::Worker, timeout),
            Asked::EmptyHost { timeout } => empty(Role::Worker, timeout),
            Asked::KillSidecar { timeout } => kill(Role::Sidecar, timeout),
            Asked::Move { number, cgroup, timeout } => {
                let to = Name::chosen(&cgroup).ok_or(Refusal::invalid("cgroup"))?;
                (Kind::Plain, Wanted::Move { number, to, timeout })
            }
        };
        if let (Layout::Unit, Kind::Proof) = (&self.config.service.layout, kind) {
            self.control.answer(from, &Emptied { outcome: Outcome::NotOurs }, now);
            return Ok(());
        }
        let request = self.callers.add(from, kind);
        self.generations.handle_request(now, request, wanted);
        Ok(())
    }

    fn answer_gate(&mut self, token: &str, answer: GateAnswer, now: Instant) -> Result<(), Refusal> {
        let answer = match answer {
            GateAnswer::Proceed => Ok(()),
            GateAnswer::Refuse { reason } => Err(reason),
        };
        let number = token.parse().map(Token);
        if number.is_ok_and(|token| self.generations.handle_gate_answer(now, token, answer)) {
            Ok(())
        } else {
            Err(Refusal::NotFound { target: format!("gate {token}") })
        }
    }

    fn paths(&self, number: Number) -> Paths {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let sockets = self.config.service.layout.paths(number);
        Paths {
            socket: sockets.as_ref().map(|sockets| text(&sockets.socket)),
            control_socket: sockets.as_ref().map(|sockets| text(&sockets.control)),
        }
    }

    fn laid_out(&self) -> LaidOut {
        let layout = &self.config.service.layout;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        LaidOut {
            layout: layout_kind(layout),
            reason: layout.reason().map(str::to_owned),
            canonical_socket: layout.places().map(|places| text(&places.canonical)),
            cgroup: layout.places().map(|places| text(&places.cgroup)),
        }
    }

    /// The process of a target: `gen-3`, `sidecar`, `worker`.
    fn leader_of(&self, target: &str) -> Option<ChildId> {
        let role = match target {
            "sidecar" => Role::Sidecar,
            "worker" => Role::Worker,
            generation => Role::Generation(Number::new(generation.strip_prefix("gen-")?.parse().ok()?)?),
        };
        self.runs.get(&role)?.leader
    }

    fn signal(
        &mut self,
        from: ConnectionId,
        target: String,
        signal: Signal,
        all: bool,
        now: Instant,
    ) -> Result<(), Refusal> {
        let Some(child) = self.leader_of(&target) else { return Err(Refusal::NotFound { target }) };
        if all {
            let broadcast = self.driver.signal_all(now, child, signal)?;
            self.signallers.add(broadcast, from, target);
        } else {
            self.driver.signal_child(&self.event_loop, now, child, signal);
            self.control.answer(from, &Done {}, now);
        }
        Ok(())
    }
}

/// A start of what `source` makes of the digest that its bytes must have.
fn start(
    target: Target,
    launch: &Launch,
    source: impl FnOnce(Option<String>) -> Origin,
) -> (Kind, generation::Request) {
    let Launch { digest, tier, gate } = *launch;
    let source = source(digest.map(|digest| digest.to_string()));
    (Kind::Start, generation::Request::Start(generation::Launch { target, source, tier, gate }))
}

pub(super) fn layout_kind(layout: &Layout) -> LayoutKind {
    match layout {
        Layout::Flat(_) => LayoutKind::Flat,
        Layout::Nested(..) => LayoutKind::Nested,
        Layout::Foreign(..) => LayoutKind::Foreign,
        Layout::Barred(_, bar) => match bar.kind {
            BarKind::Fenced => LayoutKind::Fenced,
            BarKind::Conflict => LayoutKind::Conflict,
        },
        Layout::Unit => LayoutKind::Unit,
    }
}
