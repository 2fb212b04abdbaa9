//! The child's side: from the clone to the execve, with async-signal-safe calls and without allocation.

use std::ffi::{c_char, c_int, c_long, c_ulong};
use std::fmt;
use std::os::fd::{AsRawFd, RawFd};

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::unistd::Pid;

use super::super::capabilities::{Capabilities, CapabilitySets};
use super::super::child::{self, Decimal};
use super::super::spawn::CANNOT_EXECUTE;
use super::{Identity, Launch, Privileges};

/// All that the child needs, made before the clone.
pub(super) struct Setup<'a> {
    pub(super) launch: &'a Launch<'a>,
    pub(super) args: &'a [*const c_char],
    pub(super) environment: &'a [*const c_char],
    pub(super) oom_score_adj: Option<Decimal>,
    /// Where a failure is told; closed by the execve.
    pub(super) report: RawFd,
    /// It was not born in its cgroup.
    pub(super) moves_itself: bool,
    /// This process.
    pub(super) parent: Pid,
}

/// What the child does before it executes the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Moving into the cgroup.
    EnterCgroup,
    /// A session of its own.
    Session,
    /// Descriptors 0 to 2.
    Streams,
    /// Closing all others.
    Descriptors,
    /// The resource limit at this place in the list.
    Limit(u8),
    /// Taking the capability of this number out of the bounding set.
    Bounding(u8),
    /// Supplementary groups.
    Groups,
    /// Group.
    Gid,
    /// User.
    Uid,
    /// The capabilities that it keeps.
    Capabilities,
    /// Handing on the capability of this number.
    Ambient(u8),
    /// `PR_SET_NO_NEW_PRIVS`
    NoNewPrivs,
    /// The working directory.
    Cwd,
    /// execveat(2)
    Execute,
}

/// Why a child ended before it executed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it could not do.
    pub step: Step,
    /// Why.
    pub errno: Errno,
}

impl Failure {
    /// On the pipe: step, its detail, and the error as the kernel numbers it.
    pub(super) const SIZE: usize = 6;

    fn encode(self) -> [u8; Self::SIZE] {
        let (step, detail) = match self.step {
            Step::EnterCgroup => (0, 0),
            Step::Session => (1, 0),
            Step::Streams => (2, 0),
            Step::Descriptors => (3, 0),
            Step::Limit(detail) => (4, detail),
            Step::Bounding(detail) => (5, detail),
            Step::Groups => (6, 0),
            Step::Gid => (7, 0),
            Step::Uid => (8, 0),
            Step::Capabilities => (9, 0),
            Step::Ambient(detail) => (10, detail),
            Step::NoNewPrivs => (11, 0),
            Step::Cwd => (12, 0),
            Step::Execute => (13, 0),
        };
        let [a, b, c, d] = (self.errno as i32).to_ne_bytes();
        [step, detail, a, b, c, d]
    }

    pub(super) fn decode([step, detail, a, b, c, d]: [u8; Self::SIZE]) -> Option<Self> {
        let step = match step {
            0 => Step::EnterCgroup,
            1 => Step::Session,
            2 => Step::Streams,
            3 => Step::Descriptors,
            4 => Step::Limit(detail),
            5 => Step::Bounding(detail),
            6 => Step::Groups,
            7 => Step::Gid,
            8 => Step::Uid,
            9 => Step::Capabilities,
            10 => Step::Ambient(detail),
            11 => Step::NoNewPrivs,
            12 => Step::Cwd,
            13 => Step::Execute,
            _ => return None,
        };
        Some(Self { step, errno: Errno::from_raw(i32::from_ne_bytes([a, b, c, d])) })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Step::EnterCgroup => f.write_str("cannot enter its cgroup"),
            Step::Session => f.write_str("cannot start a session"),
            Step::Streams => f.write_str("cannot set up the standard streams"),
            Step::Descriptors => f.write_str("cannot close what it inherited (close_range, Linux 5.11)"),
            Step::Limit(index) => write!(f, "cannot set resource limit {}", u16::from(index) + 1),
            Step::Bounding(number) => write!(f, "cannot drop capability {number} from the bounding set"),
            Step::Groups => f.write_str("cannot set the supplementary groups"),
            Step::Gid => f.write_str("cannot set the group"),
            Step::Uid => f.write_str("cannot set the user"),
            Step::Capabilities => f.write_str("cannot set capabilities"),
            Step::Ambient(number) => write!(f, "cannot grant capability {number}"),
            Step::NoNewPrivs => f.write_str("cannot set no_new_privs"),
            Step::Cwd => f.write_str("cannot enter the working directory"),
            Step::Execute => f.write_str("cannot execute it"),
        }?;
        write!(f, ": {}", self.errno.desc())
    }
}

/// What files it makes are readable by, as a program expects it that is started by hand.
const UMASK: libc::mode_t = 0o022;

/// No kernel has more, as they are told in 64 bits.
const MOST_CAPABILITIES: u8 = 64;

impl Setup<'_> {
    pub(super) fn run(&self) -> ! {
        let Err(failure) = self.execute();
        let text = failure.encode();
        // SAFETY: `text` is live and as long as said; a message this short is written whole. Then the child ends without
        // running the parent's exit handlers.
        unsafe {
            libc::write(self.report, text.as_ptr().cast(), text.len());
            libc::_exit(CANNOT_EXECUTE)
        }
    }

    fn execute(&self) -> Result<std::convert::Infallible, Failure> {
        let launch = self.launch;
        if self.moves_itself {
            self.move_into_cgroup()?;
        }
        child::reset_signals();
        // SAFETY: takes nothing.
        check(unsafe { libc::setsid() }.into(), Step::Session)?;
        // While it is this process's user still, whose file that is.
        if let Some(value) = &self.oom_score_adj {
            child::write_oom_score_adj(value);
        }
        self.set_up_descriptors()?;
        // SAFETY: takes an integer.
        unsafe { libc::umask(UMASK) };
        self.set_limits()?;
        self.drop_bounding()?;
        if let Some(identity) = launch.identity {
            become_user(identity)?;
        }
        self.set_capabilities()?;
        if launch.privileges.no_new_privs {
            prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, Step::NoNewPrivs)?;
        }
        // SAFETY: the path is NUL-terminated.
        check(unsafe { libc::chdir(launch.cwd.as_ptr()) }.into(), Step::Cwd)?;
        child::set_mask(&SigSet::empty());
        let (fd, path, args, environment) =
            (launch.executable.as_raw_fd(), c"", self.args.as_ptr(), self.environment.as_ptr());
        // SAFETY: arguments and environment are arrays that a null ends, of C strings that live.
        let result =
            unsafe { libc::syscall(libc::SYS_execveat, fd, path.as_ptr(), args, environment, libc::AT_EMPTY_PATH) };
        check(result, Step::Execute)?;
        unreachable!("an execve does not return without an error")
    }

    /// On the way it dies with its parent, whose record says that nothing runs outside.
    fn move_into_cgroup(&self) -> Result<(), Failure> {
        let kill = libc::SIGKILL.unsigned_abs().into();
        prctl(libc::PR_SET_PDEATHSIG, kill, 0, Step::EnterCgroup)?;
        // The parent may have ended just before.
        // SAFETY: cannot fail.
        if unsafe { libc::getppid() } != self.parent.as_raw() {
            return Err(Failure { step: Step::EnterCgroup, errno: Errno::ESRCH });
        }
        self.enter_cgroup()?;
        prctl(libc::PR_SET_PDEATHSIG, 0, 0, Step::EnterCgroup)
    }

    fn enter_cgroup(&self) -> Result<(), Failure> {
        let (cgroup, file) = (self.launch.cgroup.as_raw_fd(), c"cgroup.procs");
        // SAFETY: the path is NUL-terminated.
        let fd = unsafe { libc::openat(cgroup, file.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
        check(fd.into(), Step::EnterCgroup)?;
        // SAFETY: what is written is live; the descriptor is closed by execve.
        check(unsafe { libc::write(fd, b"0".as_ptr().cast(), 1) } as c_long, Step::EnterCgroup)
    }

    fn set_up_descriptors(&self) -> Result<(), Failure> {
        for (target, source) in (0..).zip(&self.launch.stdio) {
            // SAFETY: takes integers. The sources are above 2, as 0 to 2 are always open in this program.
            check(unsafe { libc::dup2(source.as_raw_fd(), target) }.into(), Step::Streams)?;
        }
        // Closed by the execve: the executable and the report are needed until then.
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        // SAFETY: takes integers, and changes nothing of the parent's.
        check(unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, flags) }, Step::Descriptors)
    }

    fn set_limits(&self) -> Result<(), Failure> {
        for (index, limit) in (0..).zip(self.launch.limits) {
            let (resource, values) = (limit.resource as c_int, [limit.soft, limit.hard]);
            let old = std::ptr::null_mut::<[u64; 2]>();
            // SAFETY: `values` is a struct rlimit64, and the old one is not asked for.
            let result = unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, values.as_ptr(), old) };
            check(result, Step::Limit(index))?;
        }
        Ok(())
    }

    fn drop_bounding(&self) -> Result<(), Failure> {
        let Some(bounding) = self.launch.privileges.bounding else { return Ok(()) };
        for number in (0..MOST_CAPABILITIES).filter(|&number| !bounding.has(number)) {
            // SAFETY: takes integers.
            match unsafe { libc::prctl(libc::PR_CAPBSET_READ, c_ulong::from(number), 0, 0, 0) } {
                // Unknown to this kernel, as are those above.
                -1 => break,
                0 => {}
                _ => prctl(libc::PR_CAPBSET_DROP, number.into(), 0, Step::Bounding(number))?,
            }
        }
        Ok(())
    }

    /// Keeps the ambient ones, and of root's those that the bounding set has: what is done from here on, the program
    /// could do.
    fn set_capabilities(&self) -> Result<(), Failure> {
        let Privileges { bounding, ambient, .. } = self.launch.privileges;
        let cannot_set = |errno| Failure { step: Step::Capabilities, errno };
        ambient_prctl(libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, Step::Capabilities)?;
        let CapabilitySets { permitted, .. } = CapabilitySets::get().map_err(cannot_set)?;
        let granted = (0..MOST_CAPABILITIES).filter(|&number| ambient.has(number));
        if let Some(missing) = granted.clone().find(|&number| !permitted.has(number)) {
            return Err(Failure { step: Step::Ambient(missing), errno: Errno::EPERM });
        }
        // SAFETY: takes nothing.
        let is_root = unsafe { libc::geteuid() } == 0;
        let kept = match (is_root, bounding) {
            (false, _) => ambient,
            (true, None) => permitted,
            (true, Some(bounding)) => Capabilities(permitted.0 & bounding.0 | ambient.0),
        };
        let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: ambient };
        sets.set().map_err(cannot_set)?;
        for number in granted {
            ambient_prctl(libc::PR_CAP_AMBIENT_RAISE, number, Step::Ambient(number))?;
        }
        Ok(())
    }
}

fn become_user(identity: &Identity) -> Result<(), Failure> {
    let &Identity { uid, gid, ref groups } = identity;
    // What is not kept of them is taken away afterwards; the execve clears the flag.
    prctl(libc::PR_SET_KEEPCAPS, 1, 0, Step::Capabilities)?;
    // The kernel's own calls, as libc's would tell other threads.
    // SAFETY: there are as many as said.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }, Step::Groups)?;
    // SAFETY: takes integers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) }, Step::Gid)?;
    // SAFETY: takes integers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }, Step::Uid)
}

fn prctl(option: c_int, first: c_ulong, second: c_ulong, step: Step) -> Result<(), Failure> {
    let none: c_ulong = 0;
    // SAFETY: none of the options used here takes a pointer.
    check(unsafe { libc::prctl(option, first, second, none, none) }.into(), step)
}

fn ambient_prctl(operation: c_int, number: u8, step: Step) -> Result<(), Failure> {
    prctl(libc::PR_CAP_AMBIENT, operation.unsigned_abs().into(), number.into(), step)
}

fn check(result: c_long, step: Step) -> Result<(), Failure> {
    if result < 0 { Err(Failure { step, errno: Errno::last() }) } else { Ok(()) }
}
