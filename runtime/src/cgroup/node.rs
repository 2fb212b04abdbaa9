//! One cgroup.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::Pid;

use super::directory::{Directory, is_gone};
use super::error::CgroupError;
use super::events::Events;
use super::left::Left;
use crate::sys;

/// Marks a cgroup that took a kill (G21). Cgroups have such attributes from Linux 5.7 on.
const KILLED: &CStr = c"user.dunnage.killed";

/// How deep below a child its own children are looked for.
const MAX_DEPTH: u32 = 64;

/// How many are looked at in one go: that takes some tens of milliseconds.
const MAX_VISITS: u32 = 2048;

/// A cgroup, held open. Once it was removed it stays so, whatever gets its name later.
///
/// As a descriptor it is the directory, which `CLONE_INTO_CGROUP` takes.
#[derive(Debug)]
pub struct Cgroup {
    pub(super) directory: Directory,
}

/// What `cgroup.type` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Processes live in it.
    Domain,
    /// The root of a threaded subtree.
    DomainThreaded,
    /// Below a threaded domain: threads live in it (`threaded`), or nothing can (`domain invalid`).
    Other(String),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Domain => "domain",
            Self::DomainThreaded => "domain threaded",
            Self::Other(kind) => kind,
        })
    }
}

impl Cgroup {
    /// Its path at the time it was opened, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// What `cgroup.events` says.
    pub fn events(&self) -> Result<Events, CgroupError> {
        parse_events(self, self.directory.read("cgroup.events"))
    }

    /// Fails if it was removed.
    pub(super) fn must_exist(&self) -> Result<(), CgroupError> {
        // The one file that also the root has.
        let opened = self.directory.file("cgroup.procs", OFlag::O_PATH);
        opened.map(drop).map_err(|error| self.failure("open cgroup.procs of", error))
    }

    /// What kind of cgroup it is.
    pub fn kind(&self) -> Result<Kind, CgroupError> {
        match self.directory.read("cgroup.type") {
            Ok(text) => Ok(match text.trim_end() {
                "domain" => Kind::Domain,
                "domain threaded" => Kind::DomainThreaded,
                other => Kind::Other(other.to_owned()),
            }),
            Err(error) => Err(self.failure("read the type of", error)),
        }
    }

    /// The way in for a process that was not born here: it writes `0`. Moving works where kernels from 6.14 on kill what
    /// `clone3` puts there.
    ///
    /// They do so where the cgroup took a different number of kills than the one of the process that clones; those of a
    /// cgroup above count for all that existed below it. So it happens in a fresh cgroup, too, if this process's own ever
    /// was killed. (Seen on 6.18; 6.1 does not.)
    pub fn entrance(&self) -> Result<File, CgroupError> {
        self.directory
            .file("cgroup.procs", OFlag::O_WRONLY)
            .map_err(|error| self.failure("open cgroup.procs of", error))
    }

    /// Moves a process in, with all its threads, which thaws it if this cgroup is not frozen. One that is gone is no
    /// failure.
    pub(super) fn receive(&self, entrance: &File, pid: Pid) -> Result<(), CgroupError> {
        match nix::unistd::write(entrance, pid.to_string().as_bytes()) {
            Ok(_) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(CgroupError::Refused {
                file: self.directory.path_of("cgroup.procs"),
                value: pid.to_string(),
                error: error.into(),
            }),
        }
    }

    /// Freezes it with all below, or thaws it. It is frozen once its [`Events`] say so; a thaw leaves frozen what a cgroup
    /// above or below has frozen itself.
    pub fn freeze(&self, frozen: bool) -> Result<(), CgroupError> {
        let value = if frozen { "1" } else { "0" };
        self.write("cgroup.freeze", value)
    }

    /// Marks it as killed, durably (G21).
    pub(super) fn mark_killed(&self) -> io::Result<()> {
        sys::set_attribute(&self.directory, KILLED)
    }

    /// Whether it was marked as killed.
    pub fn is_killed(&self) -> Result<bool, CgroupError> {
        sys::has_attribute(&self.directory, KILLED).map_err(|error| self.failure("read the mark of", error))
    }

    /// Names the processes in it and below it, the first ones.
    #[must_use]
    pub fn left(&self) -> Left {
        Left::of(self)
    }

    /// Visits its own directory, then those below, as far as bounds allow. What vanishes meanwhile is left out.
    pub(super) fn walk(&self, visit: &mut dyn FnMut(&Directory) -> ControlFlow<()>) {
        let mut visits = 0;
        let _ = walk(&self.directory, MAX_DEPTH, &mut |directory| {
            visits += 1;
            if visits > MAX_VISITS { ControlFlow::Break(()) } else { visit(directory) }
        });
    }

    pub(super) fn write(&self, file: &str, value: &str) -> Result<(), CgroupError> {
        self.directory.write(file, value).map_err(|error| self.refusal(file, value, error))
    }

    /// A write that failed.
    pub(super) fn refusal(&self, file: &str, value: &str, error: io::Error) -> CgroupError {
        if is_gone(&error)
            && let Err(absent) = self.must_exist()
        {
            return absent;
        }
        CgroupError::Refused { file: self.directory.path_of(file), value: value.to_owned(), error }
    }

    /// A read that failed, of a file that every cgroup has.
    pub(super) fn failure(&self, action: &'static str, error: io::Error) -> CgroupError {
        if is_gone(&error) {
            return CgroupError::Absent { cgroup: self.path().to_owned() };
        }
        CgroupError::Io { action, path: self.path().to_owned(), error }
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// What a read of `cgroup.events` came to.
pub(super) fn parse_events(cgroup: &Cgroup, text: io::Result<String>) -> Result<Events, CgroupError> {
    text.and_then(|text| Events::parse(&text).ok_or(io::ErrorKind::InvalidData.into()))
        .map_err(|error| cgroup.failure("read cgroup.events of", error))
}

/// The whole lines of `cgroup.procs` or `cgroup.threads`. Processes outside this PID namespace read as 0.
pub(super) fn parse_pids(text: &str) -> impl Iterator<Item = Pid> {
    text.split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n')?.parse().ok())
        .filter(|&pid: &i32| pid > 0)
        .map(Pid::from_raw)
}

fn walk(directory: &Directory, depth: u32, visit: &mut dyn FnMut(&Directory) -> ControlFlow<()>) -> ControlFlow<()> {
    visit(directory)?;
    if depth > 0 {
        for name in directory.directories().unwrap_or_default() {
            if let Ok(below) = directory.open_below(name) {
                walk(&below, depth - 1, visit)?;
            }
        }
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_name_processes_of_this_namespace() {
        let pids: Vec<i32> = parse_pids("12\n0\n345\n-1\nx\n67").map(Pid::as_raw).collect();
        assert_eq!(pids, [12, 345]);
    }
}
