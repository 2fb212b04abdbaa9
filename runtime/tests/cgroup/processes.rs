//! Processes in cgroups, which know nothing of dunnage.
//!
//! Each holds one end of its test's [`Lifeline`], and so does all that it forks; none holds another test's. They are
//! forks of this program, which has threads, so all that they do is system calls.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, OnceLock};

use dunnage_testing::wait::{self, Deadline};
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use crate::tree::BOUND;

/// The number that processes have their end of the lifeline under.
const LIFELINE: i32 = 3;

/// Held while a process has copies of descriptors that are not its own.
static FORKING: Mutex<()> = Mutex::new(());

/// A pipe whose end is reached once no process is left, whatever cgroups say. What is written to it is counted.
pub(crate) struct Lifeline {
    read: File,
    write: Option<OwnedFd>,
}

impl Lifeline {
    pub(crate) fn new() -> Self {
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
        Self { read: read.into(), write: Some(write) }
    }

    /// Starts a process in a cgroup, which runs `body`.
    pub(crate) fn spawn(&self, cgroup: &Path, body: fn() -> !) -> Process {
        let entrance = File::options().write(true).open(cgroup.join("cgroup.procs")).unwrap();
        let lifeline = self.write.as_ref().expect("before the end").as_raw_fd();
        let (ready, said) = pipe2(OFlag::O_CLOEXEC).unwrap();
        let forking = FORKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: the child makes system calls only, and does not return.
        let pid = match unsafe { fork() }.unwrap() {
            ForkResult::Parent { child } => child,
            // SAFETY: plain system calls on descriptors that are open.
            ForkResult::Child => unsafe {
                if libc::write(entrance.as_raw_fd(), c"0".as_ptr().cast(), 1) != 1 {
                    libc::_exit(1);
                }
                // Neither number is in the way of the other.
                let said = libc::fcntl(said.as_raw_fd(), libc::F_DUPFD, 100);
                libc::dup2(lifeline, LIFELINE);
                // By its number, as not every C library has close_range(2).
                libc::syscall(libc::SYS_close_range, 4, said.cast_unsigned() - 1, 0);
                libc::syscall(libc::SYS_close_range, said.cast_unsigned() + 1, u32::MAX, 0);
                libc::write(said, c"x".as_ptr().cast(), 1);
                libc::close(said);
                body()
            },
        };
        drop(said);
        let mut byte = [0];
        File::from(ready).read_exact(&mut byte).expect("the process has entered its cgroup");
        drop(forking);
        Process { pid }
    }

    /// Waits until so many bytes have come.
    pub(crate) fn expect(&mut self, bytes: usize) {
        let deadline = Deadline::after(BOUND);
        let mut seen = 0;
        while seen < bytes {
            wait::readable(&self.read, deadline, "signs of life");
            seen += self.drain().0;
        }
    }

    /// Whether the last process has gone, now.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.write = None;
        let _nobody_has_a_copy = FORKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.drain().1
    }

    /// What has come until now, and whether it was the end.
    pub(crate) fn drain(&mut self) -> (usize, bool) {
        let mut bytes = 0;
        loop {
            match self.read.read(&mut [0; 4096]) {
                Ok(0) => return (bytes, true),
                Ok(some) => bytes += some,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (bytes, false),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// A child of this program, reaped by it when it is dropped; until then its number is its own.
pub(crate) struct Process {
    pub(crate) pid: Pid,
}

impl Process {
    pub(crate) fn kill(&self) {
        kill(self.pid, Signal::SIGKILL).unwrap();
    }

    pub(crate) fn is_zombie(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(self.pid), flags).unwrap() != WaitStatus::StillAlive
    }

    /// Waits for its end, and reaps it not.
    pub(crate) fn wait_for_zombie(&self) {
        wait::eventually(Deadline::after(BOUND), "the end of a process", || self.is_zombie());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = kill(self.pid, Signal::SIGKILL);
        // One that is frozen in a test that failed ends with its cgroup.
        let reaped = wait::whether(Deadline::after(BOUND), || {
            waitpid(self.pid, Some(nix::sys::wait::WaitPidFlag::WNOHANG)) != Ok(WaitStatus::StillAlive)
        });
        assert!(reaped || std::thread::panicking(), "process {} does not end", self.pid);
    }
}

/// Waits for its end.
pub(crate) fn sleeper() -> ! {
    loop {
        // SAFETY: takes nothing.
        unsafe { libc::pause() };
    }
}

/// Ends at once and leaves a process behind, in a session of its own, that ignores what asks it to end.
pub(crate) fn stubborn() -> ! {
    // SAFETY: system calls that take integers.
    unsafe {
        if libc::fork() == 0 {
            libc::setsid();
            if libc::fork() == 0 {
                for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
                    libc::signal(signal, libc::SIG_IGN);
                }
                sign();
                sleeper();
            }
        }
        libc::_exit(0)
    }
}

/// Never is one process for long: each forks the next and ends, as fast as it can, with a sign for each.
pub(crate) fn comet() -> ! {
    succeed(0)
}

/// The same at a slower pace: one every other millisecond.
pub(crate) fn wanderer() -> ! {
    succeed(2_000_000)
}

fn succeed(pause: i64) -> ! {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: pause };
    // SAFETY: system calls that take integers; the time is read, and nothing written.
    unsafe {
        // So that the dead cost nobody else a PID: they are this process's, and reaped at once.
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        if libc::fork() > 0 {
            sleeper();
        }
        loop {
            if pause.tv_nsec > 0 {
                libc::nanosleep(&raw const pause, ptr::null_mut());
            }
            match libc::fork() {
                0 => sign(),
                pid if pid > 0 => libc::_exit(0),
                _ => {}
            }
        }
    }
}

/// A process with twenty children that stay, each with a sign.
pub(crate) fn family() -> ! {
    for _ in 0..20 {
        // SAFETY: takes nothing.
        if unsafe { libc::fork() } == 0 {
            sign();
            sleeper();
        }
    }
    sleeper()
}

/// How much [`cacher`] and [`tmpfs_writer`] leave behind.
pub(crate) const LEFT_BEHIND: u32 = 16 << 20;

/// A file of at least that size which nobody else reads in the virtual machine.
pub(crate) const LARGE_FILE: &CStr = c"/usr/bin/podman";

/// What [`tmpfs_writer`] makes.
pub(crate) const TMPFS_FILE: &CStr = c"/dev/shm/dunnage-test";

/// Leaves page cache behind, which can be reclaimed.
pub(crate) fn cacher() -> ! {
    // SAFETY: the mapping is as long as what is read of it, and the file longer.
    unsafe {
        let fd = libc::open(LARGE_FILE.as_ptr(), libc::O_RDONLY);
        let length = usize::try_from(LEFT_BEHIND).unwrap_or_default();
        let start = libc::mmap(ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0);
        if start == libc::MAP_FAILED {
            libc::_exit(1);
        }
        for offset in (0..length).step_by(4096) {
            ptr::read_volatile(start.cast::<u8>().add(offset));
        }
        libc::_exit(0)
    }
}

/// Leaves a file in memory behind, which cannot be reclaimed.
pub(crate) fn tmpfs_writer() -> ! {
    // SAFETY: plain system calls.
    unsafe {
        let fd = libc::open(TMPFS_FILE.as_ptr(), libc::O_WRONLY | libc::O_CREAT, 0o600);
        libc::_exit(i32::from(libc::fallocate(fd, 0, 0, LEFT_BEHIND.into()) != 0))
    }
}

/// Uses ever more memory.
pub(crate) fn hog() -> ! {
    // SAFETY: writes to pages that were just mapped.
    unsafe {
        loop {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
            libc::mmap(ptr::null_mut(), 1 << 20, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        }
    }
}

/// One byte on the lifeline. Ends where nobody is there to read it any more.
fn sign() {
    // SAFETY: one byte of a constant. A pipe that is full takes none, which is fine.
    unsafe {
        if libc::write(LIFELINE, c"x".as_ptr().cast(), 1) < 0 && *libc::__errno_location() == libc::EPIPE {
            libc::_exit(0);
        }
    }
}

/// Starts a process in a cgroup by `clone3`, which ends at once: whether it ran.
pub(crate) fn is_born_alive(cgroup: impl AsFd) -> bool {
    let _forking = FORKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let pid = clone_into(cgroup.as_fd().as_raw_fd());
    assert!(pid > 0, "clone3: {}", io::Error::last_os_error());
    match waitpid(Pid::from_raw(pid), None).unwrap() {
        WaitStatus::Exited(_, 42) => true,
        WaitStatus::Signaled(_, Signal::SIGKILL, _) => false,
        status => panic!("{status:?}"),
    }
}

/// What [`bearer`] is to be told.
pub(crate) static BIRTHPLACE: OnceLock<CString> = OnceLock::new();

/// Ends with 0 if what it starts in [`BIRTHPLACE`] runs.
pub(crate) fn bearer() -> ! {
    let path = BIRTHPLACE.get().map_or(ptr::null(), |path| path.as_ptr());
    // SAFETY: the path is NUL-terminated; the rest are plain system calls.
    unsafe {
        let pid = clone_into(libc::open(path, libc::O_RDONLY | libc::O_DIRECTORY));
        let mut status = 0;
        libc::_exit(i32::from(libc::waitpid(pid, &raw mut status, 0) != pid || status != 42 << 8))
    }
}

/// Its PID, or a negative number. It ends with status 42.
fn clone_into(cgroup: RawFd) -> i32 {
    let mut args = [0_u64; 11];
    args[0] = 0x2_0000_0000; // CLONE_INTO_CGROUP
    args[4] = u64::from(libc::SIGCHLD.cast_unsigned());
    args[10] = u64::from(cgroup.cast_unsigned());
    // SAFETY: the arguments are those of clone_args (clone3(2)) and live; the child only exits.
    unsafe {
        let pid = libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args));
        if pid == 0 {
            libc::_exit(42);
        }
        i32::try_from(pid).unwrap_or(-1)
    }
}

/// How many processes are in a cgroup.
pub(crate) fn count(cgroup: &Path) -> usize {
    std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap().lines().count()
}
