//! The parent's side: whether the child has executed its program.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::unistd::{self, Pid};

use super::super::pidfd::Pidfd;
use super::super::spawn::Spawned;
use super::Failure;

/// A process that is to execute its program. Readable once there is a [`Progress`] to ask for.
///
/// It keeps the pidfd until then: a process that was reaped can no longer be asked whether it had executed anything.
#[derive(Debug)]
pub struct Birth {
    pid: Pid,
    pidfd: Pidfd,
    /// Closed by the execve, or by the child's end after it wrote what it could not do.
    report: OwnedFd,
}

/// What became of a [`Birth`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The program was executed; it may have ended since.
    Executed,
    /// It was not, and the child ends.
    Failed(Failure),
    /// It was not: the child was killed before.
    KilledBefore,
    /// It may have been, and may be running: /proc does not tell.
    Unknown,
}

/// How far a [`Birth`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is known yet. It becomes readable.
    Waiting,
    /// Its descriptors are closed, and it was not seen to have executed its program: it is in the middle of its execve,
    /// or of its end. To be asked again in a moment, as nothing tells of it.
    Settling,
    /// All is known.
    Decided(Verdict),
}

/// `PF_FORKNOEXEC` of linux/sched.h: set by fork, cleared by an execve, kept by a zombie. Debian's 6.1.0-57 was seen to
/// close descriptors some time before it clears the flag.
const FORKED_BUT_NOT_EXECUTED: u64 = 0x40;

impl Birth {
    pub(super) fn new(pid: Pid, pidfd: Pidfd, report: OwnedFd) -> Self {
        Self { pid, pidfd, report }
    }

    /// Its PID, which is not reaped while this exists.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    #[cfg(test)]
    pub(super) fn pidfd(&self) -> &Pidfd {
        &self.pidfd
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let mut text = [0; Failure::SIZE];
        let verdict = match unistd::read(&self.report, &mut text) {
            Err(Errno::EAGAIN | Errno::EINTR) => return Progress::Waiting,
            Ok(Failure::SIZE) => Failure::decode(text).map_or(Verdict::Unknown, Verdict::Failed),
            Ok(0) => {
                // Asked first: what has ended executes nothing any more.
                let has_ended = self.pidfd.has_exited();
                match has_executed(self.pid) {
                    Some(true) => Verdict::Executed,
                    Some(false) if has_ended => Verdict::KilledBefore,
                    Some(false) => return Progress::Settling,
                    None => Verdict::Unknown,
                }
            }
            _ => Verdict::Unknown,
        };
        Progress::Decided(verdict)
    }

    /// The process, for whoever is to reap it. After the verdict, or if nobody asks for it any more.
    #[must_use]
    pub fn into_spawned(self) -> Spawned {
        Spawned { pid: self.pid, pidfd: self.pidfd }
    }
}

impl AsFd for Birth {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.report.as_fd()
    }
}

/// Whether a child that was not reaped has executed a program since it was forked.
fn has_executed(child: Pid) -> Option<bool> {
    let mut stat = String::new();
    fs::File::open(format!("/proc/{child}/stat")).ok()?.take(4096).read_to_string(&mut stat).ok()?;
    parse_stat(&stat, Pid::this())
}

/// Nothing for a process that is not `parent`'s child: /proc is another PID namespace's.
fn parse_stat(stat: &str, parent: Pid) -> Option<bool> {
    // The command's name may have spaces and parentheses in it.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let is_child = fields.nth(1)?.parse() == Ok(parent.as_raw());
    let flags: u64 = fields.nth(4)?.parse().ok()?;
    is_child.then_some(flags & FORKED_BUT_NOT_EXECUTED == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_found_whatever_the_process_is_called() {
        let parent = Pid::from_raw(7);
        for (stat, executed) in [
            ("9 (app) S 7 9 9 0 -1 4194304 1 2", Some(true)),
            ("9 (app) S 7 9 9 0 -1 4194368 1 2", Some(false)),
            ("9 (a) S 1 (b ) Z 7 9 9 0 -1 64 1 2", Some(false)),
            ("9 (app) S 8 9 9 0 -1 4194304 1 2", None),
            ("9 (app) S 7 9 9 0 -1", None),
            ("9 (app", None),
            ("", None),
        ] {
            assert_eq!(parse_stat(stat, parent), executed, "{stat}");
        }
    }
}
