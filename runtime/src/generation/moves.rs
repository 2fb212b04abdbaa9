//! A running generation moves into another cgroup (G28).

use crate::cgroup::Name;
use std::time::{Duration, Instant};

use super::types::{Failure, Left, Reply, RequestId, Role};
use super::writes::Then;
use super::{Action, Generations, Number, Timer, refused};

/// In how many cgroups a generation may have been: all of them are read and killed for each proof.
const MOST_CGROUPS: usize = 32;

/// A move in progress.
#[derive(Debug)]
pub(super) struct Move {
    request: RequestId,
    to: Name,
    /// The record names the new cgroup, and what moves is on its way.
    begun: bool,
}

impl Generations {
    pub(super) fn move_to(
        &mut self,
        now: Instant,
        request: RequestId,
        number: Number,
        to: Name,
        limit: Duration,
    ) -> Result<(), Failure> {
        self.check_startable()?;
        if self.moves.contains_key(&number) || self.evictions.contains_key(&Role::Generation(number)) {
            return Err(Failure::Busy(format!("generation {number} is moved or killed")));
        }
        if !self.is_serving(number) {
            return Err(Failure::NotFound(format!("process of generation {number}")));
        }
        let holder = self.record.roles().find(|&role| self.cgroups(role).contains(&to));
        if let Some(role) = holder {
            return refused(format!("cgroup {to} belongs to {role}"));
        }
        let Some(run) = self.record.generations.get_mut(&number) else {
            return Err(Failure::NotFound(format!("generation {number}")));
        };
        if run.cgroups.len() >= MOST_CGROUPS {
            return refused(format!("generation {number} was in {MOST_CGROUPS} cgroups already"));
        }
        // Before the first write, so that whatever comes of it is found (G28).
        run.cgroups.push(to.clone());
        self.moves.insert(number, Move { request, to, begun: false });
        self.deadlines.set(Timer::Move(number), now + limit);
        self.save_then(Then::Move(request));
        Ok(())
    }

    pub(super) fn handle_move_recorded(&mut self, request: RequestId, result: Result<(), String>) {
        let Some((&number, moving)) = self.moves.iter_mut().find(|(_, moving)| moving.request == request) else {
            return;
        };
        let Some(run) = self.record.generations.get_mut(&number) else { return };
        let to = moving.to.clone();
        match result {
            Ok(()) => {
                moving.begun = true;
                let from = run.cgroups.iter().filter(|&cgroup| *cgroup != to).cloned().collect();
                let tier = run.tier;
                self.actions.push_back(Action::Move { number, from, to, tier });
            }
            Err(error) => {
                run.cgroups.retain(|cgroup| *cgroup != to);
                self.save();
                self.finish_move(number, Err(Failure::Record(error)));
            }
        }
    }

    /// The answer to [`Action::Move`]: nothing was moved, or all, or there is something left.
    pub fn handle_moved(&mut self, number: Number, result: Result<(), Failure>) {
        if self.moves.get(&number).is_some_and(|moving| moving.begun) {
            self.finish_move(number, result);
        }
    }

    /// Its time is over, or it is killed. Its processes are in any of its cgroups.
    pub(super) fn end_move(&mut self, number: Number) {
        let Some(moving) = self.moves.get(&number) else { return };
        if moving.begun {
            self.actions.push_back(Action::EndMove(number));
        }
        let cgroups = self.cgroups(Role::Generation(number)).into_iter();
        let left = cgroups.map(|cgroup| Left::Cgroup(cgroup, "the move was ended".into()));
        self.finish_move(number, Err(Failure::Unproven(left.collect())));
    }

    fn finish_move(&mut self, number: Number, result: Result<(), Failure>) {
        self.deadlines.cancel(Timer::Move(number));
        if let Some(moving) = self.moves.remove(&number) {
            self.answer(moving.request, result.map(|()| Reply::Done));
        }
    }
}
