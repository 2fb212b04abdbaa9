//! Processes, held by pidfd so that no signal hits a stranger and no wait polls.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::libc::O_CLOEXEC;
use nix::poll::PollFlags;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigSet, Signal as Named};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};

use crate::facts::descriptors;
use crate::wait::{self, Deadline};

/// A process.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    pidfd: OwnedFd,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl Process {
    /// A process by its pid, if there is one.
    pub fn open(pid: i32) -> Option<Self> {
        let pid = Pid::from_raw(pid)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some(Self { pid, pidfd })
    }

    /// Starts a program as our child, with exactly the descriptors given, each at its number.
    ///
    /// By `posix_spawn`: the numbers are set up in the child alone, so that tests that run beside each other never
    /// inherit each other's descriptors.
    pub fn spawn(argv: &[OsString], env: &[(OsString, OsString)], fds: &[(BorrowedFd<'_>, i32)]) -> Self {
        let mut actions = PosixSpawnFileActions::init().expect("file actions");
        // Moved out of the way first: a source must not be overwritten by an earlier target.
        let sources: Vec<OwnedFd> =
            fds.iter().map(|(fd, _)| fcntl_dupfd_cloexec(fd, 200).expect("a duplicate")).collect();
        for (source, (_, target)) in sources.iter().zip(fds) {
            actions.add_dup2(source.as_raw_fd(), *target).expect("file actions");
        }
        for fd in inherited() {
            if fds.iter().all(|(_, target)| target != fd) {
                actions.add_close(*fd).expect("file actions");
            }
        }
        let words: Vec<CString> = argv.iter().map(|word| c_string(word)).collect();
        let env: Vec<CString> =
            env.iter().map(|(name, value)| c_string(&[name.as_os_str(), value].join(OsStr::new("=")))).collect();
        // Our own main ignores SIGPIPE; Podman's children start with it as usual.
        let mut attr = PosixSpawnAttr::init().expect("spawn attributes");
        attr.set_sigdefault(&SigSet::from(Named::SIGPIPE)).expect("spawn attributes");
        attr.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF).expect("spawn attributes");
        let pid = posix_spawn(words[0].as_c_str(), &actions, &attr, &words, &env)
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", argv[0].display()));
        // Not reaped yet, so the pid is its own.
        Self::open(pid.as_raw()).expect("a child has a pidfd")
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    /// The process's own memory in KiB. Not its private dirty pages: pages of a binary that was built a moment ago, and is
    /// not on the disk yet, count among those.
    #[must_use]
    pub fn own_memory_kib(&self) -> usize {
        let rollup = fs::read_to_string(self.proc_dir().join("smaps_rollup")).expect("the process's memory");
        let anonymous = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a line");
        anonymous.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Its directory in /proc.
    pub fn proc_dir(&self) -> PathBuf {
        Path::new("/proc").join(self.pid().to_string())
    }

    /// Sends a signal; nothing happens if it has ended.
    pub fn signal(&self, signal: i32) {
        let signal = Signal::from_named_raw(signal).expect("a signal's number");
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// Whether it has ended, reaped or not.
    pub fn has_ended(&self) -> bool {
        wait::poll_for(self.pidfd.as_fd(), PollFlags::POLLIN, Deadline::after(std::time::Duration::ZERO))
    }

    /// Waits for its end.
    pub fn wait_end(&self, deadline: Deadline, what: &str) {
        let ended = wait::poll_for(self.pidfd.as_fd(), PollFlags::POLLIN, deadline);
        assert!(ended, "waited in vain for the end of {what} (pid {}): {}", self.pid(), self.describe());
    }

    /// Waits for the end of our own child, and reaps it.
    pub fn wait_status(&self, deadline: Deadline, what: &str) -> Status {
        self.wait_end(deadline, what);
        let ended = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED)
            .unwrap_or_else(|error| panic!("{what} cannot be waited for: {error}"))
            .expect("it has ended");
        ended.exit_status().map_or_else(
            || Status::Killed(ended.terminating_signal().expect("it ended by status or by signal")),
            Status::Exited,
        )
    }

    /// The pids of its children, zombies among them.
    pub fn children(&self) -> Vec<i32> {
        let list = fs::read_to_string(self.proc_dir().join(format!("task/{}/children", self.pid())));
        list.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// The pids of its children that are zombies.
    pub fn zombies(&self) -> Vec<i32> {
        self.children().into_iter().filter(|pid| state(*pid) == Some('Z')).collect()
    }

    /// The pid of its parent.
    pub fn parent(&self) -> i32 {
        let status = crate::status(&self.proc_dir()).unwrap_or_default();
        status.get("PPid").and_then(|pid| pid.parse().ok()).unwrap_or(0)
    }

    /// What it is and what it does, for messages.
    fn describe(&self) -> String {
        let read = |name: &str| {
            let text = fs::read(self.proc_dir().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&text).replace('\0', " ")
        };
        format!("{} in {}, children {:?}", read("cmdline"), read("wchan"), self.children())
    }
}

/// The state letter of a process.
fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// What whoever started the tests left open to be inherited; all of our own descriptors are not.
fn inherited() -> &'static [i32] {
    static INHERITED: OnceLock<Vec<i32>> = OnceLock::new();
    INHERITED.get_or_init(|| {
        let fds = descriptors(Path::new("/proc/self")).expect("our own descriptors");
        let close_on_exec = |flags: &str| i32::from_str_radix(flags, 8).is_ok_and(|flags| flags & O_CLOEXEC != 0);
        fds.into_iter()
            .filter(|(number, fd)| *number > 2 && !close_on_exec(&fd.flags))
            .map(|(number, _)| number)
            .collect()
    })
}

fn c_string(word: &OsStr) -> CString {
    CString::new(word.as_bytes()).expect("no NUL in a word")
}
