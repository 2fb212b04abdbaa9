//! Starts of builds that are open: their place is made, and their process is born there (G3 to G10).

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use dunnage_runtime::cgroup::{Cgroup, CgroupError, Intent};
use dunnage_runtime::driver;
use dunnage_runtime::generation::{Failure, Launched, Process, Role, Source as Origin, StartId, Tier};
use dunnage_runtime::sys::Task;

use super::Shim;
use super::cgroups::first_child;
use super::runs::Run;
use crate::generations::Particulars;
use crate::log::rfc3339;
use crate::source::{ServiceSource, Source};
use crate::staged::{Context, NotStarted, Place, Preparation, Prepared, Start, Started};

/// How long a process may take from its birth to its program: one that is frozen meanwhile is killed then.
const BIRTH_LIMIT: Duration = Duration::from_secs(10);

/// A start on its way.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) id: StartId,
    pub(super) role: Role,
    pub(super) key: u32,
    pub(super) origin: Origin,
    /// The limits asked for.
    pub(super) tier: Option<Tier>,
    /// What is executed, once that is known.
    pub(super) path: PathBuf,
    pub(super) build: String,
    pub(super) stage: Stage,
}

/// How far it is.
#[derive(Debug)]
pub(super) enum Stage {
    /// The live link is followed.
    Resolving(Task),
    /// The build is opened and checked.
    Opening(Preparation),
    /// It is open.
    Opened(Prepared),
    /// Its cgroup's name is not free yet.
    Waiting(Prepared, Tier),
    /// All is there.
    Ready(Prepared, Place, Cgroup),
    /// Its process is to execute the program.
    Born { start: Start, until: Instant },
    /// It goes from one to the other.
    Over,
}

impl Starting {
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self.stage {
            Stage::Born { until, .. } => Some(until),
            _ => None,
        }
    }
}

impl Shim {
    pub(super) fn prepare_start(&mut self, id: StartId, tier: Tier, now: Instant) {
        let Some(start) = self.starts.iter_mut().find(|start| start.id == id) else { return };
        let role = start.role;
        match std::mem::replace(&mut start.stage, Stage::Over) {
            Stage::Opened(prepared) => start.stage = Stage::Waiting(prepared, tier),
            other => start.stage = other,
        }
        if !self.cgroups.removals.iter().any(|removal| removal.name == first_child(role)) {
            self.go_on_preparing(role, now);
        }
    }

    /// Makes the place of a start that waits for its cgroup's name, if there is one in that role.
    pub(super) fn go_on_preparing(&mut self, role: Role, now: Instant) {
        let waits = |start: &Starting| start.role == role && matches!(start.stage, Stage::Waiting(..));
        let Some(position) = self.starts.iter().position(waits) else { return };
        let start = &mut self.starts[position];
        let Stage::Waiting(prepared, tier) = std::mem::replace(&mut start.stage, Stage::Over) else { return };
        let id = start.id;
        let made = self.make_place(position, &prepared, &tier);
        let result = made.map(|(place, cgroup)| {
            self.starts[position].stage = Stage::Ready(prepared, place, cgroup);
        });
        self.generations.handle_prepared(now, id, result);
    }

    fn make_place(&mut self, position: usize, prepared: &Prepared, tier: &Tier) -> Result<(Place, Cgroup), Failure> {
        let start = &self.starts[position];
        let (role, key) = (start.role, start.key);
        let particulars = Particulars { path: start.path.clone(), owner: prepared.owner(), started: None };
        let variables = self.variables(role, &start.build);
        let cgroup = self.cgroups.parent()?.make(&first_child(role), tier).map_err(refused)?;
        // From here on there is something to be undone.
        self.runs.insert(role, Run::new(key, particulars));
        let failed = |error: &dyn std::fmt::Display| Failure::LaunchFailed(error.to_string());
        let Some(directories) = &self.directories else { return Err(failed(&"there is no run directory")) };
        let layout = &self.config.service.layout;
        let Some(run) = self.runs.get_mut(&role) else { return Err(failed(&"it is not known")) };
        let [stdout, stderr] = run.make(&self.event_loop, layout, directories, role).map_err(|error| failed(&error))?;
        let stdin = File::open("/dev/null").map_err(|error| failed(&format!("/dev/null: {error}")))?;
        let held = cgroup.as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
        let place = Place {
            cgroup: held,
            stdio: [stdin.into(), stdout, stderr],
            variables,
            oom_score_adj: self.oom_score.original,
        };
        Ok((place, cgroup))
    }

    /// What a process is told beside its manifest's environment (G10). A sidecar hears of its generation's socket.
    fn variables(&self, role: Role, build: &str) -> Vec<CString> {
        let number = match role {
            Role::Generation(number) => Some(number),
            Role::Sidecar => self.generations.record().sidecar.as_ref().map(|sidecar| sidecar.of),
            Role::Worker => None,
        };
        let sockets = number.and_then(|number| self.config.service.layout.sockets(number));
        let notifies = matches!(role, Role::Generation(_));
        let own = [
            ("DUNNAGE_BUILD", Some(build.as_bytes().to_vec())),
            ("DUNNAGE_GENERATION", number.map(|number| number.to_string().into_bytes())),
            ("DUNNAGE_SOCKET", sockets.as_ref().map(|sockets| sockets.socket.as_os_str().as_bytes().to_vec())),
            ("NOTIFY_SOCKET", sockets.filter(|_| notifies).map(|its| its.control.into_os_string().into_vec())),
        ];
        let set = |(name, value): (&str, Option<Vec<u8>>)| {
            // Neither a name of a file nor a checked build has a NUL in it.
            CString::new([name.as_bytes(), b"=", &value?].concat()).ok()
        };
        own.into_iter().filter_map(set).collect()
    }

    pub(super) fn launch(&mut self, id: StartId, now: Instant) {
        let Some(position) = self.starts.iter().position(|start| start.id == id) else { return };
        let start = &mut self.starts[position];
        let Stage::Ready(prepared, place, cgroup) = std::mem::replace(&mut start.stage, Stage::Over) else { return };
        if cgroup.events().is_ok_and(|events| events.frozen) {
            let reason = format!("{} is frozen, or a cgroup above it is", cgroup.path().display());
            return self.generations.handle_launched(now, id, Launched::Nothing(reason));
        }
        let source = Source::Service(ServiceSource::Birth(start.key));
        let mut context = Context { driver: &mut self.driver, event_loop: &self.event_loop, source };
        match Start::begin(&mut context, prepared, place) {
            Ok(begun) => start.stage = Stage::Born { start: begun, until: now + BIRTH_LIMIT },
            Err(not_started) => self.finish_launch(position, Err(not_started), now),
        }
    }

    /// Something is known of a process that is to execute its program.
    pub(super) fn handle_birth(&mut self, key: u32, now: Instant) {
        let Some(position) = self.starts.iter().position(|start| start.key == key) else { return };
        let Stage::Born { start, .. } = &mut self.starts[position].stage else { return };
        let source = Source::Service(ServiceSource::Birth(key));
        let mut context = Context { driver: &mut self.driver, event_loop: &self.event_loop, source };
        if let Some(result) = start.advance(&mut context) {
            self.finish_launch(position, result, now);
        }
    }

    fn finish_launch(&mut self, position: usize, result: Result<Started, NotStarted>, now: Instant) {
        let Starting { id, role, .. } = self.starts[position];
        let launched = match result {
            Ok(Started { child, pid }) => {
                if let Some(run) = self.runs.get_mut(&role) {
                    run.leader = Some(child);
                    run.particulars.started = Some(rfc3339(SystemTime::now()));
                }
                // It is not reaped before the next turn, so this is its own.
                match driver::start_time(pid) {
                    Some(start_time) => Launched::Running(Process { pid: pid.as_raw(), start_time }),
                    None => Launched::Uncertain(format!("/proc does not tell when process {pid} started")),
                }
            }
            Err(NotStarted::Failed(reason)) => Launched::Nothing(reason),
            Err(NotStarted::Uncertain(reason, Started { child, .. })) => {
                if let Some(run) = self.runs.get_mut(&role) {
                    run.leader = Some(child);
                }
                Launched::Uncertain(reason)
            }
        };
        if !matches!(launched, Launched::Nothing(_)) {
            self.starts.remove(position);
        }
        self.generations.handle_launched(now, id, launched);
    }

    /// A process that does not come to its program in time hangs in a cgroup that was frozen: it is killed there.
    pub(super) fn handle_launch_timeouts(&mut self, now: Instant) {
        for position in 0..self.starts.len() {
            let role = self.starts[position].role;
            let Stage::Born { until, .. } = &mut self.starts[position].stage else { continue };
            if *until > now {
                continue;
            }
            *until = now + BIRTH_LIMIT;
            let _raised = dunnage_runtime::privileges::raise();
            let killed = self.cgroups.parent().map_err(|failure| failure.to_string()).and_then(|parent| {
                let begun = super::killing::begin(parent, first_child(role), Intent::Kill, now);
                begun.and_then(|mut eviction| eviction.advance(parent, now)).map_err(|error| error.to_string())
            });
            if let Err(error) = killed {
                log::warn!("{role} does not come to its program, and cannot be killed: {error}");
            }
        }
    }

    /// Undoes a start of which nothing was executed.
    pub(super) fn discard(&mut self, id: StartId, now: Instant) {
        let Some(position) = self.starts.iter().position(|start| start.id == id) else { return };
        let Starting { role, key, stage, .. } = self.starts.remove(position);
        match &stage {
            Stage::Resolving(task) => self.event_loop.unwatch(task),
            Stage::Opening(preparation) => self.event_loop.unwatch(preparation),
            _ => {}
        }
        // What runs in that role already is another's.
        if self.runs.get(&role).is_some_and(|run| run.key == key) {
            self.dismantle(role, now);
            self.remove_cgroup(&first_child(role), now);
        }
    }
}

/// What was found wrong before anything was tried is a refusal.
fn refused(error: CgroupError) -> Failure {
    match error {
        CgroupError::Io { .. } | CgroupError::Refused { .. } => Failure::LaunchFailed(error.to_string()),
        error => Failure::Refused(error.to_string()),
    }
}
