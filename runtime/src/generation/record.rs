//! The record: all that a shim that is started anew must know (G29).

use crate::cgroup::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::types::{Process, Role};
use super::{Number, Numbers, Tier};

/// Of how many refused generations the record says that they were refused. All others that are used up are just that.
const REFUSALS: usize = 64;

/// The state that is kept. What ended and was proven gone is in it as a used number alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Those that may still run.
    pub generations: BTreeMap<Number, Run>,
    /// All that are used up and are not among them.
    pub used: Numbers,
    /// The latest of those that were refused after their pending record was written (G3).
    pub refused: BTreeSet<Number>,
    /// Builds that no cold start may run, and why (G31).
    pub holds: BTreeMap<String, String>,
    /// The one that the canonical path leads to, until the link says otherwise (G16).
    pub current: Option<Number>,
    /// The one that it is about to lead to.
    pub switching: Option<Number>,
    /// What the parent's limits are, once they were set (G11).
    pub parent: Option<Tier>,
    /// The worker.
    pub worker: Option<Run>,
    /// The sidecar.
    pub sidecar: Option<Sidecar>,
}

/// One run of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The build.
    pub build: String,
    /// Where it came from; nothing after a cold start (G30).
    pub staged: Option<PathBuf>,
    /// The digest of what was executed.
    pub digest: Option<String>,
    /// Its limits, as of its admission (G9).
    pub tier: Tier,
    /// How far its process is.
    pub progress: Progress,
    /// Every cgroup that it ever was in (G28).
    pub cgroups: Vec<Name>,
    /// Those that took a kill and could not be marked (G21).
    pub unmarked: BTreeSet<Name>,
}

/// How far a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is about to be started, or nobody can tell.
    Pending,
    /// It runs.
    Running(Process),
    /// It was reaped. What it forked may still run.
    Exited,
}

impl Run {
    /// Its process, until that was reaped.
    #[must_use]
    pub fn process(&self) -> Option<Process> {
        match self.progress {
            Progress::Running(process) => Some(process),
            _ => None,
        }
    }
}

/// A sidecar, until nothing of it is wanted or left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sidecar {
    /// The generation that it belongs to.
    pub of: Number,
    /// What may still run of it.
    pub run: Option<Run>,
    /// Whether it is started again when it ends (G27).
    pub wanted: bool,
}

impl Record {
    /// What there is in that role.
    #[must_use]
    pub fn run(&self, role: Role) -> Option<&Run> {
        match role {
            Role::Generation(number) => self.generations.get(&number),
            Role::Sidecar => self.sidecar.as_ref()?.run.as_ref(),
            Role::Worker => self.worker.as_ref(),
        }
    }

    pub(super) fn run_mut(&mut self, role: Role) -> Option<&mut Run> {
        match role {
            Role::Generation(number) => self.generations.get_mut(&number),
            Role::Sidecar => self.sidecar.as_mut()?.run.as_mut(),
            Role::Worker => self.worker.as_mut(),
        }
    }

    /// Every role that something may still run in.
    pub fn roles(&self) -> impl Iterator<Item = Role> {
        let generations = self.generations.keys().map(|&number| Role::Generation(number));
        let others = [Role::Sidecar, Role::Worker].into_iter().filter(|&role| self.run(role).is_some());
        generations.chain(others)
    }

    /// The highest number that is used up.
    #[must_use]
    pub fn last_used(&self) -> Option<Number> {
        self.generations.keys().next_back().copied().max(self.used.last())
    }

    /// Whether the number is used up.
    #[must_use]
    pub fn is_used(&self, number: Number) -> bool {
        self.generations.contains_key(&number) || self.used.contains(number)
    }

    pub(super) fn begin(&mut self, role: Role, run: Run) {
        match role {
            Role::Generation(number) => drop(self.generations.insert(number, run)),
            Role::Worker => self.worker = Some(run),
            Role::Sidecar => {
                if let Some(sidecar) = &mut self.sidecar {
                    sidecar.run = Some(run);
                }
            }
        }
    }

    /// Nothing of it runs any more.
    pub(super) fn end(&mut self, role: Role) -> Option<Run> {
        match role {
            Role::Generation(number) => {
                let run = self.generations.remove(&number)?;
                self.used.insert(number);
                self.current.take_if(|current| *current == number);
                self.switching.take_if(|next| *next == number);
                Some(run)
            }
            Role::Worker => self.worker.take(),
            Role::Sidecar => self.sidecar.as_mut()?.run.take(),
        }
    }

    /// It never ran, and never will.
    pub(super) fn refuse(&mut self, role: Role) {
        self.end(role);
        if let Role::Generation(number) = role {
            self.refused.insert(number);
            if self.refused.len() > REFUSALS {
                self.refused.pop_first();
            }
        }
    }

    /// Its pending record was not written: the number is free (G3).
    pub(super) fn withdraw(&mut self, role: Role) {
        match role {
            Role::Generation(number) => drop(self.generations.remove(&number)),
            role => drop(self.end(role)),
        }
    }
}
