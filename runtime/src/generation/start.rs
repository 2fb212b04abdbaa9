//! One start: from the request until its process runs, or nothing does (G3 to G7).

use crate::cgroup::Name;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::record::{Progress, Run};
use super::types::{
    Failure, Launch, Launched, Layout, Opened, Outcome, Point, Process, Reply, RequestId, Role, Source, StartId,
    Target, Token,
};
use super::writes::Then;
use super::{Action, Generations, Number, Tier, Timer, refused};

/// How long a worker that is replaced has to be proven gone.
const REPLACE_LIMIT: Duration = Duration::from_secs(10);

/// A start in progress.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) id: StartId,
    pub(super) role: Role,
    pub(super) source: Source,
    /// Who asked for it. Nobody asks for a sidecar that is started again.
    pub(super) request: Option<RequestId>,
    pub(super) gate: Option<Duration>,
    pub(super) phase: Phase,
    /// Its cgroup is made.
    prepared: bool,
}

/// How far a start is.
#[derive(Debug)]
pub(super) enum Phase {
    /// The program is opened and checked.
    Opening,
    /// The caller is asked.
    Asking { opened: Opened, point: Point, token: Token },
    /// The worker before it is stopped (G32).
    Replacing(Opened),
    /// Its cgroup is made.
    Preparing(Opened),
    /// The pending record is written: the number is used up.
    Recording(Opened),
    /// It is about to run, and cannot be held back any more.
    Launching,
}

impl Start {
    /// Whether nothing of it was executed yet.
    pub(super) fn is_cancellable(&self) -> bool {
        !matches!(self.phase, Phase::Launching)
    }

    /// Whether it is in the record.
    fn is_recorded(&self) -> bool {
        matches!(self.phase, Phase::Recording(_) | Phase::Asking { point: Point::Recorded, .. } | Phase::Launching)
    }
}

impl Generations {
    pub(super) fn start(&mut self, request: RequestId, launch: Launch) -> Result<(), Failure> {
        self.check_startable()?;
        match launch.target {
            Target::Generation(number) => self.check_number(number)?,
            Target::Worker { replace } => self.check_worker(replace)?,
        }
        let Launch { target, source, tier, gate } = launch;
        self.open(Some(request), target.role(), source, tier, gate);
        Ok(())
    }

    /// Whether anything may be started now.
    pub(super) fn check_startable(&self) -> Result<(), Failure> {
        if self.shutdown.is_some() {
            return Err(Failure::ShuttingDown);
        }
        if !self.adopting.is_empty() {
            return Err(Failure::Busy("what an earlier shim has left is still looked at".into()));
        }
        match &self.layout {
            Layout::Barred(reason) => refused(reason),
            Layout::Unit => Err(Failure::NotSwitchable("a systemd unit owns the processes".into())),
            Layout::Overlapping | Layout::Foreign(_) => Ok(()),
        }
    }

    fn check_number(&self, number: Number) -> Result<(), Failure> {
        if self.start_of(Role::Generation(number)).is_some() {
            return Err(Failure::Busy(format!("generation {number} is being started")));
        }
        if self.record.refused.contains(&number) {
            return refused(format!("generation {number} was refused before; its number is used up"));
        }
        if self.record.is_used(number) {
            return refused(format!("the number of generation {number} is used up"));
        }
        let starting = self.starts.iter().any(|start| matches!(start.role, Role::Generation(_)));
        if matches!(self.layout, Layout::Foreign(_)) && (starting || !self.record.generations.is_empty()) {
            return Err(Failure::Busy("in this layout one generation runs at a time".into()));
        }
        Ok(())
    }

    fn check_worker(&self, replace: bool) -> Result<(), Failure> {
        let busy = |what: &str| Err(Failure::Busy(format!("a worker {what}")));
        if self.start_of(Role::Worker).is_some() {
            return busy("is being started");
        }
        if self.evictions.contains_key(&Role::Worker) {
            return busy("is being stopped");
        }
        if self.record.worker.is_some() && !replace {
            return busy("runs, or has left something");
        }
        Ok(())
    }

    pub(super) fn open(
        &mut self,
        request: Option<RequestId>,
        role: Role,
        source: Source,
        tier: Option<Tier>,
        gate: Option<Duration>,
    ) {
        let id = StartId(self.take_number());
        self.actions.push_back(Action::Open { start: id, role, source: source.clone(), tier });
        self.starts.push(Start { id, role, source, request, gate, phase: Phase::Opening, prepared: false });
    }

    /// The answer to [`Action::Open`].
    pub fn handle_opened(&mut self, now: Instant, id: StartId, result: Result<Opened, Failure>) {
        let Some(role) =
            self.find_start(id).filter(|start| matches!(start.phase, Phase::Opening)).map(|start| start.role)
        else {
            return;
        };
        match result {
            Err(failure) => self.fail_start(now, id, failure),
            // Hold and gate come before the worker that runs is stopped (G32).
            Ok(opened) if self.record.run(role).is_some() => self.ask(now, id, opened, Point::Prepared),
            Ok(opened) => self.prepare(id, opened),
        }
    }

    fn prepare(&mut self, id: StartId, opened: Opened) {
        let Some(start) = self.find_start_mut(id) else { return };
        let action = Action::Prepare(id, start.role, opened.tier);
        start.phase = Phase::Preparing(opened);
        self.actions.push_back(action);
    }

    /// The answer to [`Action::Prepare`].
    pub fn handle_prepared(&mut self, now: Instant, id: StartId, result: Result<(), Failure>) {
        let Some(start) = self.find_start_mut(id) else { return };
        let Phase::Preparing(opened) = &start.phase else { return };
        let opened = opened.clone();
        start.prepared = true;
        match result {
            Err(failure) => self.fail_start(now, id, failure),
            Ok(()) => self.ask(now, id, opened, Point::Prepared),
        }
    }

    /// The caller agrees, or was not to be asked. The build may have been held meanwhile.
    pub(super) fn go_on_after_gate(&mut self, now: Instant, id: StartId) {
        let Some(start) = self.find_start(id) else { return };
        let Phase::Asking { opened, point, .. } = &start.phase else { return };
        let (opened, point, role, prepared) = (opened.clone(), *point, start.role, start.prepared);
        if let Some(reason) = self.held(&start.source, &opened.build) {
            return self.fail_start(now, id, Failure::Refused(reason));
        }
        match point {
            Point::Prepared if prepared => self.record_pending(id, opened),
            Point::Prepared if self.record.run(role).is_some() => self.replace(now, id, opened),
            Point::Prepared => self.prepare(id, opened),
            Point::Recorded => self.launch(id, role),
        }
    }

    fn replace(&mut self, now: Instant, id: StartId, opened: Opened) {
        if let Some(start) = self.find_start_mut(id) {
            start.phase = Phase::Replacing(opened);
            self.deadlines.set(Timer::Replace(id), now + REPLACE_LIMIT);
            self.start_kill(now, Role::Worker);
        }
    }

    /// What was to be replaced is proven gone.
    pub(super) fn go_on_replacing(&mut self) {
        let replacing = self.starts.iter().find_map(|start| match &start.phase {
            Phase::Replacing(opened) => Some((start.id, opened.clone())),
            _ => None,
        });
        if let Some((id, opened)) = replacing {
            self.deadlines.cancel(Timer::Replace(id));
            self.prepare(id, opened);
        }
    }

    pub(super) fn handle_replace_timeout(&mut self, now: Instant, id: StartId) {
        let left = self.left(Role::Worker);
        self.fail_start(now, id, Failure::Unproven(left));
    }

    fn record_pending(&mut self, id: StartId, opened: Opened) {
        let Some(start) = self.find_start_mut(id) else { return };
        let role = start.role;
        let staged = match &start.source {
            Source::Staged { path, .. } | Source::Sidecar { path, .. } => Some(path.clone()),
            Source::Live { .. } => None,
        };
        let run = Run {
            build: opened.build.clone(),
            staged,
            digest: opened.digest.clone(),
            tier: opened.tier,
            progress: Progress::Pending,
            cgroups: vec![Name::of(role)],
            unmarked: BTreeSet::new(),
        };
        start.phase = Phase::Recording(opened);
        self.record.begin(role, run);
        self.save_then(Then::Ask(id));
    }

    /// The pending record is written, or was not: then the number is free.
    pub(super) fn handle_pending_recorded(&mut self, now: Instant, id: StartId, result: Result<(), String>) {
        let Some(start) = self.find_start(id) else { return };
        let Phase::Recording(opened) = &start.phase else { return };
        let (opened, role, request) = (opened.clone(), start.role, start.request.filter(|_| start.gate.is_some()));
        match result {
            Ok(()) => {
                if let Some(request) = request {
                    self.report(Outcome::Recorded(request));
                }
                self.ask(now, id, opened, Point::Recorded);
            }
            Err(error) => {
                self.record.withdraw(role);
                self.save();
                let Some(start) = self.take_start(id) else { return };
                let failure = Failure::Refused(format!("the record could not be written: {error}"));
                self.abandon_start(now, &start, failure, false);
            }
        }
    }

    fn launch(&mut self, id: StartId, role: Role) {
        if let Some(start) = self.find_start_mut(id) {
            start.phase = Phase::Launching;
            self.actions.push_back(Action::Launch(id, role));
        }
    }

    /// The answer to [`Action::Launch`].
    pub fn handle_launched(&mut self, now: Instant, id: StartId, launched: Launched) {
        if self.find_start(id).is_none_or(Start::is_cancellable) {
            return;
        }
        let Some(start) = self.take_start(id) else { return };
        match launched {
            Launched::Running(process) => self.finish_start(now, &start, process),
            Launched::Nothing(reason) => self.fail_launch(now, &start, reason),
            Launched::Uncertain(reason) => {
                if let Some(request) = start.request {
                    self.answer(request, Err(Failure::StartUncertain(reason)));
                }
                if start.role == Role::Sidecar {
                    self.clear_sidecar(now, start.request.is_some());
                }
            }
        }
        // What was found in its cgroup before is out of date.
        if self.evictions.contains_key(&start.role) {
            self.start_kill(now, start.role);
        }
        self.join_shutdown(now, start.role);
    }

    fn finish_start(&mut self, now: Instant, start: &Start, process: Process) {
        let Some(run) = self.record.run_mut(start.role) else { return };
        run.progress = Progress::Running(process);
        let build = run.build.clone();
        if start.role == Role::Sidecar {
            self.backoff.begin_life(now);
        }
        self.report(Outcome::Started(start.role, process));
        match start.request {
            Some(request) => {
                self.save_then(Then::Started(request, Reply::Started { role: start.role, process, build }));
            }
            None => self.save(),
        }
    }

    /// Nothing ran, and the number is used up.
    fn fail_launch(&mut self, now: Instant, start: &Start, reason: String) {
        self.actions.push_back(Action::Discard(start.id, start.role));
        if self.evictions.contains_key(&start.role) {
            // Others wait for a proof.
            if let Some(run) = self.record.run_mut(start.role) {
                run.progress = Progress::Exited;
            }
        } else {
            self.record.end(start.role);
        }
        self.answer_start(start, Failure::LaunchFailed(reason), true);
        if start.role == Role::Sidecar {
            self.sidecar_failed(now, start.request.is_some());
        }
    }

    /// Ends a start of which nothing was executed.
    pub(super) fn fail_start(&mut self, now: Instant, id: StartId, failure: Failure) {
        if self.find_start(id).is_some_and(Start::is_cancellable)
            && let Some(start) = self.take_start(id)
        {
            let recorded = start.is_recorded() && !self.writes.is_unwritten(id);
            if recorded {
                self.record.refuse(start.role);
            } else if start.is_recorded() {
                self.record.withdraw(start.role);
            }
            self.abandon_start(now, &start, failure, recorded);
        }
    }

    fn abandon_start(&mut self, now: Instant, start: &Start, failure: Failure, recorded: bool) {
        self.actions.push_back(Action::Discard(start.id, start.role));
        self.answer_start(start, failure, recorded);
        if start.role == Role::Sidecar {
            self.sidecar_failed(now, start.request.is_some());
        }
    }

    fn answer_start(&mut self, start: &Start, failure: Failure, recorded: bool) {
        match start.request {
            Some(request) if recorded => self.save_then(Then::Answer(request, Err(failure))),
            Some(request) => self.answer(request, Err(failure)),
            None if recorded => self.save(),
            None => {}
        }
    }

    fn take_start(&mut self, id: StartId) -> Option<Start> {
        let position = self.starts.iter().position(|start| start.id == id)?;
        self.deadlines.cancel(Timer::Gate(id));
        self.deadlines.cancel(Timer::Replace(id));
        Some(self.starts.remove(position))
    }

    /// Whether something may be executed in that role at any moment.
    pub(super) fn is_launching(&self, role: Role) -> bool {
        self.start_of(role).is_some_and(|start| !start.is_cancellable())
    }

    pub(super) fn start_of(&self, role: Role) -> Option<&Start> {
        self.starts.iter().find(|start| start.role == role)
    }

    pub(super) fn find_start(&self, id: StartId) -> Option<&Start> {
        self.starts.iter().find(|start| start.id == id)
    }

    pub(super) fn find_start_mut(&mut self, id: StartId) -> Option<&mut Start> {
        self.starts.iter_mut().find(|start| start.id == id)
    }
}
