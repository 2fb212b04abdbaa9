//! Starting what was prepared: once more where the kernel killed it at birth, from a copy where its file changed.

use std::ffi::CString;
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use dunnage_runtime::driver::{Driver, Watched};
use dunnage_runtime::event_loop::{EventLoop, Interest, Source};
use dunnage_runtime::reaper::ChildId;
use dunnage_runtime::sys::{Answer, Birth, Failure, Launch, Progress, Step, Task, TaskError, Verdict, Way};
use nix::errno::Errno;
use nix::unistd::Pid;

use super::executable::{Executable, Guard};
use super::manifest::name_of;
use super::preparation::Prepared;

/// The loop that a start goes on in.
#[derive(Debug)]
pub(crate) struct Context<'a, S> {
    pub(crate) driver: &'a mut Driver,
    pub(crate) event_loop: &'a EventLoop<S>,
    /// The name that what the start waits for is watched under.
    pub(crate) source: S,
}

/// Where a process is started, and what the shim gives it.
#[derive(Debug)]
pub(crate) struct Place {
    /// The directory of its cgroup.
    pub(crate) cgroup: OwnedFd,
    /// stdin, which is /dev/null, stdout and stderr.
    pub(crate) stdio: [OwnedFd; 3],
    /// `NAME=VALUE` each, beside the manifest's.
    pub(crate) variables: Vec<CString>,
    /// What the shim's was before it protected itself.
    pub(crate) oom_score_adj: Option<i32>,
}

/// A process that has executed its program; the driver reports its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) child: ChildId,
    pub(crate) pid: Pid,
}

/// Why none has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotStarted {
    /// Nothing ran.
    Failed(String),
    /// It may have run, and may be running.
    Uncertain(String, Started),
}

/// A start on its way.
#[derive(Debug)]
pub(crate) struct Start {
    place: Place,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// A process is to execute the program.
    Born { prepared: Prepared, way: Way, child: ChildId, birth: Birth, settling: bool },
    /// The file is about to be changed: a copy of it is made.
    Copying { prepared: Prepared, task: Task },
    /// It is over.
    Over,
}

impl Start {
    /// Begins. [`Start::advance`] tells what comes of it, each time the source is readable, and in a moment wherever
    /// [`Start::is_settling`].
    pub(crate) fn begin<S: Source + From<Watched>>(
        cx: &mut Context<'_, S>,
        prepared: Prepared,
        place: Place,
    ) -> Result<Self, NotStarted> {
        let mut start = Self { place, stage: Stage::Over };
        start.launch(cx, prepared, Way::BornInside)?;
        Ok(start)
    }

    /// What came of it, once it is decided.
    pub(crate) fn advance<S: Source + From<Watched>>(
        &mut self,
        cx: &mut Context<'_, S>,
    ) -> Option<Result<Started, NotStarted>> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Born { prepared, way, child, birth, .. } => {
                let verdict = match birth.progress() {
                    Progress::Decided(verdict) => verdict,
                    undecided => {
                        let settling = undecided == Progress::Settling;
                        self.stage = Stage::Born { prepared, way, child, birth, settling };
                        return None;
                    }
                };
                cx.event_loop.unwatch(&birth);
                let started = Started { child, pid: birth.pid() };
                // It can be reaped from now on.
                cx.driver.watch_child(cx.event_loop, child, birth.into_spawned());
                self.settle(cx, prepared, way, verdict, started)
            }
            Stage::Copying { mut prepared, mut task } => {
                let Some(answer) = task.advance() else {
                    self.stage = Stage::Copying { prepared, task };
                    return None;
                };
                cx.event_loop.unwatch(&task);
                let copy = answer.map(|mut answer| answer.fds.pop());
                let launched = match copy {
                    Ok(Some(fd)) => {
                        prepared.executable = Executable::from_parts(fd, Guard::Seals);
                        self.launch(cx, prepared, Way::BornInside)
                    }
                    Ok(None) => Err(failed(&prepared, TaskError::Died)),
                    Err(error) => Err(failed(&prepared, error)),
                };
                launched.err().map(Err)
            }
            Stage::Over => None,
        }
    }

    /// Whether it is to be decided by another look, as nothing tells of it.
    pub(crate) fn is_settling(&self) -> bool {
        matches!(self.stage, Stage::Born { settling: true, .. })
    }

    fn settle<S: Source + From<Watched>>(
        &mut self,
        cx: &mut Context<'_, S>,
        prepared: Prepared,
        way: Way,
        verdict: Verdict,
        started: Started,
    ) -> Option<Result<Started, NotStarted>> {
        let again = match (verdict, way) {
            (Verdict::Executed, _) => return Some(Ok(started)),
            (Verdict::Unknown, _) => {
                let (name, pid) = (prepared.staged.path.display(), started.pid);
                let reason = format!("{name}: /proc does not tell whether process {pid} has executed it");
                return Some(Err(NotStarted::Uncertain(reason, started)));
            }
            // As a writer waits for the lease: it has the file open already.
            (Verdict::Failed(Failure { step: Step::Execute, errno: Errno::ETXTBSY }), _)
                if !prepared.executable.is_unchanged() =>
            {
                self.copy(cx, prepared)
            }
            (Verdict::Failed(failure), _) => Err(failed(&prepared, describe(&prepared, failure))),
            (Verdict::KilledBefore, Way::BornInside) => self.launch(cx, prepared, Way::MovesItself),
            (Verdict::KilledBefore, Way::MovesItself) => {
                Err(failed(&prepared, "its process was killed before it could execute it"))
            }
        };
        again.err().map(Err)
    }

    fn launch<S: Source + From<Watched>>(
        &mut self,
        cx: &mut Context<'_, S>,
        prepared: Prepared,
        way: Way,
    ) -> Result<(), NotStarted> {
        if !prepared.executable.is_unchanged() {
            return self.copy(cx, prepared);
        }
        let birth = self.start_process(&prepared, way).map_err(|error| failed(&prepared, error))?;
        let child = cx.driver.expect_child(birth.pid());
        if let Err(error) = cx.event_loop.watch(&birth, cx.source, Interest::READABLE) {
            let started = Started { child, pid: birth.pid() };
            cx.driver.watch_child(cx.event_loop, child, birth.into_spawned());
            let reason = format!("{}: cannot watch its start: {error}", prepared.staged.path.display());
            return Err(NotStarted::Uncertain(reason, started));
        }
        self.stage = Stage::Born { prepared, way, child, birth, settling: false };
        Ok(())
    }

    fn start_process(&self, prepared: &Prepared, way: Way) -> io::Result<Birth> {
        let manifest = &prepared.manifest;
        let name = CString::new(prepared.staged.path.as_os_str().as_bytes())?;
        let args: Vec<CString> = [name].into_iter().chain(manifest.args.iter().cloned()).collect();
        let environment: Vec<CString> = manifest.env.iter().chain(&self.place.variables).cloned().collect();
        let launch = Launch {
            executable: prepared.executable.as_fd(),
            args: &args,
            environment: &environment,
            cgroup: self.place.cgroup.as_fd(),
            stdio: self.place.stdio.each_ref().map(AsFd::as_fd),
            cwd: &manifest.cwd,
            identity: prepared.identity.as_ref(),
            privileges: manifest.privileges,
            limits: &manifest.limits,
            oom_score_adj: self.place.oom_score_adj,
        };
        launch.start(way)
    }

    /// The copy is made from the open file, while whoever changes it waits for the lease.
    fn copy<S: Source + From<Watched>>(
        &mut self,
        cx: &mut Context<'_, S>,
        prepared: Prepared,
    ) -> Result<(), NotStarted> {
        let executable = &prepared.executable;
        let work = || {
            // There is no lease without a digest.
            let digest = prepared.staged.digest.ok_or("it has no digest")?;
            let (fd, _) = executable.sealed(digest)?.into_parts();
            Ok(Answer { bytes: Vec::new(), fds: vec![fd] })
        };
        let task = cx.driver.start_task(cx.event_loop, &[executable.as_fd()], work);
        let task = task.map_err(|error| failed(&prepared, error))?;
        cx.event_loop.watch(&task, cx.source, Interest::READABLE).map_err(|error| failed(&prepared, error))?;
        self.stage = Stage::Copying { prepared, task };
        Ok(())
    }
}

fn failed(prepared: &Prepared, why: impl Display) -> NotStarted {
    NotStarted::Failed(format!("{}: {why}", prepared.staged.path.display()))
}

/// What failed, by the names that the manifest uses.
fn describe(prepared: &Prepared, failure: Failure) -> String {
    let why = failure.errno.desc();
    match failure.step {
        Step::Limit(index) => {
            let limit = prepared.manifest.limits.get(usize::from(index));
            let name = limit.map_or("a resource limit", |limit| name_of(limit.resource));
            format!("cannot set {name}: {why}")
        }
        Step::Ambient(number) => format!("cannot grant {}: {why}", capability(number)),
        Step::Bounding(number) => format!("cannot take {} from the bounding set: {why}", capability(number)),
        Step::Cwd => format!("cannot enter {}: {why}", prepared.manifest.cwd.to_string_lossy()),
        _ => failure.to_string(),
    }
}

fn capability(number: u8) -> String {
    let known = caps::all().into_iter().find(|capability| capability.index() == number);
    known.map_or_else(|| format!("capability {number}"), |capability| capability.to_string())
}
