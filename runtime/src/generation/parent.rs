//! The limits of the service's own cgroup (G11 to G14). One change at a time.

use super::tier::{Limit, Tier};
use super::types::{Failure, ParentLimits, Reply, RequestId, Role};
use super::writes::Then;
use super::{Action, Generations, Number};

/// A change in progress.
#[derive(Debug)]
pub(super) struct ParentChange {
    request: RequestId,
    to: Tier,
    step: Step,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// What is in use is read, and reclaimed once if it is too much, for this generation alone.
    Measuring { number: Number, reclaimed: bool },
    /// The files are written. So much memory was in use that `memory.max` stays, if it does.
    Writing { in_use: Option<u64> },
}

impl Generations {
    pub(super) fn raise_parent(&mut self, request: RequestId, to: Tier) -> Result<(), Failure> {
        self.check_parent()?;
        self.set_parent(request, to, None);
        Ok(())
    }

    pub(super) fn restore_parent(&mut self, request: RequestId, number: Number) -> Result<(), Failure> {
        self.check_parent()?;
        let Some(run) = self.record.generations.get(&number) else {
            return Err(Failure::NotFound(format!("generation {number}")));
        };
        let to = run.tier;
        self.check_alone(number)?;
        if to.memory_max == Limit::Max {
            self.set_parent(request, to, None);
        } else {
            self.parent_change = Some(ParentChange { request, to, step: Step::Measuring { number, reclaimed: false } });
            self.actions.push_back(Action::ReadMemory);
        }
        Ok(())
    }

    fn check_parent(&self) -> Result<(), Failure> {
        self.check_startable()?;
        match self.parent_change {
            Some(_) => Err(Failure::Busy("the parent's limits are being changed".into())),
            None => Ok(()),
        }
    }

    /// Whether no other generation may still run, or be started at any moment.
    fn check_alone(&self, number: Number) -> Result<(), Failure> {
        let starting = self.starts.iter().map(|start| start.role);
        let other = self.record.roles().chain(starting).find(|&role| match role {
            Role::Generation(other) => other != number,
            Role::Sidecar | Role::Worker => false,
        });
        other.map_or(Ok(()), |other| Err(Failure::Busy(format!("{other} is not proven gone"))))
    }

    fn set_parent(&mut self, request: RequestId, tier: Tier, in_use: Option<u64>) {
        self.parent_change = Some(ParentChange { request, to: tier, step: Step::Writing { in_use } });
        self.actions.push_back(Action::SetParent { tier, keep_memory_max: in_use.is_some() });
    }

    /// The answer to [`Action::ReadMemory`], at once.
    pub fn handle_memory(&mut self, result: Result<u64, String>) {
        let Some(change) = &mut self.parent_change else { return };
        let (request, to) = (change.request, change.to);
        let Step::Measuring { number, reclaimed } = change.step else { return };
        match (result, to.memory_max) {
            (Ok(current), Limit::Value(wanted)) if current >= wanted => {
                if reclaimed {
                    self.set_parent(request, to, Some(current));
                } else {
                    change.step = Step::Measuring { number, reclaimed: true };
                    self.actions.push_back(Action::Reclaim(current - wanted + 1));
                }
            }
            (Ok(_), _) => self.set_parent(request, to, None),
            (Err(error), _) => {
                self.parent_change = None;
                self.answer(request, Err(Failure::Limits(error)));
            }
        }
    }

    /// The answer to [`Action::Reclaim`], whatever came of it: what is in use now says so. Something may have been
    /// started meanwhile, which needs the room.
    pub fn handle_reclaimed(&mut self) {
        let Some(change) = &self.parent_change else { return };
        let Step::Measuring { number, .. } = change.step else { return };
        let request = change.request;
        match self.check_alone(number) {
            Ok(()) => self.actions.push_back(Action::ReadMemory),
            Err(failure) => {
                self.parent_change = None;
                self.answer(request, Err(failure));
            }
        }
    }

    /// The answer to [`Action::SetParent`]. The record is in step with the files, whatever was refused (G13).
    pub fn handle_parent_set(&mut self, limits: ParentLimits) {
        let Some(change) = self.parent_change.take() else { return };
        self.record.parent = Some(limits.are);
        let Step::Writing { in_use } = change.step else { return };
        let kept = in_use.and_then(|current| match change.to.memory_max {
            Limit::Value(wanted) => Some(Failure::MemoryInUse { current, wanted }),
            Limit::Max => None,
        });
        match limits.refused.map(Failure::Limits).or(kept) {
            Some(failure) => self.save_then(Then::Answer(change.request, Err(failure))),
            None => self.save_then(Then::Confirm(change.request, Reply::Done)),
        }
    }

    /// The answer to [`Action::ReadParent`] after a restart: the files are what counts.
    pub fn handle_parent_read(&mut self, limits: Option<Tier>) {
        if let Some(are) = limits
            && self.record.parent != Some(are)
        {
            self.record.parent = Some(are);
            self.save();
        }
    }
}
