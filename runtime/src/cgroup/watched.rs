//! A cgroup whose `cgroup.events` are watched.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use nix::fcntl::OFlag;

use super::directory::is_gone;
use super::error::CgroupError;
use super::node::{Cgroup, parse_events};

/// Longer than `cgroup.events` is.
const MAX_EVENTS: usize = 256;

/// The cgroup, and the open file that has the kernel notify.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) cgroup: Cgroup,
    events: File,
}

impl Watched {
    /// Nothing if it was removed.
    pub(super) fn open(cgroup: Cgroup) -> Result<Option<Self>, CgroupError> {
        match cgroup.directory.file("cgroup.events", OFlag::O_RDONLY) {
            Ok(events) => Ok(Some(Self { cgroup, events })),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(CgroupError::io("open cgroup.events of", cgroup.path())(error)),
        }
    }

    /// Whether it is populated; one that is gone is not (G23). Read from the watched file, so that what was read here is
    /// no news to a poll of it.
    pub(super) fn is_populated(&self) -> Result<bool, CgroupError> {
        let mut text = [0; MAX_EVENTS];
        let text =
            self.events.read_at(&mut text, 0).map(|length| String::from_utf8_lossy(&text[..length]).into_owned());
        match parse_events(&self.cgroup, text) {
            Ok(events) => Ok(events.populated),
            Err(CgroupError::Absent { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
