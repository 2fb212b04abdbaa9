//! The removal of a child with all below it.

use std::time::Instant;

use log::debug;
use nix::errno::Errno;

use super::backoff::Backoff;
use super::directory::{Directory, is_gone};
use super::error::CgroupError;
use super::left::Left;
use super::name::Name;
use super::parent::Parent;

/// How many cgroups one call removes at most; then the loop has its turn.
const SHARE: u32 = 64;

/// How deep nested ones are removed: each level costs a descriptor.
const MAX_DEPTH: u32 = 64;

/// A removal that retries while the cgroup is busy (G25).
///
/// A cgroup proven empty can still be busy for a moment: its last process is being taken off it, or somebody looks
/// through it and makes cgroups in it. Of that nothing notifies.
#[derive(Debug)]
pub struct Removal {
    name: Name,
    deadline: Instant,
    backoff: Backoff,
}

/// How far a [`Removal`] is.
#[derive(Debug, PartialEq, Eq)]
pub enum Removed {
    /// There is no such cgroup any more.
    Yes,
    /// It is busy; to be asked again.
    NotYet,
    /// It was busy up to the deadline.
    Busy(Left),
}

impl Removal {
    /// Of the child `name`, which need not exist.
    #[must_use]
    pub fn begin(name: Name, now: Instant, deadline: Instant) -> Self {
        Self { name, deadline, backoff: Backoff::new(now) }
    }

    /// When to advance.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        self.backoff.due().min(self.deadline)
    }

    /// Tries it.
    pub fn advance(&mut self, parent: &Parent, now: Instant) -> Result<Removed, CgroupError> {
        if remove_whole(parent, &self.name)? {
            return Ok(Removed::Yes);
        }
        if now < self.deadline {
            self.backoff.wait(now);
            return Ok(Removed::NotYet);
        }
        let child = parent.child(&self.name)?;
        Ok(child.map_or(Removed::Yes, |child| Removed::Busy(child.left())))
    }
}

/// Tries once to remove a child and all below it, but nothing of one that has processes. Whether it is gone.
pub(super) fn remove_whole(parent: &Parent, name: &Name) -> Result<bool, CgroupError> {
    let Some(child) = parent.child(name)? else { return Ok(true) };
    match child.events() {
        Ok(events) if events.populated => return Ok(false),
        Ok(_) => {}
        Err(CgroupError::Absent { .. }) => return Ok(true),
        Err(error) => return Err(error),
    }
    let mut share = SHARE;
    match remove_tree(parent.directory(), name.as_str().as_ref(), MAX_DEPTH, &mut share) {
        Ok(()) => Ok(true),
        Err(Errno::EBUSY) => Ok(false),
        Err(error) => Err(CgroupError::io("remove", child.path())(error)),
    }
}

fn remove_tree(above: &Directory, name: &std::ffi::OsStr, depth: u32, share: &mut u32) -> Result<(), Errno> {
    let once = || match above.remove(name) {
        Err(error) if is_gone(&error.into()) => Ok(()),
        result => result,
    };
    if *share == 0 {
        return Err(Errno::EBUSY);
    }
    *share -= 1;
    if once() == Ok(()) {
        return Ok(());
    }
    if depth == 0 {
        return Err(Errno::EBUSY);
    }
    // What cannot be read below it keeps it busy.
    if let Ok(directory) = above.open_below(name) {
        for below in directory.directories().unwrap_or_default() {
            remove_tree(&directory, &below, depth - 1, share)
                .inspect_err(|error| debug!("cannot remove {}: {error}", directory.path_of(&below).display()))?;
        }
    }
    once()
}
