//! Starts: a build is opened and checked by tasks, its place is made, and its process is born there (G3 to G10).

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use dunnage_runtime::cgroup::{Cgroup, CgroupError, Intent};
use dunnage_runtime::driver;
use dunnage_runtime::event_loop::Interest;
use dunnage_runtime::generation::{Failure, Launched, Opened, Process, Role, Source as Origin, StartId, Tier};
use dunnage_runtime::sys::{Answer, Task};

use super::Shim;
use super::cgroups::first_child;
use super::runs::Run;
use crate::generations::{Digest, Layout, Particulars};
use crate::log::rfc3339;
use crate::source::{ServiceSource, Source};
use crate::staged::{Context, NotStarted, Place, Preparation, Prepared, Staged, Start, Started};

/// How long a process may take from its birth to its program: one that is frozen meanwhile is killed then.
const BIRTH_LIMIT: Duration = Duration::from_secs(10);

/// A start on its way.
#[derive(Debug)]
pub(super) struct Starting {
    id: StartId,
    pub(super) role: Role,
    key: u32,
    origin: Origin,
    /// The limits asked for.
    pub(super) tier: Option<Tier>,
    /// What is executed, once that is known.
    pub(super) path: PathBuf,
    pub(super) build: String,
    stage: Stage,
}

/// How far it is.
#[derive(Debug)]
enum Stage {
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
    pub(super) fn open(&mut self, id: StartId, role: Role, origin: Origin, tier: Option<Tier>, now: Instant) {
        let key = self.take_key();
        let (path, build) = match &origin {
            Origin::Staged { path, build, .. } | Origin::Sidecar { path, build } => (path.clone(), build.clone()),
            Origin::Live { .. } => (PathBuf::new(), String::new()),
        };
        match self.begin_opening(&origin, key) {
            Ok(stage) => self.starts.push(Starting { id, role, key, origin, tier, path, build, stage }),
            Err(failure) => self.generations.handle_opened(now, id, Err(failure)),
        }
    }

    fn begin_opening(&mut self, origin: &Origin, key: u32) -> Result<Stage, Failure> {
        if let Layout::Nested(..) = self.config.service.layout {
            // The one place where a nested start would begin.
            return Err(Failure::Refused("the nested layout is not served by this version yet".into()));
        }
        match origin {
            Origin::Live { .. } => {
                let link = self.config.service.live_link.clone();
                let link = link.ok_or_else(|| Failure::Refused("the service file has no live_link".into()))?;
                let task = self.driver.start_task(&self.event_loop, &[], move || resolve(&link));
                let task = task.and_then(|task| self.watch_task(&task, key).map(|()| task));
                task.map(Stage::Resolving).map_err(|error| cannot_begin(&error))
            }
            Origin::Staged { path, digest, .. } => self.prepare_build(path.clone(), digest.as_deref(), key),
            Origin::Sidecar { path, .. } => self.prepare_build(path.clone(), None, key),
        }
    }

    fn prepare_build(&mut self, path: PathBuf, digest: Option<&str>, key: u32) -> Result<Stage, Failure> {
        let digest = digest.map(str::parse::<Digest>).transpose();
        let digest = digest.map_err(|error| Failure::Refused(format!("digest: {error}")))?;
        let preparation = Preparation::start(&mut self.driver, &self.event_loop, Staged { path, digest });
        let preparation = preparation.and_then(|task| self.watch_task(&task, key).map(|()| task));
        preparation.map(Stage::Opening).map_err(|error| cannot_begin(&error))
    }

    fn watch_task(&self, task: &impl AsFd, key: u32) -> io::Result<()> {
        self.event_loop.watch(task, Source::Service(ServiceSource::Task(key)), Interest::READABLE)
    }

    /// A task of a start may be over.
    pub(super) fn handle_opening(&mut self, key: u32, now: Instant) {
        let Some(position) = self.starts.iter().position(|start| start.key == key) else { return };
        let stage = std::mem::replace(&mut self.starts[position].stage, Stage::Over);
        let advanced = match stage {
            Stage::Resolving(mut task) => match task.advance() {
                None => Ok(Stage::Resolving(task)),
                Some(answer) => {
                    self.event_loop.unwatch(&task);
                    let path = answer.map_err(|error| Failure::Refused(error.to_string()));
                    path.and_then(|answer| self.open_resolved(position, answer))
                }
            },
            Stage::Opening(mut preparation) => match preparation.advance() {
                None => Ok(Stage::Opening(preparation)),
                Some(prepared) => {
                    self.event_loop.unwatch(&preparation);
                    prepared.map(Stage::Opened).map_err(Failure::Refused)
                }
            },
            other => Ok(other),
        };
        let start = &mut self.starts[position];
        match advanced {
            Ok(stage) => {
                start.stage = stage;
                if let Stage::Opened(prepared) = &mut start.stage {
                    let (id, role) = (start.id, start.role);
                    if let (Role::Sidecar, Some(args)) = (role, &self.config.service.sidecar_args) {
                        // Checked when the service file was read.
                        prepared.set_args(args.iter().filter_map(|arg| CString::new(arg.as_str()).ok()).collect());
                    }
                    let tier = start.tier.or(prepared.manifest().tier).unwrap_or(self.config.service.tier);
                    let digest = match &start.origin {
                        Origin::Staged { digest, .. } | Origin::Live { digest, .. } => digest.clone(),
                        Origin::Sidecar { .. } => None,
                    };
                    let opened = Opened { build: start.build.clone(), digest, tier };
                    self.generations.handle_opened(now, id, Ok(opened));
                }
            }
            Err(failure) => {
                let id = self.starts.remove(position).id;
                self.generations.handle_opened(now, id, Err(failure));
            }
        }
    }

    /// The live link was followed: what it led to is what is meant from here on (G30).
    fn open_resolved(&mut self, position: usize, answer: Answer) -> Result<Stage, Failure> {
        let path = PathBuf::from(std::ffi::OsString::from_vec(answer.bytes));
        let build = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let start = &mut self.starts[position];
        let Origin::Live { build: expected, digest } = start.origin.clone() else {
            return Err(Failure::Refused("it is no cold start".into()));
        };
        if let Some(expected) = expected.filter(|expected| *expected != build) {
            return Err(Failure::Refused(format!("the live link leads to build {build}, not to {expected}")));
        }
        start.path.clone_from(&path);
        start.build = build;
        let key = start.key;
        self.prepare_build(path, digest.as_deref(), key)
    }

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

/// The task's part: where the live link leads, past all links.
fn resolve(link: &Path) -> Result<Answer, String> {
    let led =
        fs::canonicalize(link).map_err(|error| format!("cannot follow the live link {}: {error}", link.display()))?;
    if led.file_name().is_none_or(OsStr::is_empty) {
        return Err(format!("the live link {} leads to {}, which is no build", link.display(), led.display()));
    }
    Ok(Answer { bytes: led.into_os_string().into_vec(), fds: Vec::new() })
}

fn cannot_begin(error: &io::Error) -> Failure {
    Failure::LaunchFailed(format!("cannot start the task that prepares it: {error}"))
}

/// What was found wrong before anything was tried is a refusal.
fn refused(error: CgroupError) -> Failure {
    match error {
        CgroupError::Io { .. } | CgroupError::Refused { .. } => Failure::LaunchFailed(error.to_string()),
        error => Failure::Refused(error.to_string()),
    }
}
