//! Waiting with a bound.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// How long anything may take that must happen: far above what it takes, as it is only reached by a failure.
const BOUND: Duration = Duration::from_secs(20);

/// How many times slower than usual the machine is, which an emulated one says in this variable.
pub const SLOWNESS: &str = "DUNNAGE_TEST_SLOWNESS";

/// How many times that is.
pub fn slowness() -> u32 {
    env::var(SLOWNESS).ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// The time by which something must have happened.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// From now.
    pub fn after(bound: Duration) -> Self {
        Self(Instant::now() + bound)
    }

    /// The usual one.
    pub fn usual() -> Self {
        Self::after(BOUND * slowness())
    }

    /// Whether it has passed.
    pub fn passed(self) -> bool {
        Instant::now() >= self.0
    }

    pub(crate) fn left(self) -> PollTimeout {
        // Rounded up, so that a poll never ends just before the deadline.
        let millis = self.0.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
        PollTimeout::try_from(i32::try_from(millis).unwrap_or(i32::MAX)).unwrap_or(PollTimeout::MAX)
    }
}

/// Whether the descriptor has one of the events, or a hang-up, before the deadline.
pub fn poll_for(fd: BorrowedFd<'_>, events: PollFlags, deadline: Deadline) -> bool {
    loop {
        let mut fds = [PollFd::new(fd, events)];
        match poll(&mut fds, deadline.left()) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(nix::Error::EINTR) => {}
            Err(error) => panic!("cannot poll: {error}"),
        }
    }
}

/// Waits until the descriptor can be read.
pub fn readable(fd: impl AsFd, deadline: Deadline, what: &str) {
    assert!(poll_for(fd.as_fd(), PollFlags::POLLIN, deadline), "waited in vain for {what}");
}

/// Waits until the descriptor can be written.
pub fn writable(fd: impl AsFd, deadline: Deadline, what: &str) {
    assert!(poll_for(fd.as_fd(), PollFlags::POLLOUT, deadline), "waited in vain for {what}");
}

/// Whether the descriptor can be written now.
pub fn is_writable(fd: impl AsFd) -> bool {
    poll_for(fd.as_fd(), PollFlags::POLLOUT, Deadline::after(Duration::ZERO))
}

/// Waits until a file's content (or its absence) is as wanted, and gives what `wanted` made of it. Woken by inotify;
/// the file's directory must exist.
pub fn file<T>(path: &Path, deadline: Deadline, what: &str, mut wanted: impl FnMut(Option<&[u8]>) -> Option<T>) -> T {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).expect("inotify");
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let events = AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_MODIFY
        | AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_DELETE;
    inotify.add_watch(dir, events).unwrap_or_else(|error| panic!("cannot watch {}: {error}", dir.display()));
    loop {
        let content = match fs::read(path) {
            Ok(content) => Some(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        if let Some(found) = wanted(content.as_deref()) {
            return found;
        }
        assert!(
            poll_for(inotify.as_fd(), PollFlags::POLLIN, deadline),
            "waited in vain for {what} in {}; it has {:?}",
            path.display(),
            content.map(|content| String::from_utf8_lossy(&content).into_owned()),
        );
        let _ = inotify.read_events();
    }
}

/// Waits until a file exists, and gives its content. It must appear whole.
pub fn file_exists(path: &Path, deadline: Deadline) -> Vec<u8> {
    let name = path.file_name().unwrap_or(OsStr::new("")).to_string_lossy();
    file(path, deadline, &format!("the file {name}"), |content| content.map(<[u8]>::to_vec))
}

/// What appears in directories, in the order in which it does.
#[derive(Debug)]
pub struct Arrivals(Inotify);

impl Arrivals {
    /// Begins to watch.
    pub fn watch(dirs: &[&Path]) -> Self {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).expect("inotify");
        for dir in dirs {
            let events = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
            inotify.add_watch(*dir, events).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        }
        Self(inotify)
    }

    /// What has appeared: each name, and whether it came by a rename, and so whole.
    pub fn so_far(&self) -> Vec<(String, bool)> {
        let mut arrived = Vec::new();
        while let Ok(events) = self.0.read_events() {
            arrived.extend(events.into_iter().filter_map(|event| {
                let name = event.name?.to_string_lossy().into_owned();
                Some((name, event.mask.contains(AddWatchFlags::IN_MOVED_TO)))
            }));
        }
        arrived
    }
}

/// Waits for what the kernel has no event for, such as a change in /proc, by looking again and again.
pub fn eventually(deadline: Deadline, what: &str, holds: impl FnMut() -> bool) {
    assert!(whether(deadline, holds), "waited in vain for {what}");
}

/// The same, for who has another answer to that than a panic.
pub fn whether(deadline: Deadline, mut holds: impl FnMut() -> bool) -> bool {
    while !holds() {
        if deadline.passed() {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}
