//! The descriptors that the process was started with.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// A link for each open descriptor.
const DIRECTORY: &str = "/proc/self/fd";

/// How far descriptors are looked for one by one.
const LOW: RawFd = 16;

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
        let open = count()?.and_then(lowest).map_or_else(list, Ok)?;
        let inherited = open.into_iter().filter(|&fd| fd > 2).map(|fd| {
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

/// How many are open, where the kernel tells (6.2).
fn count() -> io::Result<Option<usize>> {
    let size = fs::metadata(DIRECTORY)?.len();
    Ok(usize::try_from(size).ok().filter(|&count| count > 0))
}

/// The first so many that are open, if all are low numbers, as they mostly are: a list of them takes the kernel ten times
/// as long.
fn lowest(count: usize) -> Option<Vec<RawFd>> {
    let open: Vec<RawFd> = (0..LOW).filter(|&fd| is_open(fd)).take(count).collect();
    (open.len() == count).then_some(open)
}

fn list() -> io::Result<Vec<RawFd>> {
    let mut open = Vec::new();
    for entry in fs::read_dir(DIRECTORY)? {
        open.extend(entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    // The directory that was just read is closed by now, so its number is no longer open.
    open.retain(|&fd| is_open(fd));
    Ok(open)
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: takes integers, and only asks.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use nix::fcntl::{FcntlArg, fcntl};

    use super::*;

    #[test]
    fn all_that_are_open_are_found() {
        // Other tests open and close theirs meanwhile.
        let file = File::open("/dev/null").unwrap();
        let low = file.as_raw_fd();
        let high = fcntl(&file, FcntlArg::F_DUPFD_CLOEXEC(LOW)).unwrap();
        // SAFETY: it was just made.
        let _high = unsafe { OwnedFd::from_raw_fd(high) };
        let listed = list().unwrap();
        assert!(listed.contains(&low) && listed.contains(&high) && !listed.contains(&9999), "{listed:?}");
        assert_eq!(lowest(3), Some(vec![0, 1, 2]));
        // Not all of them are low.
        assert_eq!(count().unwrap().and_then(lowest), None);
    }
}
