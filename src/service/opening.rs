//! Opening of builds: tasks follow the live link, open and check what is to be executed, and read its manifest (G4, G9,
//! G30).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use dunnage_runtime::event_loop::Interest;
use dunnage_runtime::generation::{Failure, Opened, Role, Source as Origin, StartId, Tier};
use dunnage_runtime::sys::Answer;

use super::Shim;
use super::build::Opening;
use super::starting::{Stage, Starting};
use crate::generations::Digest;
use crate::source::{ServiceSource, Source};
use crate::staged::Staged;

impl Shim {
    pub(super) fn open(&mut self, id: StartId, role: Role, origin: Origin, tier: Option<Tier>, now: Instant) {
        let key = self.take_key();
        let (path, build) = match &origin {
            Origin::Staged { path, build, .. } | Origin::Sidecar { path, build } => (path.clone(), build.clone()),
            Origin::Live { .. } => (PathBuf::new(), String::new()),
        };
        match self.begin_opening(&origin, role, key) {
            Ok(stage) => self.starts.push(Starting { id, role, key, origin, tier, path, build, stage }),
            Err(failure) => self.generations.handle_opened(now, id, Err(failure)),
        }
    }

    fn begin_opening(&mut self, origin: &Origin, role: Role, key: u32) -> Result<Stage, Failure> {
        match origin {
            Origin::Live { .. } => {
                let link = self.config.service.live_link.clone();
                let link = link.ok_or_else(|| Failure::Refused("the service file has no live_link".into()))?;
                let task = self.driver.start_task(&self.event_loop, &[], move || resolve(&link));
                let task = task.and_then(|task| self.watch_task(task, key));
                task.map(Stage::Resolving).map_err(|error| cannot_begin(&error))
            }
            Origin::Staged { path, digest, .. } => self.open_build(role, path.clone(), digest.as_deref(), key),
            Origin::Sidecar { path, .. } => self.open_build(role, path.clone(), None, key),
        }
    }

    fn open_build(&mut self, role: Role, path: PathBuf, digest: Option<&str>, key: u32) -> Result<Stage, Failure> {
        let digest = digest.map(str::parse::<Digest>).transpose();
        let digest = digest.map_err(|error| Failure::Refused(format!("digest: {error}")))?;
        let staged = Staged { path, digest };
        let opening = Opening::start(self.kind_of(role), &mut self.driver, &self.event_loop, staged);
        let opening = opening.and_then(|task| self.watch_task(task, key));
        opening.map(Stage::Opening).map_err(|error| cannot_begin(&error))
    }

    /// A task whose answer is waited for under this number.
    pub(super) fn watch_task<T: AsFd>(&self, task: T, key: u32) -> io::Result<T> {
        self.event_loop.watch(&task, Source::Service(ServiceSource::Task(key)), Interest::READABLE)?;
        Ok(task)
    }

    /// A task of a start may be over.
    pub(super) fn handle_opening(&mut self, key: u32, now: Instant) {
        let Some(position) = self.starts.iter().position(|start| start.key == key) else { return };
        if matches!(self.starts[position].stage, Stage::Writing(..)) {
            return self.go_on_writing(position, now);
        }
        match self.advance_opening(position) {
            Ok(stage) => {
                let opened = matches!(stage, Stage::Opened(_));
                self.starts[position].stage = stage;
                if opened {
                    self.tell_opened(position, now);
                }
            }
            Err(failure) => {
                let id = self.starts.remove(position).id;
                self.generations.handle_opened(now, id, Err(failure));
            }
        }
    }

    fn advance_opening(&mut self, position: usize) -> Result<Stage, Failure> {
        match self.starts[position].take_stage() {
            Stage::Resolving(mut task) => match task.advance() {
                None => Ok(Stage::Resolving(task)),
                Some(answer) => {
                    self.event_loop.unwatch(&task);
                    let answer = answer.map_err(|error| Failure::Refused(error.to_string()))?;
                    self.open_resolved(position, answer)
                }
            },
            Stage::Opening(mut opening) => match opening.advance() {
                None => Ok(Stage::Opening(opening)),
                Some(build) => {
                    self.event_loop.unwatch(&opening);
                    build.map(Stage::Opened).map_err(Failure::Refused)
                }
            },
            other => Ok(other),
        }
    }

    fn tell_opened(&mut self, position: usize, now: Instant) {
        let start = &mut self.starts[position];
        let Stage::Opened(build) = &mut start.stage else { return };
        if let (Role::Sidecar, Some(args)) = (start.role, &self.config.service.sidecar_args) {
            build.set_args(args);
        }
        let tier = start.tier.or(build.tier()).unwrap_or(self.config.service.tier);
        let digest = match &start.origin {
            Origin::Staged { digest, .. } | Origin::Live { digest, .. } => digest.clone(),
            Origin::Sidecar { .. } => None,
        };
        let opened = Opened { build: start.build.clone(), digest, tier };
        self.generations.handle_opened(now, start.id, Ok(opened));
    }

    /// The live link was followed: what it led to is what is meant from here on (G30).
    fn open_resolved(&mut self, position: usize, answer: Answer) -> Result<Stage, Failure> {
        let path = PathBuf::from(OsString::from_vec(answer.bytes));
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
        let (role, key) = (start.role, start.key);
        self.open_build(role, path, digest.as_deref(), key)
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
