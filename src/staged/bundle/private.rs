//! The bundle that the runtime gets: the staged one's config.json, changed, in a directory of the shim's own.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dunnage_runtime::driver::{Driver, Watched};
use dunnage_runtime::event_loop::{EventLoop, Source};
use dunnage_runtime::generation::Tier;
use dunnage_runtime::privileges;
use dunnage_runtime::sys::{Answer, Task, TaskError};
use nix::sys::stat::{Mode, mkdirat};

use super::config::{self, Changes};
use super::reading::Bundle;
use crate::directory::Directory;

/// Where a bundle is to run, and what the shim gives it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its cgroup, as runtimes name it.
    pub(crate) cgroup: String,
    /// The limits of that.
    pub(crate) tier: Tier,
    /// The directory of its sockets, which it sees at [`HOME`](super::HOME).
    pub(crate) home: PathBuf,
    /// `NAME=VALUE` each.
    pub(crate) variables: Vec<String>,
}

/// A private bundle in the run directory, which only the shim's user can enter. It stays until it is removed, as
/// containers outlive shims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrivateBundle {
    path: PathBuf,
}

impl PrivateBundle {
    /// The one that is called `name` in the run directory at `run_dir`.
    pub(crate) fn at(run_dir: &Path, name: &OsStr) -> Self {
        Self { path: run_dir.join(name) }
    }

    /// What the runtime is told.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the runtime writes its PID.
    pub(crate) fn pid_file(&self) -> PathBuf {
        self.path.join("pid")
    }

    /// Where the runtime writes what goes wrong.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }
}

/// Removes the private bundle `name`, if there is one.
pub(crate) fn remove(run: &Directory, name: &OsStr) -> io::Result<()> {
    let _raised = privileges::raise();
    match fs::remove_dir_all(run.path().join(name)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A private bundle that is being written. Readable when [`Writing::advance`] may have something to tell.
#[derive(Debug)]
pub(crate) struct Writing(Task);

impl Writing {
    /// Begins to write `bundle` for `place` as `name` in the run directory, in place of what an earlier start left.
    pub(crate) fn start<S: Source + From<Watched>>(
        driver: &mut Driver,
        event_loop: &EventLoop<S>,
        run: &Directory,
        name: &OsStr,
        bundle: &Bundle,
        place: &Place,
    ) -> io::Result<Self> {
        let work = || {
            let text = rewrite(bundle, place)?;
            write(run, name, &text).map_err(|error| format!("cannot write the bundle {}: {error}", name.display()))?;
            Ok(Answer::default())
        };
        driver.start_task(event_loop, &[run.as_fd()], work).map(Self)
    }

    /// What came of it, once it is over. The reason is one line: nothing ran.
    pub(crate) fn advance(&mut self) -> Option<Result<(), String>> {
        Some(match self.0.advance()? {
            Ok(_) => Ok(()),
            Err(TaskError::Failed(reason)) => Err(reason),
            Err(TaskError::Died) => Err("the process that wrote the bundle died".to_owned()),
        })
    }
}

impl AsFd for Writing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(super) fn rewrite(bundle: &Bundle, place: &Place) -> Result<Vec<u8>, String> {
    let changes = Changes {
        directory: &bundle.directory,
        root: &bundle.root,
        cgroup: &place.cgroup,
        tier: &place.tier,
        home: &place.home,
        variables: &place.variables,
        args: bundle.args.as_deref(),
    };
    config::rewrite(&bundle.text, &changes)
}

/// Writes it whole, for the shim's user alone: its environment may hold secrets.
pub(super) fn write(run: &Directory, name: &OsStr, text: &[u8]) -> io::Result<()> {
    remove(run, name)?;
    mkdirat(run, name, Mode::S_IRWXU)?;
    let directory = run.inside(name)?;
    let temporary = OsStr::new(".config.json");
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(directory.path().join(temporary))?;
    file.write_all(text)?;
    directory.rename(temporary, "config.json".as_ref())
}
