//! Moves of what runs into another cgroup (G28).

use std::os::fd::AsFd;
use std::time::Instant;

use dunnage_runtime::cgroup::{CgroupError, Migration, Moved, Name, Parent};
use dunnage_runtime::event_loop::Interest;
use dunnage_runtime::generation::{Failure, Left, Number, Role, Tier};

use super::Shim;
use super::answers::{event_of, target};
use super::cgroups::NEVER;
use crate::control::reply::{Event, EventKind};
use crate::source::{ServiceSource, Source};

/// A move on its way.
#[derive(Debug)]
pub(super) struct Moving {
    pub(super) key: u32,
    number: Number,
    /// Those that are still to be emptied.
    sources: Vec<Name>,
    to: Name,
    /// The source that is being emptied.
    current: Option<(Name, Migration)>,
    /// The first one is on its way, or done.
    begun: bool,
}

impl Moving {
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.current.as_ref().map(|(_, migration)| migration.next_timeout())
    }

    /// Moves some of the source in hand. Whether nothing is left in it.
    fn advance(&mut self, now: Instant) -> Result<bool, Failure> {
        let Some((source, migration)) = &mut self.current else { return Ok(true) };
        match migration.advance(now) {
            Ok(Moved::All) => Ok(true),
            Ok(Moved::NotYet) => Ok(false),
            Ok(Moved::Unproven { left, obstacle }) => {
                let why = obstacle.map(|error| format!(": {error}")).unwrap_or_default();
                Err(unproven(source.clone(), format!("{left}{why}")))
            }
            Err(error) => Err(unproven(source.clone(), error.to_string())),
        }
    }
}

/// What is in the source may be anywhere.
fn unproven(source: Name, what: String) -> Failure {
    Failure::Unproven(vec![Left::Cgroup(source, what)])
}

impl Shim {
    pub(super) fn begin_move(&mut self, number: Number, from: Vec<Name>, to: Name, tier: Tier, now: Instant) {
        let key = self.take_key();
        let begun = self.cgroups.parent().and_then(|parent| {
            let refused = |error: CgroupError| Failure::Refused(error.to_string());
            let sources = populated(parent, from).map_err(refused)?;
            parent.make(&to, &tier).map_err(refused)?;
            Ok(Moving { key, number, sources, to, current: None, begun: false })
        });
        match begun {
            Ok(moving) => {
                self.cgroups.moves.push(moving);
                self.advance_move(key, now);
            }
            Err(failure) => self.generations.handle_moved(number, Err(failure)),
        }
    }

    /// Moves some, from one source after the other.
    pub(super) fn advance_move(&mut self, key: u32, now: Instant) {
        loop {
            let Some(position) = self.cgroups.moves.iter().position(|one| one.key == key) else { return };
            match self.cgroups.moves[position].advance(now) {
                Ok(false) => return,
                Ok(true) => {
                    self.end_migration(position);
                    if self.cgroups.moves[position].sources.is_empty() {
                        return self.finish_move(position, Ok(()), now);
                    }
                    if let Err(failure) = self.begin_migration(position, now) {
                        return self.finish_move(position, Err(failure), now);
                    }
                }
                Err(failure) => return self.finish_move(position, Err(failure), now),
            }
        }
    }

    fn begin_migration(&mut self, position: usize, now: Instant) -> Result<(), Failure> {
        let moving = &self.cgroups.moves[position];
        let (key, to, begun) = (moving.key, moving.to.clone(), moving.begun);
        let Some(source) = self.cgroups.moves[position].sources.pop() else { return Ok(()) };
        let parent = self.cgroups.parent()?;
        let start = if begun { Migration::begin_next } else { Migration::begin };
        let migration = match start(parent, &source, &to, now, now + NEVER) {
            Ok(migration) => migration,
            Err(error) if begun => return Err(unproven(source, error.to_string())),
            Err(error) => {
                self.remove_cgroup(&to, now);
                return Err(Failure::Refused(error.to_string()));
            }
        };
        if let Err(error) =
            self.event_loop.watch(&migration.watched(), Source::Service(ServiceSource::Cgroup(key)), Interest::PRIORITY)
        {
            // It is looked at again and again in any case.
            log::warn!("cannot watch cgroup {source}: {error}");
        }
        let moving = &mut self.cgroups.moves[position];
        moving.begun = true;
        moving.current = Some((source, migration));
        Ok(())
    }

    fn end_migration(&mut self, position: usize) {
        if let Some((_, migration)) = self.cgroups.moves[position].current.take() {
            self.event_loop.unwatch(&migration.watched().as_fd());
        }
    }

    fn finish_move(&mut self, position: usize, result: Result<(), Failure>, now: Instant) {
        self.end_migration(position);
        let Moving { number, .. } = self.cgroups.moves.swap_remove(position);
        if result.is_ok() {
            let role = Role::Generation(number);
            let event = Event { target: Some(target(role)), ..event_of(EventKind::Moved, role, None) };
            self.control.tell(event, now);
        }
        self.generations.handle_moved(number, result);
    }

    /// Stops it where it is.
    pub(super) fn end_move(&mut self, number: Number) {
        if let Some(position) = self.cgroups.moves.iter().position(|one| one.number == number) {
            self.end_migration(position);
            self.cgroups.moves.swap_remove(position);
        }
    }
}

/// Those that something is in.
fn populated(parent: &Parent, names: Vec<Name>) -> Result<Vec<Name>, CgroupError> {
    let mut populated = Vec::new();
    for name in names {
        if let Some(cgroup) = parent.child(&name)? {
            match cgroup.events() {
                Ok(events) if events.populated => populated.push(name),
                Ok(_) | Err(CgroupError::Absent { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(populated)
}
