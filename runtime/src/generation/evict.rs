//! Killing and proof: a role is gone once every cgroup that it ever was in is empty and its leader was reaped (G20 to
//! G25).

use crate::cgroup::Name;
use std::time::{Duration, Instant};

use super::types::{Failure, Found, KillFailure, Layout, Left, Occupancy, Outcome, Reply, RequestId, Role};
use super::writes::Then;
use super::{Action, Generations, Timer, refused};

/// A role that is to be proven gone.
#[derive(Debug)]
pub(super) struct Eviction {
    mode: Mode,
    waiters: Vec<Waiter>,
    findings: Vec<(Name, Finding)>,
    /// How many reads are under way.
    reading: usize,
}

/// How it is gone about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Its cgroups are read: what is empty already takes no kill (G22).
    Look,
    /// It is killed until it is gone.
    Kill,
}

/// A caller that waits for the proof.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    request: RequestId,
    /// Its deadline has passed; the cgroups are read once more (G20).
    expired: bool,
}

/// What is known of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Finding {
    Unknown,
    Empty,
    Left(String),
    Unreadable(String),
    NoKill,
    NoDelegation,
}

impl From<Found> for Finding {
    fn from(found: Found) -> Self {
        match found {
            Found::Empty => Self::Empty,
            Found::Populated(what) => Self::Left(what),
            Found::Unreadable(error) => Self::Unreadable(error),
            Found::NoDelegation => Self::NoDelegation,
        }
    }
}

impl Eviction {
    fn new(mode: Mode, cgroups: Vec<Name>) -> Self {
        let findings = cgroups.into_iter().map(|cgroup| (cgroup, Finding::Unknown)).collect();
        Self { mode, waiters: Vec::new(), findings, reading: 0 }
    }

    fn is_empty(&self) -> bool {
        self.findings.iter().all(|(_, finding)| *finding == Finding::Empty)
    }

    fn has(&self, finding: &Finding) -> bool {
        self.findings.iter().any(|(_, its)| its == finding)
    }

    fn finding(&mut self, cgroup: &Name) -> Option<&mut Finding> {
        self.findings.iter_mut().find(|(its, _)| its == cgroup).map(|(_, finding)| finding)
    }
}

impl Generations {
    pub(super) fn kill(
        &mut self,
        now: Instant,
        request: RequestId,
        role: Role,
        limit: Duration,
    ) -> Result<(), Failure> {
        if self.is_gone_without_a_look(now, request, role)? {
            return Ok(());
        }
        if !self.is_killing(role) {
            self.start_kill(now, role);
        }
        self.await_proof(now, request, role, limit);
        Ok(())
    }

    pub(super) fn empty(
        &mut self,
        now: Instant,
        request: RequestId,
        role: Role,
        limit: Duration,
    ) -> Result<(), Failure> {
        if self.is_gone_without_a_look(now, request, role)? {
            return Ok(());
        }
        if !self.evictions.contains_key(&role) {
            self.look(role);
        }
        self.await_proof(now, request, role, limit);
        Ok(())
    }

    /// Ends a start of which nothing was executed, and answers where nothing ever was or where all was proven before.
    fn is_gone_without_a_look(&mut self, now: Instant, request: RequestId, role: Role) -> Result<bool, Failure> {
        match (&self.layout, role) {
            (Layout::Unit, _) => return Err(Failure::NotFound(format!("{role} of this shim's"))),
            (Layout::Barred(reason), Role::Sidecar) => return refused(reason),
            _ => {}
        }
        let starting = self.start_of(role).filter(|start| start.is_cancellable()).map(|start| start.id);
        if let Some(id) = starting {
            self.fail_start(now, id, Failure::Refused("it was killed before it was started".into()));
        }
        if role == Role::Sidecar {
            self.dismiss_sidecar(now);
        }
        let Role::Generation(number) = role else { return Ok(false) };
        if self.record.generations.contains_key(&number) {
            return Ok(false);
        }
        if starting.is_none() && !self.record.is_used(number) {
            return Err(Failure::NotFound(format!("generation {number}")));
        }
        self.save_then(Then::Answer(request, Ok(Reply::Gone(role))));
        Ok(true)
    }

    fn await_proof(&mut self, now: Instant, request: RequestId, role: Role, limit: Duration) {
        if let Some(eviction) = self.evictions.get_mut(&role) {
            eviction.waiters.push(Waiter { request, expired: false });
            self.deadlines.set(Timer::Proof(request), now + limit);
        }
    }

    /// Kills the role in all its cgroups, from the beginning if that was begun before.
    pub(super) fn start_kill(&mut self, now: Instant, role: Role) {
        if let Role::Generation(number) = role {
            self.end_move(number);
            self.stop_sidecar_of(now, number);
        }
        let mut eviction = Eviction::new(Mode::Kill, self.cgroups(role));
        if let Some(earlier) = self.evictions.remove(&role) {
            eviction.waiters = earlier.waiters;
            eviction.reading = earlier.reading;
        }
        let cgroups = eviction.findings.iter().map(|(cgroup, _)| Action::Evict(role, cgroup.clone()));
        self.actions.extend(cgroups);
        self.evictions.insert(role, eviction);
    }

    /// Reads whether anything is left in the cgroups of the role.
    pub(super) fn look(&mut self, role: Role) {
        self.evictions.insert(role, Eviction::new(Mode::Look, self.cgroups(role)));
        self.look_again(role);
    }

    /// Reads all cgroups of an eviction.
    pub(super) fn look_again(&mut self, role: Role) {
        let Some(eviction) = self.evictions.get_mut(&role) else { return };
        eviction.reading += eviction.findings.len();
        self.actions.extend(eviction.findings.iter().map(|(cgroup, _)| Action::Inspect(role, cgroup.clone())));
    }

    pub(super) fn handle_proof_timeout(&mut self, request: RequestId) {
        let waiting = |waiter: &&mut Waiter| waiter.request == request;
        let found = self.evictions.iter_mut().find_map(|(&role, eviction)| {
            eviction.waiters.iter_mut().find(waiting).map(|waiter| waiter.expired = true).map(|()| role)
        });
        if let Some(role) = found {
            self.look_again(role);
        }
    }

    /// The answer to [`Action::Inspect`], at once.
    pub fn handle_found(&mut self, now: Instant, role: Role, cgroup: &Name, found: Found) {
        let Some(eviction) = self.evictions.get_mut(&role) else { return };
        eviction.reading = eviction.reading.saturating_sub(1);
        let kills = eviction.mode == Mode::Kill;
        let Some(finding) = eviction.finding(cgroup) else { return };
        let was_empty = *finding == Finding::Empty;
        let found = Finding::from(found);
        // A cgroup that cannot be killed stays so until it is empty.
        if found == Finding::Empty || !matches!(finding, Finding::NoKill | Finding::NoDelegation) {
            *finding = found;
        }
        if kills && was_empty && *finding != Finding::Empty {
            self.actions.push_back(Action::Evict(role, cgroup.clone()));
        }
        self.conclude(now, role);
    }

    /// A cgroup that is evicted is empty.
    pub fn handle_emptied(&mut self, now: Instant, role: Role, cgroup: &Name) {
        if let Some(finding) = self.evictions.get_mut(&role).and_then(|eviction| eviction.finding(cgroup)) {
            *finding = Finding::Empty;
            self.conclude(now, role);
        }
    }

    /// A cgroup cannot be killed. Its leader can.
    pub fn handle_kill_failed(&mut self, now: Instant, role: Role, cgroup: &Name, failure: KillFailure) {
        let Some(finding) = self.evictions.get_mut(&role).and_then(|eviction| eviction.finding(cgroup)) else { return };
        *finding = match failure {
            KillFailure::NoKill => Finding::NoKill,
            KillFailure::NoDelegation => Finding::NoDelegation,
            KillFailure::Error(error) => Finding::Unreadable(error),
        };
        self.actions.push_back(Action::KillLeader(role));
        self.conclude(now, role);
    }

    /// A cgroup that takes a kill could not be marked: the record says so (G21).
    pub fn handle_unmarked(&mut self, role: Role, cgroup: Name) {
        if let Some(run) = self.record.run_mut(role) {
            run.unmarked.insert(cgroup);
            self.save();
        }
    }

    /// Draws the conclusion from what is known.
    fn conclude(&mut self, now: Instant, role: Role) {
        let Some(eviction) = self.evictions.get(&role).filter(|eviction| eviction.reading == 0) else { return };
        let (mode, waited_for) = (eviction.mode, !eviction.waiters.is_empty());
        let settled = self.leader(role).is_none() && !self.is_launching(role);
        if settled && eviction.is_empty() {
            return self.finish_eviction(now, role);
        }
        // There is nothing else to wait for (G23).
        let powerless = settled && mode == Mode::Kill && eviction.has(&Finding::NoDelegation);
        if eviction.is_empty() && (mode == Mode::Kill || waited_for) {
            self.actions.push_back(Action::KillLeader(role));
        }
        self.expire(role, powerless);
        let waited_for = self.evictions.get(&role).is_some_and(|eviction| !eviction.waiters.is_empty());
        match mode {
            Mode::Look if waited_for => self.begin_kill_unless_empty(now, role),
            Mode::Look => self.finish_look(now, role),
            Mode::Kill if powerless => self.give_up(role),
            // A kill goes on, whoever still waits for it.
            Mode::Kill => {}
        }
    }

    /// Gives the callers whose deadline has passed what is left; all of them, if nothing more can be proven.
    fn expire(&mut self, role: Role, all: bool) {
        let left = self.left(role);
        let Some(eviction) = self.evictions.get_mut(&role) else { return };
        let failure = if eviction.has(&Finding::NoDelegation) {
            Failure::NoDelegation
        } else if eviction.has(&Finding::NoKill) {
            Failure::NoKill
        } else {
            Failure::Unproven(left)
        };
        let expired: Vec<Waiter> = eviction.waiters.extract_if(.., |waiter| waiter.expired || all).collect();
        for waiter in expired {
            self.deadlines.cancel(Timer::Proof(waiter.request));
            self.answer(waiter.request, Err(failure.clone()));
        }
    }

    fn begin_kill_unless_empty(&mut self, now: Instant, role: Role) {
        if self.evictions.get(&role).is_some_and(|eviction| !eviction.is_empty()) {
            self.start_kill(now, role);
        }
    }

    /// Nobody waits for what was looked at, and it is not gone.
    fn finish_look(&mut self, now: Instant, role: Role) {
        let Some(eviction) = self.evictions.remove(&role) else { return };
        let unread = eviction.findings.iter().find_map(|(cgroup, finding)| match finding {
            Finding::Unreadable(error) => Some(format!("{cgroup}: {error}")),
            Finding::NoDelegation => Some(format!("{cgroup}: no cgroup is delegated")),
            _ => None,
        });
        let runs =
            self.leader(role).is_some() || eviction.findings.iter().any(|(_, its)| matches!(its, Finding::Left(_)));
        match unread.filter(|_| !runs) {
            Some(error) => self.note_adopted(now, role, Occupancy::Unproven(error)),
            None => self.note_adopted(now, role, Occupancy::Running),
        }
    }

    /// Whether the role is being killed.
    #[must_use]
    pub fn is_killing(&self, role: Role) -> bool {
        self.evictions.get(&role).is_some_and(|eviction| eviction.mode == Mode::Kill)
    }

    /// There is nothing to wait for.
    fn give_up(&mut self, role: Role) {
        if let Some(eviction) = self.evictions.remove(&role) {
            self.actions.extend(eviction.findings.into_iter().map(|(cgroup, _)| Action::EndEviction(cgroup)));
        }
    }

    /// All is proven.
    fn finish_eviction(&mut self, now: Instant, role: Role) {
        let Some(eviction) = self.evictions.remove(&role) else { return };
        if eviction.mode == Mode::Kill {
            let ended = eviction.findings.iter().map(|(cgroup, _)| Action::EndEviction(cgroup.clone()));
            self.actions.extend(ended);
            self.report(Outcome::Killed(role));
        }
        self.record.end(role);
        let cgroups = eviction.findings.into_iter().map(|(cgroup, _)| cgroup).collect();
        self.actions.push_back(Action::Retire(role, cgroups));
        match role {
            Role::Generation(number) => self.stop_sidecar_of(now, number),
            Role::Sidecar => self.sidecar_ended(now),
            Role::Worker => self.go_on_replacing(),
        }
        self.save();
        for waiter in eviction.waiters {
            self.deadlines.cancel(Timer::Proof(waiter.request));
            self.save_then(Then::Answer(waiter.request, Ok(Reply::Gone(role))));
        }
        self.note_adopted(now, role, Occupancy::Empty);
        self.go_on_shutting_down(now);
    }

    /// What is not proven gone of the role.
    pub(super) fn left(&self, role: Role) -> Vec<Left> {
        let mut left = Vec::new();
        if self.is_launching(role) {
            left.push(Left::Starting(role));
        }
        if let Some(process) = self.leader(role) {
            left.push(Left::Leader(process.pid));
        }
        let findings = match self.evictions.get(&role) {
            Some(eviction) => eviction.findings.clone(),
            None => self.cgroups(role).into_iter().map(|cgroup| (cgroup, Finding::Unknown)).collect(),
        };
        left.extend(findings.into_iter().filter_map(|(cgroup, finding)| match finding {
            Finding::Empty => None,
            Finding::Left(what) | Finding::Unreadable(what) => Some(Left::Cgroup(cgroup, what)),
            Finding::Unknown => Some(Left::Cgroup(cgroup, "not read".into())),
            Finding::NoKill => Some(Left::Cgroup(cgroup, "the kernel has no cgroup.kill".into())),
            Finding::NoDelegation => Some(Left::Cgroup(cgroup, "no cgroup is delegated".into())),
        }));
        left
    }
}
