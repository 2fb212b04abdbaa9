//! Starting the process of a generation: born in its cgroup, under an identity and limits of its own, with nothing of
//! this process's.
//!
//! The child sets itself up (`setup`) and tells the parent through a pipe what failed; the parent learns from that pipe
//! and from the kernel whether the program was executed (`birth`).

mod birth;
mod setup;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::resource::Resource;
use nix::unistd::{Pid, pipe2};

use super::capabilities::Capabilities;
use super::child::{self, Decimal};
use super::pidfd::Pidfd;
use crate::privileges;

pub use birth::{Birth, Progress, Verdict};
pub use setup::{Failure, Step};

/// A program to start as a generation's process. It leads a session of its own, and outlives this process.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The executable itself, open; no path is looked up.
    pub executable: BorrowedFd<'a>,
    /// What it is called with, its own name first.
    pub args: &'a [CString],
    /// Its whole environment.
    pub environment: &'a [CString],
    /// The directory of the cgroup that it runs in.
    pub cgroup: BorrowedFd<'a>,
    /// What becomes descriptors 0, 1 and 2; it gets no others.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Its working directory, entered under its own identity.
    pub cwd: &'a CStr,
    /// Who it runs as, where that is not who this process runs as.
    pub identity: Option<&'a Identity>,
    /// What it may do beyond that.
    pub privileges: Privileges,
    /// Its resource limits; those not named are this process's.
    pub limits: &'a [ResourceLimit],
    /// What to write to its `oom_score_adj`, where that is not this process's own.
    pub oom_score_adj: Option<i32>,
}

/// Who a process runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Real, effective and saved user.
    pub uid: u32,
    /// Real, effective and saved group.
    pub gid: u32,
    /// Supplementary groups, all of them.
    pub groups: Vec<u32>,
}

/// What a process may do beyond what its user may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// The most that it and its descendants can ever have; none: what this process has.
    pub bounding: Option<Capabilities>,
    /// What it has from the start, whoever it runs as, and passes on.
    pub ambient: Capabilities,
    /// Executing a file gives it nothing that it does not have (`PR_SET_NO_NEW_PRIVS`).
    pub no_new_privs: bool,
}

impl Default for Privileges {
    fn default() -> Self {
        Self { bounding: None, ambient: Capabilities::default(), no_new_privs: true }
    }
}

/// A limit as setrlimit(2) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLimit {
    /// Of what.
    pub resource: Resource,
    /// The one in force.
    pub soft: u64,
    /// How far the process may raise that; `u64::MAX` is none.
    pub hard: u64,
}

/// How a process gets into its cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The kernel makes it there (`CLONE_INTO_CGROUP`, 5.7); the other way where it cannot.
    BornInside,
    /// It moves itself, before anything else.
    MovesItself,
}

impl Launch<'_> {
    /// Starts it. What becomes of it is the [`Birth`]'s to tell: it may not have reached its execve(2) yet.
    ///
    /// An error means that no process was made.
    pub fn start(&self, way: Way) -> io::Result<Birth> {
        let args = pointers(self.args);
        let environment = pointers(self.environment);
        let (report, report_writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let mut setup = setup::Setup {
            launch: self,
            args: &args,
            environment: &environment,
            oom_score_adj: self.oom_score_adj.map(Decimal::new),
            report: report_writer.as_raw_fd(),
            moves_itself: false,
            parent: Pid::this(),
        };
        // To set up another user's process.
        let _raised = privileges::raise();
        let born_inside = match way {
            Way::BornInside => clone_into(self.cgroup.as_raw_fd(), &setup)?,
            Way::MovesItself => None,
        };
        let (pid, pidfd) = if let Some(child) = born_inside {
            child
        } else {
            setup.moves_itself = true;
            // SAFETY: `Setup::run` is the child's whole life.
            let Some(child) = (unsafe { child::fork()? }) else { setup.run() };
            child
        };
        Ok(Birth::new(pid, pidfd, report))
    }
}

/// `struct clone_args` of linux/sched.h as far as 5.7 has it; all zero but what is named here.
#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Not in the libc crate for every target.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Makes a process in a cgroup. Nothing where the kernel cannot: before 5.7, or where clone3(2) is filtered.
fn clone_into(cgroup: RawFd, setup: &setup::Setup<'_>) -> io::Result<Option<(Pid, Pidfd)>> {
    let mut pidfd: RawFd = -1;
    let args = CloneArgs {
        flags: CLONE_INTO_CGROUP | u64::from(libc::CLONE_PIDFD.unsigned_abs()),
        pidfd: (&raw mut pidfd).addr() as u64,
        exit_signal: libc::SIGCHLD.unsigned_abs().into(),
        cgroup: u64::from(cgroup.unsigned_abs()),
        ..CloneArgs::default()
    };
    // SAFETY: a fork as in `child::fork`; the child runs `Setup::run` only, which keeps to calls that are safe there and
    // never returns. `args` and what it points to live through the call.
    let result = unsafe { libc::syscall(libc::SYS_clone3, (&raw const args), size_of::<CloneArgs>()) };
    if result == 0 {
        setup.run();
    }
    match Errno::result(result) {
        Err(Errno::ENOSYS | Errno::E2BIG | Errno::EINVAL) => Ok(None),
        _ => child::made(result, pidfd).map(Some),
    }
}

/// The array that execve(2) wants.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}
