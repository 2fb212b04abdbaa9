//! The move of all processes of one child into another.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use log::{debug, warn};

use super::backoff::Backoff;
use super::error::CgroupError;
use super::left::Left;
use super::name::Name;
use super::node::{Cgroup, parse_pids};
use super::parent::Parent;
use super::watched::Watched;

/// How many processes one call moves at most; then the loop has its turn. Each move may wait for all processors to leave
/// the kernel's read side.
const SHARE: usize = 64;

/// A move of all processes of a child, and of those below it, into another child (G28).
///
/// The source is frozen meanwhile, so that none forks while it is listed. A process that was moved runs on, and what it
/// forks is born in the target. However the move ends, also where it is dropped, the source is thawed.
#[derive(Debug)]
pub struct Migration {
    source: Watched,
    target: Cgroup,
    entrance: File,
    deadline: Instant,
    repeat: Backoff,
    obstacle: Option<CgroupError>,
}

/// How far a [`Migration`] is.
#[derive(Debug)]
pub enum Moved {
    /// The source is empty.
    All,
    /// Some are still there; to be asked again.
    NotYet,
    /// Some were still in the source at the deadline. They run on there.
    Unproven {
        /// Those.
        left: Left,
        /// What the kernel said against it.
        obstacle: Option<CgroupError>,
    },
}

impl Migration {
    /// Of what is in `source` into `target`, which was made for this move ([`Parent::make`] with the tier of the source)
    /// and is empty. Freezes the source.
    pub fn begin(
        parent: &Parent,
        source: &Name,
        target: &Name,
        now: Instant,
        deadline: Instant,
    ) -> Result<Self, CgroupError> {
        Self::begin_into(parent, source, target, now, deadline, true)
    }

    /// The same for another source of the same move, after the one before was emptied into `target`.
    pub fn begin_next(
        parent: &Parent,
        source: &Name,
        target: &Name,
        now: Instant,
        deadline: Instant,
    ) -> Result<Self, CgroupError> {
        Self::begin_into(parent, source, target, now, deadline, false)
    }

    fn begin_into(
        parent: &Parent,
        source: &Name,
        target: &Name,
        now: Instant,
        deadline: Instant,
        must_be_empty: bool,
    ) -> Result<Self, CgroupError> {
        let absent = |name: &Name| CgroupError::Absent { cgroup: parent.cgroup().path().join(name.as_str()) };
        let (from, to) = (parent.child(source)?, parent.child(target)?);
        let (from, to) = (from.ok_or_else(|| absent(source))?, to.ok_or_else(|| absent(target))?);
        if source == target {
            return Err(CgroupError::SameCgroup { cgroup: to.path().to_owned() });
        }
        if to.is_killed()? {
            return Err(CgroupError::Killed { cgroup: to.path().to_owned() });
        }
        if must_be_empty && to.events()?.populated {
            return Err(CgroupError::InUse { cgroup: to.path().to_owned(), left: to.left() });
        }
        let entrance = to.entrance()?;
        let from = Watched::open(from)?.ok_or_else(|| absent(source))?;
        from.cgroup.freeze(true)?;
        let repeat = Backoff::new(now);
        Ok(Self { source: from, target: to, entrance, deadline, repeat, obstacle: None })
    }

    /// What to watch for `Interest::PRIORITY`.
    #[must_use]
    pub fn watched(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }

    /// When to advance without an event.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        self.repeat.due().min(self.deadline)
    }

    /// Moves some. After [`Moved::All`] and [`Moved::Unproven`] it is over, and to be dropped.
    pub fn advance(&mut self, now: Instant) -> Result<Moved, CgroupError> {
        let share_is_used_up = self.move_some();
        if !self.source.is_populated()? {
            return Ok(Moved::All);
        }
        if now >= self.deadline {
            return Ok(Moved::Unproven { left: self.source.cgroup.left(), obstacle: self.obstacle.take() });
        }
        if share_is_used_up {
            self.repeat.go_on(now);
        } else {
            // What was forked before the freeze took hold, or is ending.
            self.repeat.wait(now);
        }
        Ok(Moved::NotYet)
    }

    /// Whether there were more than its share.
    fn move_some(&mut self) -> bool {
        let Self { source, target, entrance, obstacle, .. } = self;
        let mut share = SHARE;
        source.cgroup.walk(&mut |directory| {
            // Threaded ones have no such list; their processes are in that of their domain root.
            for pid in parse_pids(&directory.read("cgroup.procs").unwrap_or_default()) {
                if share == 0 {
                    return ControlFlow::Break(());
                }
                share -= 1;
                if let Err(error) = target.receive(entrance, pid) {
                    debug!("{error}");
                    *obstacle = Some(error);
                }
            }
            ControlFlow::Continue(())
        });
        share == 0
    }
}

impl Drop for Migration {
    fn drop(&mut self) {
        match self.source.cgroup.freeze(false) {
            Ok(()) | Err(CgroupError::Absent { .. }) => {}
            Err(error) => warn!("what is in {} stays frozen: {error}", self.source.cgroup.path().display()),
        }
    }
}
