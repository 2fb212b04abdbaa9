//! Processes by descriptor: a pidfd names one process for good, a PID only until it is reaped.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::reaper::ExitStatus;

/// `PIDFD_SIGNAL_PROCESS_GROUP` of pidfd_send_signal(2), from kernel 6.9.
const SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;

/// `PIDFD_GET_INFO`: `_IOWR(0xFF, 11, struct pidfd_info)` in the size that it first had, from kernel 6.13.
const GET_INFO: libc::Ioctl = nix::request_code_readwrite!(0xff, 11, mem::size_of::<Info>());

/// `PIDFD_INFO_EXIT`: asks for the exit status, from kernel 6.15.
const INFO_EXIT: u64 = 1 << 3;

/// `struct pidfd_info` of linux/pidfd.h.
#[repr(C)]
#[derive(Default)]
struct Info {
    /// What is asked for, and then what was answered.
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    /// As wait(2) has it.
    exit_code: i32,
}

/// A process, whatever its PID is used for later (pidfd_open(2), kernel 5.3). Readable once the process has exited.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// The process that has `pid` now. `ESRCH` if there is none.
    pub fn open(pid: Pid) -> io::Result<Self> {
        // SAFETY: takes two integers and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
        let fd = i32::try_from(Errno::result(fd)?).map_err(|_| io::Error::from(Errno::EBADF))?;
        // SAFETY: the kernel just made this descriptor (with O_CLOEXEC) and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends `signal` to the process (pidfd_send_signal(2)). `ESRCH` once it was reaped.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.send(Some(signal), 0)
    }

    /// Sends `signal` to the group that the process leads. Only for a leader that was not reaped yet, so that
    /// its PID, which is the group's number, is still its own.
    pub fn signal_group(&self, leader: Pid, signal: Signal) -> io::Result<()> {
        match self.send(Some(signal), SIGNAL_PROCESS_GROUP) {
            // Kernels before 6.9 have no such flag.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && leader.as_raw() > 1 => {
                Ok(nix::sys::signal::killpg(leader, signal)?)
            }
            result => result,
        }
    }

    /// Whether the process is still there, running or as a zombie. One that may not be signalled is.
    #[must_use]
    pub fn is_unreaped(&self) -> bool {
        self.send(None, 0).map_err(|error| error.raw_os_error()) != Err(Some(libc::ESRCH))
    }

    /// Whether the process is a child of this one (it may be a zombie): only a parent may wait.
    pub fn is_child(&self) -> io::Result<bool> {
        match wait(self.wait_id(), libc::WNOWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::ECHILD) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reaps the process if it has exited. `ECHILD` if it is no child of this process.
    pub fn try_reap(&self) -> io::Result<Option<ExitStatus>> {
        Ok(wait(self.wait_id(), 0)?)
    }

    /// Whether the process has exited, and is a zombie or gone.
    #[must_use]
    pub fn has_exited(&self) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
    }

    /// How the process ended that another one reaped, where the kernel tells (R11).
    #[must_use]
    pub fn status_of_reaped(&self) -> Option<ExitStatus> {
        let mut info = Info { mask: INFO_EXIT, ..Info::default() };
        // SAFETY: `info` is writable, as large as the request says, and lives through the call.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), GET_INFO, &raw mut info) };
        (result == 0 && info.mask & INFO_EXIT != 0).then(|| {
            if libc::WIFEXITED(info.exit_code) {
                ExitStatus::Code(libc::WEXITSTATUS(info.exit_code))
            } else {
                ExitStatus::Signal(libc::WTERMSIG(info.exit_code))
            }
        })
    }

    fn wait_id(&self) -> (libc::idtype_t, libc::id_t) {
        // A descriptor is never negative.
        (libc::P_PIDFD, self.0.as_raw_fd().unsigned_abs())
    }

    fn send(&self, signal: Option<Signal>, flags: libc::c_uint) -> io::Result<()> {
        let number = signal.map_or(0, |signal| signal as libc::c_int);
        let info: *const libc::siginfo_t = ptr::null();
        // SAFETY: a null siginfo asks for what kill(2) would send; all else are integers.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), number, info, flags) };
        Errno::result(result)?;
        Ok(())
    }
}

impl From<OwnedFd> for Pidfd {
    /// Of a descriptor that the kernel made for a process (`CLONE_PIDFD`).
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reaps the zombie child `pid`. Only for a PID that was seen to be one: a zombie keeps its PID until then.
pub fn reap_zombie(pid: Pid) -> io::Result<Option<ExitStatus>> {
    Ok(wait((libc::P_PID, pid.as_raw().unsigned_abs()), 0)?)
}

/// Whether the child `pid` is a zombie; it is left one.
#[must_use]
pub fn is_zombie(pid: Pid) -> bool {
    matches!(wait((libc::P_PID, pid.as_raw().unsigned_abs()), libc::WNOWAIT), Ok(Some(_)))
}

/// waitid(2) for an exit, without blocking. nix's would lose the status of a process that a real-time signal
/// killed: it has no name for those, and fails after the process was reaped.
fn wait((kind, id): (libc::idtype_t, libc::id_t), flags: libc::c_int) -> Result<Option<ExitStatus>, Errno> {
    // SAFETY: all zeroes is a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | flags;
    // SAFETY: `info` is writable and lives through the call.
    while let Err(errno) = Errno::result(unsafe { libc::waitid(kind, id, &raw mut info, flags) }) {
        // It does not wait, so nothing should interrupt it: but a status is not given up for that.
        if errno != Errno::EINTR {
            return Err(errno);
        }
    }
    // SAFETY: waitid(2) leaves the zeroes, or fills in the fields that belong to SIGCHLD.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok(match (pid, info.si_code) {
        (0, _) => None,
        (_, libc::CLD_EXITED) => Some(ExitStatus::Code(status)),
        _ => Some(ExitStatus::Signal(status)),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::*;

    fn shell(script: &str) -> (Pidfd, Pid, Child) {
        let child = Command::new("/bin/sh").args(["-c", script]).process_group(0).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        (Pidfd::open(pid).unwrap(), pid, child)
    }

    fn wait_until_exited(pidfd: &Pidfd) {
        let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(10_000u16)), Ok(1), "the process did not exit in 10 s");
    }

    #[test]
    fn status_of_an_exit_and_of_signals() {
        for (script, status) in [
            ("exit 3", ExitStatus::Code(3)),
            ("kill -TERM $$", ExitStatus::Signal(15)),
            ("kill -KILL $$", ExitStatus::Signal(9)),
            // A real-time signal.
            ("kill -40 $$", ExitStatus::Signal(40)),
        ] {
            let (pidfd, _, _child) = shell(script);
            wait_until_exited(&pidfd);
            assert_eq!(pidfd.try_reap().unwrap(), Some(status), "{script}");
            assert!(!pidfd.is_unreaped());
        }
    }

    #[test]
    fn looking_reaps_nothing() {
        let (pidfd, pid, _child) = shell("exit 7");
        wait_until_exited(&pidfd);
        assert!(pidfd.is_child().unwrap());
        assert!(is_zombie(pid));
        assert!(pidfd.is_unreaped());
        assert_eq!(reap_zombie(pid).unwrap(), Some(ExitStatus::Code(7)));
        assert!(!is_zombie(pid));
        assert_eq!(pidfd.try_reap().unwrap_err().raw_os_error(), Some(libc::ECHILD));
        assert!(!pidfd.is_unreaped());
    }

    #[test]
    fn a_running_child_has_no_status_and_init_is_no_child() {
        let (pidfd, pid, _child) = shell("sleep 60");
        assert_eq!(pidfd.try_reap().unwrap(), None);
        assert!(!is_zombie(pid));
        assert!(!Pidfd::open(Pid::from_raw(1)).unwrap().is_child().unwrap());
        pidfd.signal_group(pid, Signal::SIGKILL).unwrap();
        wait_until_exited(&pidfd);
        assert_eq!(pidfd.try_reap().unwrap(), Some(ExitStatus::Signal(9)));
    }
}
