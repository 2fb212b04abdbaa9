//! What must hold in every history, whatever the decider decides. A fault names the rule.

use std::collections::{BTreeMap, BTreeSet};

use super::super::search::Fault;
use super::history::{Ability, Time};
use super::kernel::State;
use super::world::{Begun, Later, World};
use crate::cgroup::Name;
use crate::generation::{
    Action, Effect, Failure, Limit, Number, Occupancy, Outcome, Point, Progress, Record, Reply, Request, RequestId,
    Role, Source, StartId, Target, Token,
};

/// How much later than its deadline an answer may come that waits for the record: two writes of 3 s each.
const SLACK: Time = 7_000;

/// What is remembered for the checks.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) tokens: BTreeMap<Token, (RequestId, Point)>,
    /// Numbers in any write, numbers in one that went well, numbers that were launched.
    tried: BTreeSet<Number>,
    durable: BTreeSet<Number>,
    launched: BTreeSet<Number>,
    /// Numbers whose pending record could not be written, and that are free by that.
    free: BTreeSet<Number>,
    /// What must be out of the record, as nothing was left of it when its leader was reaped.
    forgotten: Option<Role>,
    /// Pending when a shim was gone.
    orphaned: BTreeSet<Number>,
    /// Holds that were confirmed and that nobody asked to release since.
    holds: BTreeSet<String>,
    /// Roles whose end was asked for from this shim, and those that it evicts.
    kill_asked: BTreeSet<Role>,
    evicted: BTreeSet<Role>,
    retired: BTreeMap<Role, Time>,
    switched: BTreeMap<Number, Time>,
    hook_due: Option<Number>,
    adopted: BTreeSet<Role>,
    writing: usize,
    sidecar: Sidecar,
}

/// The sidecar's waits.
#[derive(Debug, Default)]
struct Sidecar {
    began: Option<Time>,
    /// Since when nothing of it is left.
    gone: Option<Time>,
    /// The least that the next wait may be.
    least: Time,
}

macro_rules! must {
    ($holds:expr, $($fault:tt)*) => {
        if !$holds {
            return Err(format!($($fault)*));
        }
    };
}

impl World<'_> {
    pub(super) fn note_asked(&mut self, what: &Request) {
        match what {
            Request::Kill(role, _) => drop(self.checks.kill_asked.insert(*role)),
            Request::Release { build } => drop(self.checks.holds.remove(build)),
            _ => {}
        }
    }

    pub(super) fn note_writing(&mut self) {
        self.checks.writing += 1;
        let written = &self.service.record().generations;
        self.checks.free.retain(|number| !written.contains_key(number));
        self.checks.tried.extend(written.keys());
    }

    pub(super) fn note_written(&mut self, written: &Record, failed: bool) {
        self.checks.writing = 0;
        if !failed {
            self.checks.durable.extend(written.generations.keys());
            return;
        }
        for start in self.starts.values().filter(|start| !start.launched && !start.discarded) {
            if let Role::Generation(number) = start.role
                && written.generations.contains_key(&number)
                && !self.checks.durable.contains(&number)
            {
                self.checks.free.insert(number);
            }
        }
    }

    pub(super) fn note_said(&mut self, token: Token, answer: &Result<(), String>) {
        let Some(&(request, point)) = self.checks.tokens.get(&token) else { return };
        if self.asked[usize::try_from(request.0).unwrap_or(0)].answered {
            return;
        }
        if let Some(start) = self.starts.values_mut().find(|start| start.request == Some(request)) {
            start.said[usize::from(point == Point::Recorded)] = Some(answer.clone());
        }
    }

    pub(super) fn note_exit(&mut self, role: Role) {
        let alone = self.kernel.alive(role).next().is_none();
        let readable = self.history.kernel != Ability::NoDelegation && self.history.faults.other == 0;
        if alone && readable && matches!(role, Role::Generation(_)) {
            self.checks.forgotten = Some(role);
        }
        if role == Role::Sidecar {
            let sidecar = &mut self.checks.sidecar;
            if sidecar.began.take().is_some_and(|began| self.now >= began + 60_000) {
                sidecar.least = 100;
            }
        }
    }

    pub(super) fn note_discard(&mut self, id: StartId, role: Role) {
        self.starts.entry(id).and_modify(|start| start.discarded = true);
        if role == Role::Sidecar {
            self.checks.sidecar.gone = Some(self.now);
        }
    }

    /// What the decider wants done.
    pub(super) fn check_action(&mut self, action: &Action) -> Result<(), Fault> {
        match action {
            Action::Open { role, source, .. } => self.check_open(*role, source),
            Action::Prepare(id, role, _) => self.check_prepare(*id, *role),
            Action::Launch(id, role) => self.check_launch(*id, *role),
            Action::WriteRecord(_) => {
                must!(self.checks.writing == 0, "g29: two writes of the record at once");
                Ok(())
            }
            Action::Evict(role, cgroup) => self.check_evict(*role, cgroup),
            Action::Retire(role, _) => self.check_retire(*role),
            Action::Switch(number) => self.check_switch(*number),
            Action::RunHook(number) => {
                must!(self.checks.hook_due.take() == Some(*number), "g17: a hook without a switch");
                Ok(())
            }
            Action::SetParent { tier, keep_memory_max } => self.check_parent(tier.memory_max, *keep_memory_max),
            Action::Move { number, to, .. } => {
                let named = self.disk.generations.get(number).is_some_and(|run| run.cgroups.contains(to));
                must!(named, "g28: the record does not name {to} before the move");
                must!(!self.checks.evicted.contains(&Role::Generation(*number)), "g28: what is killed is moved");
                Ok(())
            }
            Action::KillLeader(role) | Action::Terminate(role) => {
                must!(self.watched.values().any(|its| its == role), "R9: a signal to what was reaped");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_open(&mut self, role: Role, source: &Source) -> Result<(), Fault> {
        must!(self.disk_roles_are_adopted(), "g29: a start before all is known");
        must!(self.shutdown.is_none(), "r19: a start in a shutdown");
        if let Role::Generation(number) = role {
            must!(!self.checks.durable.contains(&number), "g3: generation {number} is used up and started again");
            let others = self.service.record().generations.len();
            must!(!self.history.foreign || others == 0, "g1: two generations at once");
        }
        if role != Role::Sidecar {
            return Ok(());
        }
        let Some(of) = self.service.record().sidecar.as_ref().map(|sidecar| sidecar.of) else {
            // The first one: it is in the record right after.
            return Ok(());
        };
        let staged = self.service.record().generations.get(&of).and_then(|run| run.staged.clone());
        let right = matches!(source, Source::Sidecar { path, .. } if Some(path) == staged.as_ref());
        must!(right, "g26: a sidecar from another path than its generation's");
        let serving = self.watched.values().any(|&its| its == Role::Generation(of));
        must!(serving, "g27: a sidecar of a generation that has ended");
        let begun = |id: RequestId| self.starts.values().any(|start| start.request == Some(id));
        let mut open = self.asked.iter().filter(|asked| !asked.answered && !begun(asked.id));
        let first = open.any(|asked| matches!(asked.what, Request::StartSidecar(_)));
        let checks = &mut self.checks.sidecar;
        if let Some(gone) = checks.gone.filter(|_| !first) {
            let wait = self.now - gone;
            must!(wait == checks.least, "g27: a wait of {wait} ms, not {} ms", checks.least);
            checks.least = (wait * 2).min(30_000);
        } else {
            checks.least = 100;
        }
        Ok(())
    }

    fn check_prepare(&mut self, id: StartId, role: Role) -> Result<(), Fault> {
        let left = self.kernel.populated(&Name::of(role));
        let run = self.service.record().run(role);
        must!(run.is_none(), "g32: {role} is prepared while there is one: {left:?}");
        must!(self.starts[&id].role == role, "g5: another cgroup than that of {role}");
        Ok(())
    }

    fn check_launch(&mut self, id: StartId, role: Role) -> Result<(), Fault> {
        let start = &self.starts[&id];
        must!(start.prepared, "g21: {role} is launched into a cgroup that was not made for it");
        let recorded = self.disk.run(role).is_some_and(|run| run.progress == Progress::Pending);
        must!(recorded, "g3: {role} is launched without a pending record");
        if let Role::Generation(number) = role {
            must!(self.checks.launched.insert(number), "g3: generation {number} is launched twice");
        }
        must!(self.kernel.alive(role).next().is_none(), "g21: {role} is launched beside another");
        let asked = start.request.map(|request| &self.asked[usize::try_from(request.0).unwrap_or(0)]);
        if let Some(asked) = asked.filter(|asked| asked.gate.is_some()) {
            let agreed = start.said.iter().all(|said| *said == Some(Ok(())));
            must!(agreed, "g6: {role} is launched without the caller's word: {:?}", start.said);
            must!(!asked.gone, "g6: {role} is launched for a caller that went away");
        }
        must!(self.shutdown.is_none(), "r19: {role} is launched in a shutdown");
        must!(!self.is_held(start), "g31: {role} is launched from a build that is held");
        Ok(())
    }

    fn is_held(&self, start: &Begun) -> bool {
        matches!(start.source, Source::Live { .. }) && self.checks.holds.contains(&start.build)
    }

    fn check_evict(&mut self, role: Role, cgroup: &Name) -> Result<(), Fault> {
        self.checks.evicted.insert(role);
        let moves =
            self.later.values().any(|later| matches!(later, Later::Moved(its, ..) if Role::Generation(*its) == role));
        must!(!moves, "g28: {role} is moved while it is killed");
        let asked = self.checks.kill_asked.contains(&role) || self.shutdown.is_some();
        match role {
            Role::Generation(number) if !asked => {
                let cgroups = self.service.record().generations.get(&number).map(|run| run.cgroups.clone());
                let cgroups = cgroups.unwrap_or_else(|| vec![cgroup.clone()]);
                let populated = cgroups.iter().any(|cgroup| !self.kernel.populated(cgroup).is_empty());
                let sure = self.history.kernel == Ability::Kill && self.history.faults.other == 0;
                must!(populated || !sure || self.is_launched(role), "g22: {cgroup} is killed and was empty");
            }
            Role::Worker if !asked => {
                let emptied = self.asked.iter().any(|asked| matches!(asked.what, Request::Empty(Role::Worker, _)));
                let agreed = self.starts.values().filter(|start| start.role == Role::Worker).any(|start| {
                    let asked = start.request.map(|request| &self.asked[usize::try_from(request.0).unwrap_or(0)]);
                    let replaces = asked.is_some_and(|asked| match &asked.what {
                        Request::Start(launch) => launch.target == Target::Worker { replace: true },
                        _ => false,
                    });
                    let gated = asked.is_some_and(|asked| asked.gate.is_some());
                    replaces && !self.is_held(start) && (!gated || start.said[0] == Some(Ok(())))
                });
                must!(emptied || agreed, "g32: the worker is stopped before hold and gate");
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a launch of it is under way.
    fn is_launched(&self, role: Role) -> bool {
        self.starts.values().any(|start| start.role == role && start.launched)
    }

    fn check_retire(&mut self, role: Role) -> Result<(), Fault> {
        let left = self.kernel.processes.iter().find(|process| process.role == role && process.state != State::Gone);
        must!(left.is_none(), "g20: {role} is said to be gone, and there is {left:?}");
        let launched = matches!(role, Role::Generation(number) if self.checks.launched.contains(&number));
        must!(!launched || self.history.kernel != Ability::NoDelegation, "g23: a proof without delegation");
        self.checks.retired.insert(role, self.now);
        self.checks.evicted.remove(&role);
        if role == Role::Sidecar {
            self.checks.sidecar.gone = Some(self.now);
        }
        Ok(())
    }

    fn check_switch(&mut self, number: Number) -> Result<(), Fault> {
        must!(self.disk.switching == Some(number), "g16: a rename without an intent in the record");
        must!(!self.history.foreign, "g1: a switch on the canonical socket itself");
        let role = Role::Generation(number);
        must!(self.watched.values().any(|&its| its == role), "g16: a switch to {number}, which does not run");
        must!(!self.checks.evicted.contains(&role), "g16: a switch to {number}, which is being killed");
        self.checks.switched.insert(number, self.now);
        Ok(())
    }

    fn check_parent(&self, to: Limit, kept: bool) -> Result<(), Fault> {
        let restores = self.asked.iter().rev().find_map(|asked| match asked.what {
            Request::RestoreParent(number) if !asked.answered => Some(number),
            _ => None,
        });
        let Some(number) = restores else { return Ok(()) };
        let other = self.kernel.processes.iter().find(|process| {
            let other = matches!(process.role, Role::Generation(other) if other != number);
            other && process.state == State::Alive
        });
        must!(other.is_none(), "g12: the parent is lowered beside {other:?}");
        let fits = match to {
            Limit::Max => true,
            Limit::Value(most) => self.memory < most,
        };
        must!(kept || fits, "g12: memory.max is lowered below what is in use");
        must!(!kept || !fits, "g12: memory.max is kept without need");
        Ok(())
    }

    /// What is told.
    pub(super) fn check_outcome(&mut self, outcome: &Outcome) -> Result<(), Fault> {
        match outcome {
            Outcome::Answer(id, answer) => self.check_answer(*id, answer),
            Outcome::Gate { request, build, role, point, .. } => {
                let start = self.starts.values().rfind(|start| start.request == Some(*request));
                let right = start.is_some_and(|start| start.build == *build && start.role == *role);
                must!(right, "g30: a gate is told {build}, which was not resolved");
                let durable = self.disk.run(*role).is_some_and(|run| run.progress == Progress::Pending);
                must!(*point == Point::Prepared || durable, "g6: the second gate before the record");
                Ok(())
            }
            Outcome::Switched(number) => {
                must!(self.link == Some(*number), "g17: an event without a switch");
                self.checks.hook_due = Some(*number);
                Ok(())
            }
            Outcome::Started(Role::Sidecar, _) => {
                self.checks.sidecar.began = Some(self.now);
                Ok(())
            }
            Outcome::Killed(role) => {
                must!(self.kernel.alive(*role).next().is_none(), "g20: {role} is said to be killed, and runs");
                Ok(())
            }
            Outcome::Adopted(role, occupancy) => {
                let alive = self.kernel.alive(*role).count();
                must!(self.checks.adopted.insert(*role), "g29: {role} is adopted twice");
                if *role == Role::Sidecar && self.watched.values().any(|its| its == role) {
                    self.checks.sidecar.began = Some(self.now);
                }
                match occupancy {
                    Occupancy::Running => must!(alive > 0, "g29: {role} is said to run"),
                    Occupancy::Empty => must!(alive == 0, "g29: {role} is said to be empty"),
                    Occupancy::Unproven(_) => {}
                }
                Ok(())
            }
            Outcome::ShutDown { left } => {
                must!(self.shutdown.is_some_and(|(_, end)| self.now <= end), "r19: the shutdown is late");
                let alive = self.kernel.processes.iter().find(|process| process.state == State::Alive);
                must!(alive.is_none() || !left.is_empty(), "r20: {alive:?} is left and not named");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_answer(&mut self, id: RequestId, answer: &Result<Reply, Failure>) -> Result<(), Fault> {
        let asked = self.asked[usize::try_from(id.0).unwrap_or(0)].clone();
        must!(!asked.answered, "k4: {:?} is answered twice", asked.what);
        match &asked.what {
            Request::Start(launch) => {
                self.check_start_answer(id, answer)?;
                let held = matches!(answer, Err(Failure::Refused(reason)) if reason.contains("is held"));
                must!(!held || matches!(launch.source, Source::Live { .. }), "g31: a staged start is held");
                if let (Target::Generation(number), Err(Failure::Refused(reason))) = (launch.target, answer)
                    && reason.contains("used up")
                {
                    let free = !self.checks.tried.contains(&number) || self.checks.free.contains(&number);
                    must!(!free, "g3: generation {number} is free and refused");
                }
            }
            Request::StartSidecar(_) => self.check_start_answer(id, answer)?,
            Request::Hold { build, .. } if answer.is_ok() && !self.is_contradicted(id, build) => {
                must!(self.disk.holds.contains_key(build), "g31: a hold is confirmed and not on disk");
                self.checks.holds.insert(build.clone());
            }
            Request::Release { build } if answer.is_ok() && !self.is_contradicted(id, build) => {
                must!(!self.disk.holds.contains_key(build), "g31: a release is confirmed and not on disk");
            }
            Request::Switch(number) if answer.is_ok() => {
                let switched = self.checks.switched.get(number).is_some_and(|&at| at >= asked.at);
                must!(switched, "g16: a switch is confirmed that was not made");
            }
            Request::Kill(role, _) | Request::Empty(role, _) => {
                if let Some(gone) = World::reply_is_gone(answer) {
                    must!(gone == *role, "g20: {gone} is gone, and {role} was asked for");
                    self.check_gone(*role, asked.at)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a later request says otherwise of the build.
    fn is_contradicted(&self, id: RequestId, build: &str) -> bool {
        self.asked.iter().filter(|asked| asked.id > id).any(|asked| match &asked.what {
            Request::Hold { build: its, .. } | Request::Release { build: its } => its == build,
            _ => false,
        })
    }

    fn check_gone(&self, role: Role, since: Time) -> Result<(), Fault> {
        let retired = self.checks.retired.get(&role).is_some_and(|&at| at >= since);
        match role {
            Role::Generation(_) => {
                let left =
                    |state| move |process: &&super::kernel::Process| process.role == role && process.state == state;
                let alive = self.kernel.processes.iter().find(left(State::Alive));
                must!(alive.is_none(), "g20: {role} is answered to be gone, and there is {alive:?}");
                let zombie = self.kernel.processes.iter().find(left(State::Zombie));
                must!(zombie.is_none(), "g20: {role} is answered to be gone, and its leader was not reaped");
            }
            Role::Sidecar | Role::Worker => must!(retired, "g24: {role} is answered to be gone without a proof"),
        }
        Ok(())
    }

    fn check_start_answer(&self, id: RequestId, answer: &Result<Reply, Failure>) -> Result<(), Fault> {
        let start = self.starts.values().find(|start| start.request == Some(id));
        let born = start.is_some_and(|start| start.born);
        match answer {
            Ok(_) => must!(born, "g7: a start is confirmed, and nothing ran"),
            Err(failure) => {
                let nothing = failure.effect() == Effect::NothingRan;
                must!(!(nothing && born), "g7: nothing is said to have run, and it did: {failure}");
            }
        }
        let Some(start) = start else { return Ok(()) };
        if let Some(Err(reason)) = start.said.iter().flatten().find(|said| said.is_err()) {
            let same = *answer == Err(Failure::Refused(reason.clone()));
            must!(same, "g6: the caller's reason comes back as {answer:?}");
        }
        Ok(())
    }

    /// After every round of the loop.
    pub(super) fn check(&mut self) -> Result<(), Fault> {
        must!(self.shutdown.is_none_or(|(_, end)| self.now <= end || self.ended), "r19: the shutdown did not end");
        let record = self.service.record();
        must!(record.current == self.link, "g16: {:?} is said to be current, not {:?}", record.current, self.link);
        must!(
            record.parent.is_none_or(|parent| parent == self.parent),
            "g13: the record is not in step with the files"
        );
        must!(self.checks.hook_due.is_none(), "g17: the hook is not run");
        for number in &record.refused {
            let ran = self.kernel.processes.iter().any(|process| process.role == Role::Generation(*number));
            must!(!ran, "g7: generation {number} is refused, and ran");
            must!(!self.checks.orphaned.contains(number), "g29: generation {number} is refused after a crash");
        }
        let forgotten = self.checks.forgotten.take();
        must!(
            forgotten.is_none_or(|role| record.run(role).is_none()),
            "g29: the record keeps {forgotten:?}, which is gone"
        );
        self.check_killed()?;
        for asked in self.asked.iter().filter(|asked| !asked.answered) {
            let (Request::Kill(role, limit) | Request::Empty(role, limit)) = asked.what else { continue };
            let limit = Time::try_from(limit.as_millis()).unwrap_or(0);
            let settled = self.history.kernel == Ability::NoDelegation && !self.may_run(role);
            must!(!settled || self.now <= asked.at + SLACK, "g23: {role} is waited for without delegation");
            must!(self.now <= asked.at + limit + SLACK, "g20: {:?} is not answered", asked.what);
        }
        Ok(())
    }

    /// What is killed is killed wherever it is, also what came late.
    fn check_killed(&self) -> Result<(), Fault> {
        // At its time, or once all leaders have ended.
        let over = self.watched.is_empty() && !self.later.values().any(|later| matches!(later, Later::Launched(..)));
        let kills_all = self.shutdown.is_some_and(|(kill, _)| self.now > kill || over);
        for process in self.kernel.processes.iter().filter(|process| process.state == State::Alive) {
            let Some(cgroup) = process.cgroup.as_ref().filter(|_| self.history.kernel == Ability::Kill) else {
                continue;
            };
            if self.kernel.evicting.contains_key(cgroup) || self.may_be_born(process.role) {
                continue;
            }
            must!(!self.checks.evicted.contains(&process.role), "g20: {process:?} came late and is not killed");
            must!(!kills_all, "r19: {process:?} is not killed in the shutdown");
        }
        Ok(())
    }

    /// Whether its leader is there, or may be at any moment.
    fn may_run(&self, role: Role) -> bool {
        self.watched.values().any(|&its| its == role) || self.may_be_born(role)
    }

    fn may_be_born(&self, role: Role) -> bool {
        self.later.values().any(|later| matches!(later, Later::Launched(id, ..) if self.starts[id].role == role))
    }

    /// The shim is gone.
    pub(super) fn check_crash(&mut self) -> Result<(), Fault> {
        for process in self.kernel.processes.iter().filter(|process| process.state == State::Alive) {
            let Some(run) = self.disk.run(process.role) else {
                return Err(format!("g29: the record does not know of {process:?}"));
            };
            let known = process.cgroup.as_ref().is_none_or(|cgroup| run.cgroups.contains(cgroup));
            must!(known, "g28: the record does not know where {process:?} is");
        }
        let pending = self.disk.generations.iter().filter(|(_, run)| run.progress == Progress::Pending);
        self.checks.orphaned.extend(pending.map(|(&number, _)| number));
        self.checks.durable.extend(self.disk.generations.keys());
        self.checks.writing = 0;
        self.checks.free.clear();
        self.checks.forgotten = None;
        self.checks.adopted.clear();
        self.checks.kill_asked.clear();
        self.checks.evicted.clear();
        self.checks.hook_due = None;
        self.checks.sidecar = Sidecar { began: None, gone: Some(self.now), least: 100 };
        Ok(())
    }

    /// Another was started, and has done what it does first.
    pub(super) fn check_restart(&mut self) -> Result<(), Fault> {
        must!(self.disk_roles_are_adopted(), "g29: not all that may run was reported");
        Ok(())
    }

    fn disk_roles_are_adopted(&self) -> bool {
        let known = self.service.record();
        known.roles().all(|role| {
            let run = known.run(role).map(|run| run.progress);
            let earlier = self.checks.orphaned.iter().any(|&number| role == Role::Generation(number));
            !earlier || run != Some(Progress::Pending) || self.checks.adopted.contains(&role)
        })
    }

    /// When nothing happens any more.
    pub(super) fn check_the_end(&mut self) -> Result<(), Fault> {
        if let Some(asked) = self.asked.iter().find(|asked| !asked.answered) {
            return Err(format!("k4: {:?} was never answered", asked.what));
        }
        must!(self.service.next_timeout().is_none(), "R7: there is a timer, and nothing to wait for");
        if self.history.kernel != Ability::Kill {
            return Ok(());
        }
        let alive = self.kernel.processes.iter().find(|process| process.state == State::Alive);
        must!(alive.is_none(), "g20: {alive:?} outlives the end");
        let record = self.service.record();
        must!(record.roles().next().is_none() && record.sidecar.is_none(), "g29: the record keeps what is gone");
        must!(self.kernel.evicting.is_empty(), "g20: a watch is left");
        Ok(())
    }
}
