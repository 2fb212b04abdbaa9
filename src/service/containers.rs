//! The containers of a nested service: their private bundles, their creation by the OCI runtime, and their deletion (G3).

use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use dunnage_runtime::cgroup::{CgroupError, Eviction, Intent, Name, Proof};
use dunnage_runtime::event_loop::Interest;
use dunnage_runtime::generation::{Failure, Found, Launched, Number, Role, Tier};
use dunnage_runtime::reaper::Outcome;
use log::warn;

use super::Shim;
use super::build::Kind;
use super::killing::{begin, look};
use super::runs::short_name;
use super::starting::Stage;
use crate::generations::Layout;
use crate::source::{ServiceSource, Source};
use crate::staged::NotStarted;
use crate::staged::bundle::{self, Bundle, CgroupsPath, Place, PrivateBundle, Writing};
use crate::staged::container::{Caller, Container, Context, Created, Creation, Deletion};

/// How long what a failed creation leaves may take to die.
const CLEARING_LIMIT: Duration = Duration::from_secs(10);

/// A container that can be created.
#[derive(Debug)]
pub(super) struct Plan {
    container: Container,
    /// As the runtime names it.
    cgroup: String,
    stdio: [OwnedFd; 3],
}

/// What a failed creation has left in its cgroup is killed, so that nothing is left of it.
#[derive(Debug)]
pub(super) struct Clearing {
    eviction: Eviction,
    reason: String,
    until: Instant,
}

impl Clearing {
    pub(super) fn next_timeout(&self) -> Instant {
        self.eviction.next_timeout().min(self.until)
    }
}

impl Shim {
    /// What is started in that role. A worker is a process of the shim's whatever the layout (G32).
    pub(super) fn kind_of(&self, role: Role) -> Kind {
        match (&self.config.service.layout, role) {
            (Layout::Nested(..), Role::Generation(_) | Role::Sidecar) => Kind::Bundle,
            _ => Kind::Executable,
        }
    }

    /// Begins to write the private bundle.
    pub(super) fn plan_container(
        &mut self,
        role: Role,
        key: u32,
        bundle: &Bundle,
        tier: Tier,
        variables: &[CString],
        stdio: [OwnedFd; 3],
    ) -> Result<(Writing, Plan), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::LaunchFailed(error.to_string());
        let Layout::Nested(places, _) = &self.config.service.layout else { return Err(failed(&"it is not nested")) };
        let parent = CgroupsPath::of(&places.cgroup).map_err(Failure::Refused)?;
        let home = self.generation_of(role).and_then(|number| self.config.service.layout.sockets(number));
        let home = home.and_then(|sockets| Some(sockets.socket.parent()?.to_owned()));
        let home = home.ok_or_else(|| failed(&"it is no generation's"))?;
        let variables = variables.iter().map(|variable| variable.to_str().map(str::to_owned)).collect::<Result<_, _>>();
        let variables = variables.map_err(|_| failed(&"the run directory's path is no UTF-8"))?;
        let place = Place { cgroup: parent.child(&Name::of(role)), tier, home, variables };
        let Some(directories) = &self.directories else { return Err(failed(&"there is no run directory")) };
        let (Some(container), Some(name)) = (self.container(role), self.bundle_name(role)) else {
            return Err(failed(&"it is no container"));
        };
        let writing = Writing::start(&mut self.driver, &self.event_loop, &directories.run, &name, bundle, &place);
        let writing = writing.and_then(|task| self.watch_task(task, key));
        let writing =
            writing.map_err(|error| failed(&format!("cannot start the task that writes its bundle: {error}")))?;
        Ok((writing, Plan { container, cgroup: place.cgroup, stdio }))
    }

    /// The generation that the role is, or works for.
    pub(super) fn generation_of(&self, role: Role) -> Option<Number> {
        match role {
            Role::Generation(number) => Some(number),
            Role::Sidecar => self.generations.record().sidecar.as_ref().map(|sidecar| sidecar.of),
            Role::Worker => None,
        }
    }

    /// The name of the private bundle in the run directory.
    fn bundle_name(&self, role: Role) -> Option<OsString> {
        match &self.config.service.layout {
            Layout::Nested(places, _) if role != Role::Worker => Some(places.bundle(&short_name(role))),
            _ => None,
        }
    }

    fn container(&self, role: Role) -> Option<Container> {
        let places = self.config.service.layout.places()?;
        let bundle = PrivateBundle::at(&places.run_dir, &self.bundle_name(role)?);
        let mut id = places.service.clone();
        id.push("-");
        id.push(short_name(role));
        Some(Container { id, bundle })
    }

    /// What calls of the runtime go on in.
    fn runtime_context(&mut self, now: Instant) -> Option<Context<'_, Source>> {
        let Layout::Nested(_, runtime) = &self.config.service.layout else { return None };
        let mask = self.signals.original_mask();
        let caller = Caller { runtime, mask, oom_score_adj: self.oom_score.original };
        Some(Context { driver: &mut self.driver, event_loop: &self.event_loop, caller, now })
    }

    /// Has the runtime create what was planned.
    pub(super) fn create_container(&mut self, plan: Plan, now: Instant) -> Result<Creation, NotStarted> {
        let limit = self.config.timing.create_runtime_timeout;
        let Some(mut cx) = self.runtime_context(now) else { return Err(NotStarted::Failed("it is not nested".into())) };
        let Plan { container, cgroup, stdio } = plan;
        Creation::begin(&mut cx, container, cgroup, &stdio, limit).map_err(NotStarted::Failed)
    }

    /// A process or a call has ended. Whether it was one of a container's creation or deletion.
    pub(super) fn handle_runtime(&mut self, outcome: &Outcome, now: Instant) -> bool {
        if let Some(position) = self.deletions.iter().position(|(_, deletion)| deletion.handle(outcome)) {
            let _raised = dunnage_runtime::privileges::raise();
            let (role, _) = self.deletions.swap_remove(position);
            self.remove_bundle(role);
            self.go_on_preparing(role, now);
            return true;
        }
        let Some(position) = self.starts.iter().position(|start| start.creates(outcome)) else { return false };
        if let Stage::Creating(mut creation) = self.starts[position].take_stage() {
            let created = self.runtime_context(now).and_then(|mut cx| creation.handle(&mut cx, outcome));
            match created {
                None => self.starts[position].stage = Stage::Creating(creation),
                Some(created) => self.finish_creation(position, created, now),
            }
        }
        true
    }

    fn finish_creation(&mut self, position: usize, created: Created, now: Instant) {
        let Created { result, start_time, ended } = created;
        let role = self.starts[position].role;
        match result {
            Err(NotStarted::Failed(reason)) => self.begin_clearing(position, reason, now),
            result => {
                self.finish_launch(position, result, start_time, now);
                if let Some(status) = ended {
                    self.handle_leader_exit(role, status, now);
                }
            }
        }
    }

    /// Nothing was executed, but a runtime that was killed may have left what was to execute it.
    fn begin_clearing(&mut self, position: usize, reason: String, now: Instant) {
        let _raised = dunnage_runtime::privileges::raise();
        let role = self.starts[position].role;
        let left = self.cgroups.parent().map(|parent| look(parent, &Name::of(role)));
        if matches!(left, Ok(Found::Empty)) {
            return self.finish_launch(position, Err(NotStarted::Failed(reason)), None, now);
        }
        let begun = self
            .cgroups
            .parent()
            .map_err(|failure| failure.to_string())
            .and_then(|parent| begin(parent, Name::of(role), Intent::Kill, now).map_err(|error| error.to_string()));
        let key = self.starts[position].key;
        match begun {
            Ok(eviction) => {
                if let Some(events) = eviction.watched()
                    && let Err(error) =
                        self.event_loop.watch(&events, Source::Service(ServiceSource::Cgroup(key)), Interest::PRIORITY)
                {
                    // It is looked at again and again in any case.
                    warn!("cannot watch what the start of {role} left: {error}");
                }
                self.starts[position].stage =
                    Stage::Clearing(Clearing { eviction, reason, until: now + CLEARING_LIMIT });
                self.advance_clearing(key, now);
            }
            Err(error) => self.give_clearing_up(position, &reason, &error, now),
        }
    }

    /// The cgroup of a failed creation may be empty.
    pub(super) fn advance_clearing(&mut self, key: u32, now: Instant) {
        let Some(position) = self.starts.iter().position(|start| start.key == key) else { return };
        if !matches!(self.starts[position].stage, Stage::Clearing(_)) {
            return;
        }
        let Stage::Clearing(mut clearing) = self.starts[position].take_stage() else { return };
        let proof = match self.cgroups.parent() {
            Ok(parent) => clearing.eviction.advance(parent, now).map_err(|error: CgroupError| error.to_string()),
            Err(failure) => Err(failure.to_string()),
        };
        match proof {
            Ok(Proof::Empty) => {
                self.unwatch_clearing(&clearing);
                self.finish_launch(position, Err(NotStarted::Failed(clearing.reason)), None, now);
            }
            Ok(_) if clearing.until > now => self.starts[position].stage = Stage::Clearing(clearing),
            Ok(_) => {
                self.unwatch_clearing(&clearing);
                self.give_clearing_up(position, &clearing.reason, "its cgroup does not become empty", now);
            }
            Err(error) => {
                self.unwatch_clearing(&clearing);
                self.give_clearing_up(position, &clearing.reason, &error, now);
            }
        }
    }

    fn unwatch_clearing(&self, clearing: &Clearing) {
        if let Some(events) = clearing.eviction.watched() {
            self.event_loop.unwatch(&events);
        }
    }

    /// Nobody can prove that nothing is left.
    fn give_clearing_up(&mut self, position: usize, reason: &str, error: &str, now: Instant) {
        let id = self.starts.remove(position).id;
        let reason = format!("{reason}; what that left cannot be killed: {error}");
        self.generations.handle_launched(now, id, Launched::Uncertain(reason));
    }

    /// What is due of creations and deletions.
    pub(super) fn handle_runtime_timeouts(&mut self, now: Instant) {
        for position in 0..self.starts.len() {
            if self.starts[position].next_timeout().is_none_or(|at| at > now) {
                continue;
            }
            match self.starts[position].take_stage() {
                Stage::Creating(mut creation) => {
                    if let Some(mut cx) = self.runtime_context(now) {
                        creation.handle_timeout(&mut cx);
                    }
                    self.starts[position].stage = Stage::Creating(creation);
                }
                other => self.starts[position].stage = other,
            }
        }
        let clearing = |start: &super::starting::Starting| matches!(start.stage, Stage::Clearing(_));
        let due =
            self.starts.iter().filter(|start| clearing(start) && start.next_timeout().is_some_and(|at| at <= now));
        for key in due.map(|start| start.key).collect::<Vec<_>>() {
            self.advance_clearing(key, now);
        }
        let mut deletions = std::mem::take(&mut self.deletions);
        for (_, deletion) in &mut deletions {
            if let Some(mut cx) = self.runtime_context(now) {
                deletion.handle_timeout(&mut cx);
            }
        }
        self.deletions = deletions;
    }

    /// Has the runtime forget the container of what is proven gone, if it has one.
    pub(super) fn delete_container(&mut self, role: Role, now: Instant) {
        let Some(container) = self.container(role) else { return };
        let limit = self.config.timing.create_runtime_timeout;
        let begun = self.runtime_context(now).and_then(|mut cx| Deletion::begin(&mut cx, container, limit));
        match begun {
            Some(deletion) => self.deletions.push((role, deletion)),
            None => self.remove_bundle(role),
        }
    }

    /// Has the runtime forget what an earlier shim had no time for: what the record knows nothing of any more.
    pub(super) fn delete_forgotten(&mut self, now: Instant) {
        let Layout::Nested(places, _) = &self.config.service.layout else { return };
        // Without the directory there is nothing in it either.
        let names = std::fs::read_dir(&places.run_dir).into_iter().flatten().filter_map(Result::ok);
        let roles = names.filter_map(|entry| places.whose_bundle(&entry.file_name()).and_then(|name| named(&name)));
        let record = self.generations.record();
        for role in roles.filter(|&role| record.run(role).is_none() && !self.is_deleting(role)).collect::<Vec<_>>() {
            self.delete_container(role, now);
        }
    }

    /// Whether the container of an earlier one in that role is still being deleted.
    pub(super) fn is_deleting(&self, role: Role) -> bool {
        self.deletions.iter().any(|&(its, _)| its == role)
    }

    /// Removes the private bundle, if there is one.
    pub(super) fn remove_bundle(&self, role: Role) {
        let (Some(directories), Some(name)) = (&self.directories, self.bundle_name(role)) else { return };
        if let Err(error) = bundle::remove(&directories.run, &name) {
            warn!("the bundle {} stays: {error}", name.display());
        }
    }
}

/// Whose short name it is.
fn named(short_name: &str) -> Option<Role> {
    match short_name.strip_prefix('g') {
        Some(digits) => digits.parse().ok().and_then(Number::new).map(Role::Generation),
        None => (short_name == "sidecar").then_some(Role::Sidecar),
    }
}
