//! What callers and subscribers are told.

use std::collections::BTreeMap;
use std::mem;
use std::time::Instant;

use dunnage_runtime::cgroup::Name;
use dunnage_runtime::generation::{Failure, Left, Outcome, Point, Process, Reply, RequestId, Role};
use log::{info, warn};

use super::Shim;
use crate::control::reply::{
    self, AtGate, AtRecord, Done, Emptied, Event, EventKind, Gate, GatePoint, GenerationEvent, LaunchStarted, Launched,
    Recorded, SidecarStarted, TierLimits,
};
use crate::control::{ConnectionId, Refusal};

/// Who waits for an answer, and in which form.
#[derive(Debug, Default)]
pub(super) struct Callers {
    waiting: BTreeMap<RequestId, (ConnectionId, Kind)>,
    last: u64,
    /// Who waits for the shutdown to be over.
    shutdown: Vec<ConnectionId>,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What was started.
    Start,
    /// The sidecar that was started.
    Sidecar,
    /// That nothing is left.
    Proof,
    /// That it was done.
    Plain,
}

impl Callers {
    pub(super) fn add(&mut self, from: ConnectionId, kind: Kind) -> RequestId {
        self.last += 1;
        let request = RequestId(self.last);
        self.waiting.insert(request, (from, kind));
        request
    }

    /// What a client waits for: one thing at a time.
    pub(super) fn request_of(&self, client: ConnectionId) -> Option<RequestId> {
        self.waiting.iter().find(|(_, (from, _))| *from == client).map(|(&request, _)| request)
    }

    /// The client is gone.
    pub(super) fn forget(&mut self, client: ConnectionId) -> Option<RequestId> {
        self.shutdown.retain(|&caller| caller != client);
        let request = self.request_of(client)?;
        self.waiting.remove(&request);
        Some(request)
    }

    pub(super) fn await_shutdown(&mut self, from: ConnectionId) {
        self.shutdown.push(from);
    }

    pub(super) fn take_shutdown(&mut self) -> Vec<ConnectionId> {
        mem::take(&mut self.shutdown)
    }
}

/// What clients call a role.
pub(super) fn target(role: Role) -> String {
    match role {
        Role::Generation(number) => format!("gen-{number}"),
        Role::Sidecar => "sidecar".to_owned(),
        Role::Worker => "worker".to_owned(),
    }
}

/// Something that happened to a role just now.
pub(super) fn event_of(kind: EventKind, role: Role, build: Option<String>) -> Event {
    let n = match role {
        Role::Generation(number) => Some(number.get()),
        Role::Sidecar | Role::Worker => None,
    };
    let generation = Some(GenerationEvent { n, build, gate: None, message: None });
    Event { target: Some(target(role)), generation, ..Event::now(kind) }
}

impl Shim {
    pub(super) fn report(&mut self, outcome: Outcome, now: Instant) {
        match outcome {
            Outcome::Answer(request, answer) => self.answer(request, answer, now),
            Outcome::Gate { request, token, role, build, point } => {
                let point = match point {
                    Point::Prepared => GatePoint::Prepared,
                    Point::Recorded => GatePoint::Recorded,
                };
                if let Some(&(connection, _)) = self.callers.waiting.get(&request) {
                    let gate = Gate { token: token.0.to_string(), point, build: build.clone() };
                    self.control.ask(connection, &AtGate { gate }, now);
                }
                let mut event = event_of(EventKind::Gate, role, Some(build));
                event.generation = event.generation.map(|its| GenerationEvent { gate: Some(point), ..its });
                self.control.tell(event, now);
            }
            Outcome::Recorded(request) => {
                if let Some(&(connection, _)) = self.callers.waiting.get(&request) {
                    let recorded = self.recorded(request);
                    self.control.go_on(connection, &AtRecord { recorded }, now);
                }
            }
            Outcome::Started(role, Process { pid, .. }) => {
                info!("{role} runs as process {pid}");
                let event = self.event_of_run(EventKind::Started, role);
                self.control.tell(Event { pid: Some(pid), ..event }, now);
            }
            Outcome::Exited(role) => {
                let exit_code = self.runs.get(&role).and_then(|run| run.exit_code);
                let event = self.event_of_run(EventKind::Exited, role);
                self.control.tell(Event { exit_code, ..event }, now);
            }
            Outcome::Ready(number) => self.tell_of(EventKind::Ready, Role::Generation(number), now),
            Outcome::Switched(number) => {
                info!("generation {number} is what clients reach");
                self.tell_of(EventKind::Switched, Role::Generation(number), now);
            }
            Outcome::Killed(role) => {
                info!("{role} was killed, and is gone");
                self.tell_of(EventKind::Killed, role, now);
            }
            Outcome::Adopted(role, occupancy) => info!("of an earlier shim: {role}, {occupancy:?}"),
            Outcome::ShutDown { left } => self.shut_down(&left, now),
        }
    }

    fn tell_of(&mut self, kind: EventKind, role: Role, now: Instant) {
        let event = self.event_of_run(kind, role);
        self.control.tell(event, now);
    }

    fn event_of_run(&self, kind: EventKind, role: Role) -> Event {
        event_of(kind, role, self.generations.record().run(role).map(|run| run.build.clone()))
    }

    fn recorded(&self, request: RequestId) -> Recorded {
        let (role, build) = self.generations.starting_for(request).unwrap_or((Role::Worker, ""));
        let n = match role {
            Role::Generation(number) => Some(number.get()),
            Role::Sidecar | Role::Worker => None,
        };
        Recorded { n, build: build.to_owned() }
    }

    fn answer(&mut self, request: RequestId, answer: Result<Reply, Failure>, now: Instant) {
        // A caller that is gone waits for nothing.
        let Some((connection, kind)) = self.callers.waiting.remove(&request) else { return };
        match answer {
            Ok(Reply::Started { process, .. }) if kind == Kind::Sidecar => {
                self.control.answer(connection, &SidecarStarted { pid: process.pid }, now);
            }
            Ok(Reply::Started { role, process, build }) => {
                let started = self.launched(role, process, build);
                self.control.answer(connection, &LaunchStarted { started }, now);
            }
            Ok(Reply::Gone(_)) => self.control.answer(connection, &Emptied { outcome: reply::Outcome::Gone }, now),
            Ok(Reply::Done) => self.control.answer(connection, &Done {}, now),
            Err(failure) => {
                let refusal = self.refusal(failure, kind);
                self.control.refuse(connection, &refusal, now);
            }
        }
    }

    fn launched(&self, role: Role, process: Process, build: String) -> Launched {
        let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
        let run = self.generations.record().run(role);
        let (n, sockets) = match role {
            Role::Generation(number) => (Some(number.get()), self.config.service.layout.sockets(number)),
            Role::Sidecar | Role::Worker => (None, None),
        };
        Launched {
            target: target(role),
            n,
            build,
            path: self.runs.get(&role).map(|run| text(&run.particulars.path)).unwrap_or_default(),
            digest: run.and_then(|run| run.digest.clone()),
            tier: TierLimits(run.map_or(self.config.service.tier, |run| run.tier)),
            pid: process.pid,
            socket: sockets.as_ref().map(|sockets| text(&sockets.socket)),
            control_socket: sockets.as_ref().map(|sockets| text(&sockets.control)),
        }
    }

    fn refusal(&self, failure: Failure, kind: Kind) -> Refusal {
        match failure {
            Failure::NotFound(target) => Refusal::NotFound { target },
            Failure::Busy(reason) => Refusal::Busy { reason },
            Failure::ShuttingDown => Refusal::ShuttingDown,
            Failure::Refused(reason) => match kind {
                Kind::Start | Kind::Sidecar => Refusal::LaunchRefused { reason },
                Kind::Proof => Refusal::NotSwitchable { reason },
                Kind::Plain => Refusal::Failed { reason },
            },
            Failure::LaunchFailed(reason) => Refusal::LaunchFailed { reason },
            Failure::Unproven(left) => self.unproven_left(&left),
            Failure::StartUncertain(reason) => Refusal::StartUncertain { reason },
            Failure::NoDelegation => Refusal::NoDelegation,
            Failure::NoKill => Refusal::NoKill,
            Failure::NotSwitchable(reason) => Refusal::NotSwitchable { reason },
            failure @ (Failure::Limits(_) | Failure::MemoryInUse { .. } | Failure::Record(_)) => {
                Refusal::Failed { reason: failure.to_string() }
            }
        }
    }

    /// Names what is left, by PID as far as they are known now.
    pub(super) fn unproven_left(&self, left: &[Left]) -> Refusal {
        let mut pids = Vec::new();
        for left in left {
            match left {
                Left::Leader(pid) => pids.push(*pid),
                Left::Cgroup(cgroup, _) => pids.extend(self.pids_in(cgroup)),
                Left::Starting(_) => {}
            }
        }
        pids.sort_unstable();
        pids.dedup();
        let reason: Vec<String> = left.iter().map(ToString::to_string).collect();
        warn!("not proven gone: {}", reason.join("; "));
        Refusal::Unproven { left: pids, reason: Some(reason.join("; ")) }
    }

    fn pids_in(&self, cgroup: &Name) -> Vec<i32> {
        let Ok(parent) = self.cgroups.parent() else { return Vec::new() };
        let child = parent.child(cgroup).ok().flatten();
        child
            .map(|child| child.left().processes.iter().map(|process| process.pid.as_raw()).collect())
            .unwrap_or_default()
    }
}
