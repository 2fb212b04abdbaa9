//! The descriptors that the process was started with.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

static TAKEN: AtomicBool = AtomicBool::new(false);

/// What the caller left open above the standard streams: reserved ports, files to pass on. They stay open, and
/// programs started from here inherit them at the same numbers, until this is dropped.
#[derive(Debug, Default)]
pub struct InheritedFds(Vec<OwnedFd>);

impl InheritedFds {
    /// Takes them over: once, and before anything else was opened.
    ///
    /// # Panics
    ///
    /// If it is called a second time, when what is open belongs to others.
    pub fn take() -> io::Result<Self> {
        assert!(!TAKEN.swap(true, Ordering::Relaxed), "inherited descriptors can be taken once");
        let mut open = Vec::new();
        for entry in fs::read_dir("/proc/self/fd")? {
            if let Some(fd) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
                open.push(fd);
            }
        }
        // The directory that was just read is closed by now, so its number is no longer open.
        let inherited = open.into_iter().filter(|&fd: &RawFd| fd > 2 && is_open(fd)).map(|fd| {
            // SAFETY: it was open when the program started, and what the program itself opened before is closed.
            unsafe { OwnedFd::from_raw_fd(fd) }
        });
        Ok(Self(inherited.collect()))
    }

    /// Takes one out, which is for this process alone from now on (`FD_CLOEXEC`).
    pub fn claim(&mut self, number: RawFd) -> Option<OwnedFd> {
        let position = self.0.iter().position(|fd| fd.as_raw_fd() == number)?;
        let fd = self.0.swap_remove(position);
        // Setting the flag of an open descriptor cannot fail.
        let _ = fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
        Some(fd)
    }

    /// The numbers that are passed on.
    pub fn numbers(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.0.iter().map(AsRawFd::as_raw_fd)
    }
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: takes integers, and only asks.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}
