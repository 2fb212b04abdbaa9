//! Starts of builds that are open: their place is made, and their process is born there, or their container is created
//! (G3 to G10).

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use dunnage_runtime::cgroup::{Cgroup, CgroupError, Intent, Name};
use dunnage_runtime::driver;
use dunnage_runtime::generation::{Failure, Launched, Process, Role, Source as Origin, StartId, Tier};
use dunnage_runtime::reaper::Outcome;
use dunnage_runtime::sys::Task;

use super::Shim;
use super::build::{Build, Kind, Opening};
use super::containers::{Clearing, Plan};
use super::runs::Run;
use crate::generations::Particulars;
use crate::log::rfc3339;
use crate::source::{ServiceSource, Source};
use crate::staged::bundle::{HOME, Writing};
use crate::staged::container::Creation;
use crate::staged::{Context, NotStarted, Place, Prepared, Start, Started};

/// How long a process may take from its birth to its program: one that is frozen meanwhile is killed then.
const BIRTH_LIMIT: Duration = Duration::from_secs(10);

/// How long after one look at a process in the middle of its execve, or of its end, the next one comes.
const SETTLING_PAUSE: Duration = Duration::from_millis(1);

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
    Opening(Opening),
    /// It is open.
    Opened(Build),
    /// Its cgroup's name is not free yet.
    Waiting(Build, Tier),
    /// What the runtime gets is written.
    Writing(Writing, Plan, Cgroup),
    /// All is there.
    Ready(Ready, Cgroup),
    /// Its process is to execute the program. `look_at`: when it is looked at without being told.
    Born { start: Start, until: Instant, look_at: Option<Instant> },
    /// The runtime creates and starts its container.
    Creating(Creation),
    /// What a failed creation left is killed.
    Clearing(Clearing),
    /// It goes from one to the other.
    Over,
}

/// What can be launched.
#[derive(Debug)]
pub(super) enum Ready {
    Process(Box<(Prepared, Place)>),
    Container(Plan),
}

impl Starting {
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self.stage {
            Stage::Born { until, look_at, .. } => Some(look_at.map_or(until, |at| at.min(until))),
            Stage::Creating(ref creation) => creation.next_timeout(),
            Stage::Clearing(ref clearing) => Some(clearing.next_timeout()),
            _ => None,
        }
    }

    /// What it is at. Whoever takes that says what comes next.
    pub(super) fn take_stage(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Over)
    }

    /// Whether that is about the creation of its container.
    pub(super) fn creates(&self, outcome: &Outcome) -> bool {
        matches!(&self.stage, Stage::Creating(creation) if creation.concerns(outcome))
    }
}

impl Shim {
    pub(super) fn prepare_start(&mut self, id: StartId, tier: Tier, now: Instant) {
        let Some(start) = self.starts.iter_mut().find(|start| start.id == id) else { return };
        let role = start.role;
        match start.take_stage() {
            Stage::Opened(build) => start.stage = Stage::Waiting(build, tier),
            other => start.stage = other,
        }
        self.go_on_preparing(role, now);
    }

    /// Makes the place of a start that waits for its cgroup's name, and its container's, if there is one in that role.
    pub(super) fn go_on_preparing(&mut self, role: Role, now: Instant) {
        if self.cgroups.removals.iter().any(|removal| removal.name == Name::of(role)) || self.is_deleting(role) {
            return;
        }
        let waits = |start: &Starting| start.role == role && matches!(start.stage, Stage::Waiting(..));
        let Some(position) = self.starts.iter().position(waits) else { return };
        let start = &mut self.starts[position];
        let Stage::Waiting(build, tier) = start.take_stage() else { return };
        let id = start.id;
        match self.make_place(position, build, tier) {
            Ok(stage @ Stage::Writing(..)) => self.starts[position].stage = stage,
            Ok(stage) => {
                self.starts[position].stage = stage;
                self.generations.handle_prepared(now, id, Ok(()));
            }
            Err(failure) => self.generations.handle_prepared(now, id, Err(failure)),
        }
    }

    /// What the runtime gets may be written.
    pub(super) fn go_on_writing(&mut self, position: usize, now: Instant) {
        let Stage::Writing(mut writing, plan, cgroup) = self.starts[position].take_stage() else { return };
        let Some(written) = writing.advance() else {
            self.starts[position].stage = Stage::Writing(writing, plan, cgroup);
            return;
        };
        self.event_loop.unwatch(&writing);
        let start = &mut self.starts[position];
        let id = start.id;
        let result = written.map_err(Failure::LaunchFailed).map(|()| {
            start.stage = Stage::Ready(Ready::Container(plan), cgroup);
        });
        self.generations.handle_prepared(now, id, result);
    }

    fn make_place(&mut self, position: usize, build: Build, tier: Tier) -> Result<Stage, Failure> {
        let start = &self.starts[position];
        let (role, key) = (start.role, start.key);
        let particulars = Particulars { path: start.path.clone(), owner: build.owner(), started: None };
        let variables = self.variables(role, &start.build);
        let cgroup = self.cgroups.parent()?.make(&Name::of(role), &tier).map_err(refused)?;
        // From here on there is something to be undone.
        self.runs.insert(role, Run::new(key, particulars));
        let failed = |error: &dyn std::fmt::Display| Failure::LaunchFailed(error.to_string());
        let Some(directories) = &self.directories else { return Err(failed(&"there is no run directory")) };
        let layout = &self.config.service.layout;
        let Some(run) = self.runs.get_mut(&role) else { return Err(failed(&"it is not known")) };
        let [stdout, stderr] = run.make(&self.event_loop, layout, directories, role).map_err(|error| failed(&error))?;
        let null = File::open("/dev/null").map_err(|error| failed(&format!("/dev/null: {error}")))?;
        let stdio = [null.into(), stdout, stderr];
        match build {
            Build::Executable(prepared) => {
                let held = cgroup.as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
                let place = Place { cgroup: held, stdio, variables, oom_score_adj: self.oom_score.original };
                Ok(Stage::Ready(Ready::Process(Box::new((prepared, place))), cgroup))
            }
            Build::Bundle(bundle) => {
                let (writing, plan) = self.plan_container(role, key, &bundle, tier, &variables, stdio)?;
                Ok(Stage::Writing(writing, plan, cgroup))
            }
        }
    }

    /// What a process is told beside its manifest's environment (G10). A sidecar hears of its generation's socket.
    fn variables(&self, role: Role, build: &str) -> Vec<CString> {
        let number = self.generation_of(role);
        let sockets = number.and_then(|number| self.config.service.layout.sockets(number));
        let sockets = match self.kind_of(role) {
            Kind::Executable => sockets,
            Kind::Bundle => sockets.map(|its| its.inside(HOME.as_ref())),
        };
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
        let Stage::Ready(ready, cgroup) = start.take_stage() else { return };
        if cgroup.events().is_ok_and(|events| events.frozen) {
            let reason = format!("{} is frozen, or a cgroup above it is", cgroup.path().display());
            return self.generations.handle_launched(now, id, Launched::Nothing(reason));
        }
        let source = Source::Service(ServiceSource::Birth(start.key));
        let begun = match ready {
            Ready::Process(process) => {
                let (prepared, place) = *process;
                let mut context = Context { driver: &mut self.driver, event_loop: &self.event_loop, source };
                let begun = Start::begin(&mut context, prepared, place);
                begun.map(|start| Stage::Born { start, until: now + BIRTH_LIMIT, look_at: None })
            }
            Ready::Container(plan) => self.create_container(plan, now).map(Stage::Creating),
        };
        match begun {
            Ok(stage) => self.starts[position].stage = stage,
            Err(not_started) => self.finish_launch(position, Err(not_started), None, now),
        }
    }

    /// Something is known of a process that is to execute its program.
    pub(super) fn handle_birth(&mut self, key: u32, now: Instant) {
        let Some(position) = self.starts.iter().position(|start| start.key == key) else { return };
        let Stage::Born { start, look_at, .. } = &mut self.starts[position].stage else { return };
        let source = Source::Service(ServiceSource::Birth(key));
        let mut context = Context { driver: &mut self.driver, event_loop: &self.event_loop, source };
        let advanced = start.advance(&mut context);
        *look_at = start.is_settling().then(|| now + SETTLING_PAUSE);
        if let Some(result) = advanced {
            // It is not reaped before the next turn, so this is its own.
            let start_time = result.as_ref().ok().and_then(|started| driver::start_time(started.pid));
            self.finish_launch(position, result, start_time, now);
        }
    }

    pub(super) fn finish_launch(
        &mut self,
        position: usize,
        result: Result<Started, NotStarted>,
        start_time: Option<u64>,
        now: Instant,
    ) {
        let Starting { id, role, .. } = self.starts[position];
        let launched = match result {
            Ok(Started { child, pid }) => {
                if let Some(run) = self.runs.get_mut(&role) {
                    run.leader = Some(child);
                    run.particulars.started = Some(rfc3339(SystemTime::now()));
                }
                match start_time {
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
        let is_due = |start: &&Starting| matches!(start.stage, Stage::Born { look_at: Some(at), .. } if at <= now);
        for key in self.starts.iter().filter(is_due).map(|start| start.key).collect::<Vec<_>>() {
            self.handle_birth(key, now);
        }
        for position in 0..self.starts.len() {
            let role = self.starts[position].role;
            let Stage::Born { until, .. } = &mut self.starts[position].stage else { continue };
            if *until > now {
                continue;
            }
            *until = now + BIRTH_LIMIT;
            let _raised = dunnage_runtime::privileges::raise();
            let killed = self.cgroups.parent().map_err(|failure| failure.to_string()).and_then(|parent| {
                let begun = super::killing::begin(parent, Name::of(role), Intent::Kill, now);
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
            Stage::Opening(opening) => self.event_loop.unwatch(opening),
            Stage::Writing(writing, ..) => self.event_loop.unwatch(writing),
            _ => {}
        }
        // What runs in that role already is another's.
        if self.runs.get(&role).is_some_and(|run| run.key == key) {
            self.dismantle(role, now);
            match stage {
                // It was launched.
                Stage::Over => self.delete_container(role, now),
                _ => self.remove_bundle(role),
            }
            self.remove_cgroup(&Name::of(role), now);
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
