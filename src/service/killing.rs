//! The end of what runs, the proof of it, and the removal of what it leaves (G20 to G25).

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use dunnage_runtime::cgroup::{CgroupError, Eviction, Intent, Name, Parent, Proof, Removal, Removed};
use dunnage_runtime::event_loop::Interest;
use dunnage_runtime::generation::{Found, KillFailure, Role};
use log::warn;

use super::Shim;
use super::cgroups::NEVER;
use crate::source::{ServiceSource, Source};

/// How long a cgroup that is proven empty may be busy.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// A cgroup that is emptied.
#[derive(Debug)]
pub(super) struct Evicting {
    key: u32,
    role: Role,
    cgroup: Name,
    pub(super) eviction: Eviction,
    told: Told,
}

/// What was said of it already.
#[derive(Debug, Default)]
struct Told {
    unmarked: bool,
    obstacle: bool,
}

/// A cgroup that is removed.
#[derive(Debug)]
pub(super) struct Removing {
    pub(super) name: Name,
    pub(super) removal: Removal,
}

pub(super) fn begin(parent: &Parent, name: Name, intent: Intent, now: Instant) -> Result<Eviction, CgroupError> {
    // Whoever waits for it has a deadline.
    Eviction::begin(parent, name, intent, now, now + NEVER)
}

impl Shim {
    /// Reads whether a cgroup is populated.
    pub(super) fn inspect(&mut self, role: Role, cgroup: &Name, now: Instant) {
        let found = self.cgroups.parent().map_or(Found::NoDelegation, |parent| look(parent, cgroup));
        self.generations.handle_found(now, role, cgroup, found);
    }

    pub(super) fn evict(&mut self, role: Role, cgroup: Name, now: Instant) {
        self.end_eviction(&cgroup);
        let begun = match self.cgroups.parent() {
            Err(_) => Err(KillFailure::NoDelegation),
            Ok(parent) => begin(parent, cgroup.clone(), Intent::Kill, now).map_err(failure),
        };
        match begun {
            Ok(eviction) => {
                let key = self.take_key();
                self.cgroups.evictions.push(Evicting { key, role, cgroup, eviction, told: Told::default() });
                self.watch_eviction(key);
                self.advance_eviction(key, now);
            }
            Err(failure) => self.generations.handle_kill_failed(now, role, &cgroup, failure),
        }
    }

    fn watch_eviction(&self, key: u32) {
        let Some(evicting) = self.cgroups.evictions.iter().find(|one| one.key == key) else { return };
        if let Some(events) = evicting.eviction.watched()
            && let Err(error) =
                self.event_loop.watch(&events, Source::Service(ServiceSource::Cgroup(key)), Interest::PRIORITY)
        {
            // It is looked at again and again in any case.
            warn!("cannot watch cgroup {}: {error}", evicting.cgroup);
        }
    }

    /// The events of a cgroup have changed.
    pub(super) fn handle_cgroup(&mut self, key: u32, now: Instant) {
        let _raised = dunnage_runtime::privileges::raise();
        self.advance_eviction(key, now);
        self.advance_move(key, now);
        self.advance_clearing(key, now);
    }

    /// What is to be looked at without an event.
    pub(super) fn handle_cgroup_timeouts(&mut self, now: Instant) {
        if self.cgroups.next_timeout().is_none_or(|at| at > now) {
            return;
        }
        let _raised = dunnage_runtime::privileges::raise();
        let due = self.cgroups.evictions.iter().filter(|one| one.eviction.next_timeout() <= now).map(|one| one.key);
        for key in due.collect::<Vec<_>>() {
            self.advance_eviction(key, now);
        }
        let due = self.cgroups.removals.iter().filter(|one| one.removal.next_timeout() <= now);
        for name in due.map(|one| one.name.clone()).collect::<Vec<_>>() {
            self.advance_removal(&name, now);
        }
        for key in self.cgroups.moves.iter().map(|one| one.key).collect::<Vec<_>>() {
            self.advance_move(key, now);
        }
    }

    fn advance_eviction(&mut self, key: u32, now: Instant) {
        let Some(position) = self.cgroups.evictions.iter().position(|one| one.key == key) else { return };
        let proof = self.cgroups.advance_eviction(position, now);
        let evicting = &mut self.cgroups.evictions[position];
        let (role, cgroup) = (evicting.role, evicting.cgroup.clone());
        let unmarked = evicting.eviction.mark_failure().is_some();
        if unmarked && !std::mem::replace(&mut evicting.told.unmarked, true) {
            self.generations.handle_unmarked(role, cgroup.clone());
        }
        match proof {
            Ok(Proof::Empty) => {
                self.end_eviction(&cgroup);
                self.generations.handle_emptied(now, role, &cgroup);
            }
            Ok(_) => {
                let evicting = &mut self.cgroups.evictions[position];
                let obstacle = match evicting.eviction.obstacle() {
                    Some(CgroupError::NoKill { .. }) => Some(KillFailure::NoKill),
                    Some(error) => Some(KillFailure::Error(error.to_string())),
                    None => None,
                };
                if let Some(obstacle) = obstacle
                    && !std::mem::replace(&mut evicting.told.obstacle, true)
                {
                    self.generations.handle_kill_failed(now, role, &cgroup, obstacle);
                }
            }
            Err(error) => {
                self.end_eviction(&cgroup);
                self.generations.handle_kill_failed(now, role, &cgroup, failure(error));
            }
        }
    }

    /// Nobody waits for it any more, or it is empty.
    pub(super) fn end_eviction(&mut self, cgroup: &Name) {
        if let Some(position) = self.cgroups.evictions.iter().position(|one| one.cgroup == *cgroup) {
            let evicting = self.cgroups.evictions.swap_remove(position);
            if let Some(events) = evicting.eviction.watched() {
                self.event_loop.unwatch(&events.as_fd());
            }
        }
    }

    /// It is proven gone: nothing of it stays.
    pub(super) fn retire(&mut self, role: Role, cgroups: &[Name], now: Instant) {
        if role == Role::Sidecar && self.generations.record().sidecar.as_ref().is_some_and(|sidecar| sidecar.wanted) {
            self.restarts += 1;
        }
        self.dismantle(role, now);
        self.delete_container(role, now);
        for name in cgroups {
            self.remove_cgroup(name, now);
        }
    }

    pub(super) fn remove_cgroup(&mut self, name: &Name, now: Instant) {
        if self.cgroups.parent().is_ok() && !self.cgroups.removals.iter().any(|one| one.name == *name) {
            let removal = Removal::begin(name.clone(), now, now + REMOVAL_LIMIT);
            self.cgroups.removals.push(Removing { name: name.clone(), removal });
            self.advance_removal(name, now);
        }
    }

    fn advance_removal(&mut self, name: &Name, now: Instant) {
        let Some(position) = self.cgroups.removals.iter().position(|one| one.name == *name) else { return };
        match self.cgroups.advance_removal(position, now) {
            Ok(Removed::NotYet) => return,
            Ok(Removed::Yes) => {}
            Ok(Removed::Busy(left)) => warn!("cgroup {name} stays: it is busy with {left}"),
            Err(error) => warn!("cgroup {name} stays: {error}"),
        }
        self.cgroups.removals.swap_remove(position);
        // Whoever waits for the name makes it anew, or is refused.
        let waiting: Vec<Role> =
            self.starts.iter().map(|start| start.role).filter(|&role| Name::of(role) == *name).collect();
        for role in waiting {
            self.go_on_preparing(role, now);
        }
    }
}

pub(super) fn look(parent: &Parent, name: &Name) -> Found {
    let cgroup = match parent.child(name) {
        Ok(Some(cgroup)) => cgroup,
        Ok(None) => return Found::Empty,
        Err(error) => return Found::Unreadable(error.to_string()),
    };
    match cgroup.events() {
        Ok(events) if events.populated => Found::Populated(cgroup.left().to_string()),
        Ok(_) | Err(CgroupError::Absent { .. }) => Found::Empty,
        Err(error) => Found::Unreadable(error.to_string()),
    }
}

fn failure(error: CgroupError) -> KillFailure {
    match error {
        CgroupError::NoKill { .. } => KillFailure::NoKill,
        CgroupError::NoDelegation { .. } => KillFailure::NoDelegation,
        error => KillFailure::Error(error.to_string()),
    }
}
