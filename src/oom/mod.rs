//! Tells whether the container ran out of memory: by the kernel's own counters, never by its exit status, as anybody
//! may send a SIGKILL.

mod counters;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use dunnage_runtime::event_loop::{EventLoop, Interest};
use dunnage_runtime::privileges;
use log::{debug, info, warn};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::cgroup::{Cgroup, Controller, Mounts, Version};
use crate::source::Source;
use counters::{Counters, Judge};

/// Either file has a few short lines.
const MAX_COUNTERS: usize = 1024;

/// Where a container's cgroup may be.
#[derive(Debug)]
pub(crate) struct Places(io::Result<Mounts>);

impl Places {
    /// Looks for them, which takes its time on a machine with many mounts.
    pub(crate) fn find() -> Self {
        Self(Mounts::find(Controller::Memory))
    }
}

/// Watches the memory of a container's cgroup.
#[derive(Debug)]
pub(crate) struct OomWatch {
    /// `memory.events` or `memory.oom_control`. Held open: under its path there may be another container's one day.
    counters: File,
    /// v1: what the kernel signals by. On v2 it is the file itself.
    signals: Option<EventFd>,
    judge: Judge,
}

impl OomWatch {
    /// Watches the cgroup that `pid` is in. A container lives without that as well, so what goes wrong is a warning.
    pub(crate) fn start(event_loop: &EventLoop<Source>, places: Places, pid: i32) -> Option<Self> {
        match Self::try_start(event_loop, places, pid) {
            Ok(watch) => watch,
            // The process is gone.
            Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32) => {
                debug!("no cgroup to watch: {error}");
                None
            }
            Err(error) => {
                warn!("the container is not watched for running out of memory: {error}");
                None
            }
        }
    }

    fn try_start(event_loop: &EventLoop<Source>, Places(mounts): Places, pid: i32) -> io::Result<Option<Self>> {
        let Some(cgroup) = Cgroup::of(pid, Controller::Memory)?.filter(|cgroup| !cgroup.is_root()) else {
            debug!("the container has no memory cgroup");
            return Ok(None);
        };
        let name = match cgroup.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let (directory, counters) = open_first(mounts?.directories(&cgroup), name)
            .map_err(|error| io::Error::other(format!("{name} of the cgroup {}: {error}", cgroup.path.display())))?;
        let signals = match cgroup.version {
            Version::V1 => Some(subscribe(&directory, &counters)?),
            Version::V2 => None,
        };
        match &signals {
            Some(signals) => event_loop.watch(signals, Source::Oom, Interest::READABLE)?,
            None => event_loop.watch(&counters, Source::Oom, Interest::PRIORITY)?,
        }
        let start = read(&counters)?;
        Ok(Some(Self { counters, signals, judge: Judge::new(start) }))
    }

    /// Whether the container has run out of memory.
    pub(crate) fn look(&mut self, now: Instant) -> bool {
        // Nothing to read is no signal.
        let signals = self.signals.as_ref().map_or(0, |signals| signals.read().unwrap_or(0));
        // After a removal it cannot be read any more (ENODEV).
        let counters = read(&self.counters).inspect_err(|error| debug!("the container's cgroup is gone: {error}")).ok();
        self.judge.decide(signals, counters, now)
    }

    /// When to look without an event.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.judge.next_timeout()
    }

    /// Ends the watch.
    pub(crate) fn close(self, event_loop: &EventLoop<Source>) {
        match &self.signals {
            Some(signals) => event_loop.unwatch(signals),
            None => event_loop.unwatch(&self.counters),
        }
    }
}

/// Leaves the mark by which callers learn of it: an empty file `oom` in each directory.
pub(crate) fn mark<'a>(directories: impl IntoIterator<Item = &'a Path>) {
    info!("the container ran out of memory");
    let _raised = privileges::raise();
    for path in directories.into_iter().map(|directory| directory.join("oom")) {
        // What is there already may be anything.
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o644).custom_flags(flags);
        if let Err(error) = options.open(&path) {
            warn!("cannot make {}: {error}", path.display());
        }
    }
}

/// Opens the file `name` in the first directory that has it.
fn open_first(directories: impl Iterator<Item = PathBuf>, name: &str) -> io::Result<(PathBuf, File)> {
    let mut failure = io::Error::other("it is in no mounted hierarchy");
    for directory in directories {
        match File::open(directory.join(name)) {
            Ok(file) => return Ok((directory, file)),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Has the kernel signal each OOM of a v1 cgroup.
fn subscribe(directory: &Path, oom_control: &File) -> io::Result<EventFd> {
    use std::os::fd::{AsFd, AsRawFd};

    let signals = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
    let control = OpenOptions::new().write(true).open(directory.join("cgroup.event_control"))?;
    let line = format!("{} {}", signals.as_fd().as_raw_fd(), oom_control.as_raw_fd());
    nix::unistd::write(&control, line.as_bytes())?;
    Ok(signals)
}

fn read(counters: &File) -> io::Result<Counters> {
    let mut text = [0; MAX_COUNTERS];
    let length = counters.read_at(&mut text, 0)?;
    Ok(Counters::parse(&text[..length]))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process;
    use std::{env, fs};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("dunnage-oom-{name}-{}", process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A watch of a file that the test writes.
    fn watch(file: &Path, signals: Option<EventFd>) -> OomWatch {
        let counters = File::open(file).unwrap();
        let judge = Judge::new(read(&counters).unwrap());
        OomWatch { counters, signals, judge }
    }

    #[test]
    fn counters_are_read_anew_from_their_beginning() {
        let directory = Directory::new("anew");
        let file = directory.0.join("memory.events");
        fs::write(&file, "oom 1\noom_kill 1\n").unwrap();
        let mut watch = watch(&file, None);
        assert!(!watch.look(Instant::now()));
        fs::write(&file, "oom 1\noom_kill 2\n").unwrap();
        assert!(watch.look(Instant::now()));
    }

    #[test]
    fn a_signal_is_taken_once() {
        let directory = Directory::new("signal");
        let file = directory.0.join("memory.oom_control");
        fs::write(&file, "oom_kill_disable 0\nunder_oom 0\n").unwrap();
        let signals = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        signals.write(1).unwrap();
        let mut watch = watch(&file, Some(signals));
        assert!(watch.look(Instant::now()));
        assert!(!watch.look(Instant::now()));
    }

    #[test]
    fn a_file_without_end_is_read_in_part() {
        let zeroes = File::open("/dev/zero").unwrap();
        assert_eq!(read(&zeroes).unwrap(), Counters::default());
    }

    #[test]
    fn the_mark_is_an_empty_file_in_each_directory_that_is_there() {
        let directory = Directory::new("mark");
        let missing = directory.0.join("missing");
        let bundle = directory.0.join("bundle");
        fs::create_dir(&bundle).unwrap();
        fs::write(bundle.join("oom"), "").unwrap();
        mark([missing.as_path(), directory.0.as_path(), bundle.as_path()]);
        for mark in [directory.0.join("oom"), bundle.join("oom")] {
            let metadata = fs::metadata(&mark).unwrap();
            assert_eq!((metadata.len(), metadata.permissions().mode() & 0o133), (0, 0), "{}", mark.display());
        }
    }

    #[test]
    fn the_mark_goes_where_it_belongs_and_waits_for_nobody() {
        let directory = Directory::new("tricks");
        for name in ["link", "fifo"] {
            fs::create_dir(directory.0.join(name)).unwrap();
        }
        symlink("../elsewhere", directory.0.join("link/oom")).unwrap();
        mkfifo(&directory.0.join("fifo/oom"), Mode::S_IRWXU).unwrap();
        mark(["link", "fifo"].map(|name| directory.0.join(name)).iter().map(PathBuf::as_path));
        assert!(!directory.0.join("elsewhere").exists());
    }

    #[test]
    fn a_process_that_is_gone_is_not_watched() {
        let event_loop = EventLoop::new().unwrap();
        // Above what a PID can be.
        assert!(OomWatch::start(&event_loop, Places::find(), 1 << 23).is_none());
    }
}
