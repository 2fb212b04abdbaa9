//! Decides about staged generations: which may start, which is current, when one is proven gone. No I/O and no clock:
//! events and the time go in through `handle_*`, actions come out of [`Generations::poll_action`], and
//! [`Generations::next_timeout`] says when [`Generations::handle_timeout`] is due.
//!
//! Actions are carried out in their order. What is answered "at once" is answered before the next one; all other answers
//! may take their time.
//!
//! The rules (G1 to G33) are those of `docs/generations.md`.

mod evict;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod gate;
mod holds;
mod moves;
mod number;
mod parent;
mod record;
mod restart;
mod shutdown;
mod sidecar;
mod start;
mod switch;
#[cfg(test)]
mod tests;
mod tier;
mod types;
mod writes;

use crate::cgroup::Name;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use crate::deadlines::Deadlines;
use evict::Eviction;
use moves::Move;
use parent::ParentChange;
use shutdown::Shutdown;
use sidecar::Backoff;
use start::Start;
use switch::Switch;
use writes::Writes;

pub use number::{Number, Numbers};
pub use record::{Progress, Record, Run, Sidecar};
pub use tier::{CpuMax, InvalidLimit, Limit, MAX_WEIGHT, Tier};
pub use types::{
    Action, Effect, Failure, Found, KillFailure, Launch, Launched, Layout, Left, Occupancy, Opened, Outcome,
    ParentLimits, Point, Process, Reply, Request, RequestId, Role, Serial, Source, StartId, Target, Token,
};

/// What has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// The caller of a start answers its gate (G6).
    Gate(StartId),
    /// The worker that a start replaces is gone (G32).
    Replace(StartId),
    /// A caller waits for a proof (G20).
    Proof(RequestId),
    /// A move ends (G28).
    Move(Number),
    /// The sidecar is started again (G27).
    Sidecar,
    /// The steps of a shutdown (R19).
    KillAll,
    EndShutdown,
}

/// The state of a service.
#[derive(Debug)]
pub struct Generations {
    layout: Layout,
    record: Record,
    writes: Writes,
    starts: Vec<Start>,
    evictions: BTreeMap<Role, Eviction>,
    moves: BTreeMap<Number, Move>,
    switch: Option<Switch>,
    parent_change: Option<ParentChange>,
    backoff: Backoff,
    /// What an earlier shim has left and was not looked at yet (G29).
    adopting: BTreeSet<Role>,
    /// Whether the link is still to tell which generation is current.
    reading_link: bool,
    shutdown: Option<Shutdown>,
    deadlines: Deadlines<Timer>,
    actions: VecDeque<Action>,
    /// Numbers for starts and gates.
    next_number: u64,
}

impl Generations {
    /// A service as its record has it; an empty one for a new service. Its first actions find out what still runs, and
    /// are carried out before anything else (G29). Tokens of gates count from `first_token`, so that an answer to an
    /// earlier shim is none to this one.
    #[must_use]
    pub fn new(now: Instant, layout: Layout, record: Record, first_token: u64) -> Self {
        let mut generations = Self {
            layout,
            record,
            writes: Writes::default(),
            starts: Vec::new(),
            evictions: BTreeMap::new(),
            moves: BTreeMap::new(),
            switch: None,
            parent_change: None,
            backoff: Backoff::default(),
            adopting: BTreeSet::new(),
            reading_link: false,
            shutdown: None,
            deadlines: Deadlines::default(),
            actions: VecDeque::new(),
            next_number: first_token,
        };
        generations.adopt_all(now);
        generations
    }

    /// The state that is to be written when an action asks for it.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Whether something is being started in that role.
    #[must_use]
    pub fn is_starting(&self, role: Role) -> bool {
        self.start_of(role).is_some()
    }

    /// What is being started for a request: its role and build.
    #[must_use]
    pub fn starting_for(&self, request: RequestId) -> Option<(Role, &str)> {
        let start = self.starts.iter().find(|start| start.request == Some(request))?;
        Some((start.role, &self.record.run(start.role)?.build))
    }

    /// Whether the record is as it was written last, and nothing is left to be done.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.actions.is_empty() && self.writes.are_settled()
    }

    /// The next thing to do, if there is one.
    pub fn poll_action(&mut self) -> Option<Action> {
        loop {
            match self.actions.pop_front()? {
                // It may have been reaped since it was to be signalled (R9).
                Action::KillLeader(role) | Action::Terminate(role) if self.leader(role).is_none() => {}
                Action::WriteRecord(_) => return Some(Action::WriteRecord(self.writes.begin())),
                action => return Some(action),
            }
        }
    }

    /// When [`Generations::handle_timeout`] is to be called at the latest.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.deadlines.pop_due(now) {
            match timer {
                Timer::Gate(id) => self.handle_gate_timeout(now, id),
                Timer::Replace(id) => self.handle_replace_timeout(now, id),
                Timer::Proof(request) => self.handle_proof_timeout(request),
                Timer::Move(number) => self.end_move(number),
                Timer::Sidecar => self.restart_sidecar(),
                Timer::KillAll => self.kill_all(now),
                Timer::EndShutdown => self.end_shutdown(),
            }
        }
    }

    /// A caller asks for something. Each request has one [`Outcome::Answer`].
    pub fn handle_request(&mut self, now: Instant, request: RequestId, asked: Request) {
        let refused = match asked {
            Request::Start(launch) => self.start(request, launch),
            Request::StartSidecar(number) => self.start_sidecar(request, number),
            Request::Hold { build, reason } => {
                self.hold(request, build, reason);
                Ok(())
            }
            Request::Release { build } => self.release(request, &build),
            Request::Ready(number) => self.make_ready(request, number),
            Request::Switch(number) => self.switch(request, number),
            Request::RaiseParent { incumbent, successor } => self.raise_parent(request, incumbent.sum(successor)),
            Request::RestoreParent(number) => self.restore_parent(request, number),
            Request::Kill(role, timeout) => self.kill(now, request, role, timeout),
            Request::Empty(role, timeout) => self.empty(now, request, role, timeout),
            Request::Move { number, to, timeout } => self.move_to(now, request, number, to, timeout),
        };
        if let Err(failure) = refused {
            self.answer(request, Err(failure));
        }
    }

    /// The process ended and was reaped: by this shim, or, if it was adopted, by another. What it forked may still run.
    pub fn handle_exited(&mut self, now: Instant, role: Role) {
        let Some(run) = self.record.run_mut(role).filter(|run| run.process().is_some()) else { return };
        run.progress = Progress::Exited;
        self.report(Outcome::Exited(role));
        self.save();
        match role {
            Role::Generation(number) => self.stop_sidecar_of(now, number),
            Role::Sidecar => self.backoff.end_life(now),
            Role::Worker => {}
        }
        // An end says nothing of what is left (G20).
        match self.evictions.contains_key(&role) {
            true => self.look_again(role),
            false if role == Role::Sidecar => self.start_kill(now, role),
            false => self.look(role),
        }
        self.go_on_shutting_down(now);
    }

    /// Whether it runs, and nothing is about to end it.
    fn is_serving(&self, number: Number) -> bool {
        let role = Role::Generation(number);
        self.leader(role).is_some() && !self.evictions.contains_key(&role) && self.start_of(role).is_none()
    }

    /// The process in that role, until it was reaped.
    fn leader(&self, role: Role) -> Option<Process> {
        self.record.run(role)?.process()
    }

    /// Every cgroup that the role was ever in; one that nobody knows of may still have left something.
    fn cgroups(&self, role: Role) -> Vec<Name> {
        self.record.run(role).map_or_else(|| vec![Name::of(role)], |run| run.cgroups.clone())
    }

    fn answer(&mut self, request: RequestId, answer: Result<Reply, Failure>) {
        self.report(Outcome::Answer(request, answer));
    }

    fn report(&mut self, outcome: Outcome) {
        self.actions.push_back(Action::Report(outcome));
    }

    fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

/// A reason in the words of a failure.
fn refused<T>(reason: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Refused(reason.into()))
}
