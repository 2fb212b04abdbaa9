//! Starting programs: fork, set the child up with calls that are safe there, execute.

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::ptr;

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::unistd::{ForkResult, Pid, fork};

use super::child::{self, Decimal};
use super::pidfd::Pidfd;
use crate::privileges;

/// What [`detach`] returned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The process that called, with the new one's PID.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Forks a process that goes on where this one stands. Refused if there is a second thread: it would be missing in
/// the child, with all locks that it held.
pub fn detach() -> io::Result<Side> {
    // A directory's links: itself, its name, and one for each thread in it.
    if fs::metadata("/proc/self/task")?.nlink() != 3 {
        return Err(io::Error::other("a process with several threads cannot go on in a fork"));
    }
    // SAFETY: with one thread, the child's memory is as consistent as the parent's.
    Ok(match unsafe { fork()? } {
        ForkResult::Parent { child } => Side::Parent(child),
        ForkResult::Child => Side::Child,
    })
}

/// A program to start.
#[derive(Debug)]
pub struct Program<'a> {
    /// The executable's path; `PATH` is not searched.
    pub path: &'a OsStr,
    /// Its arguments, without the name it is called by.
    pub args: Vec<OsString>,
    /// What becomes descriptors 0, 1 and 2.
    pub stdio: [BorrowedFd<'a>; 3],
    /// How it relates to this process.
    pub ties: Ties,
    /// The signal mask that it starts with.
    pub mask: SigSet,
    /// What to write to its `oom_score_adj`, where that is not this process's own.
    pub oom_score_adj: Option<i32>,
    /// What it has for environment.
    pub environment: Environment<'a>,
}

/// The environment of a started program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment<'a> {
    /// This process's own.
    Inherited,
    /// The same, but for a `LISTEN_PID` (sd_listen_fds(3)) that names the program itself.
    OwnListenPid,
    /// These, `NAME=VALUE` each, and no others.
    Exactly(&'a [CString]),
}

/// How a started process relates to its starter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// It leads a process group of its own, and is killed when the starter ends (`PR_SET_PDEATHSIG`).
    OwnGroupDiesWithParent,
    /// It goes on by itself.
    None,
}

/// A started program, which may not have reached its execve(2) yet.
#[derive(Debug)]
pub struct Spawned {
    /// Its PID, valid until it is reaped.
    pub pid: Pid,
    /// The same process by descriptor.
    pub pidfd: Pidfd,
}

/// Exit status of a child that could not execute its program, after it said so on its stderr.
pub const CANNOT_EXECUTE: i32 = 127;

impl Program<'_> {
    /// Starts it with its environment, this process's working directory, all signals at their defaults, and no
    /// descriptor but the standard streams and those without `O_CLOEXEC`.
    ///
    /// The child reports by itself, as a line on its stderr, what keeps it from executing the program: waiting for
    /// that here would stop the loop for as long as a slow file system takes.
    pub fn spawn(&self) -> io::Result<Spawned> {
        let path = CString::new(self.path.as_bytes())?;
        let args = self.args.iter().map(|arg| CString::new(arg.clone().into_vec())).collect::<Result<Vec<_>, _>>()?;
        let mut pointers: Vec<*const c_char> = Vec::with_capacity(args.len() + 2);
        pointers.push(path.as_ptr());
        pointers.extend(args.iter().map(|arg| arg.as_ptr()));
        pointers.push(ptr::null());
        let listen_pid = ListenPid::new();
        let environment = match self.environment {
            Environment::Inherited => None,
            Environment::OwnListenPid => Some(environment_with(&listen_pid)),
            Environment::Exactly(variables) => {
                Some(variables.iter().map(|variable| variable.as_ptr()).chain([ptr::null()]).collect())
            }
        };
        let setup = ChildSetup {
            path: &path,
            argv: &pointers,
            environment: environment.as_deref(),
            listen_pid: &listen_pid,
            stdio: [self.stdio[0].as_raw_fd(), self.stdio[1].as_raw_fd(), self.stdio[2].as_raw_fd()],
            ties: self.ties,
            mask: &self.mask,
            oom_score_adj: self.oom_score_adj.map(Decimal::new),
            parent: Pid::this(),
        };
        // To execute it as anybody else would, whatever it is behind.
        let _raised = privileges::raise();
        // SAFETY: `ChildSetup::run` is the child's whole life.
        let Some((pid, pidfd)) = (unsafe { child::fork()? }) else { setup.run() };
        Ok(Spawned { pid, pidfd })
    }
}

/// All that the child needs, made before the fork: it must not allocate.
struct ChildSetup<'a> {
    path: &'a CStr,
    argv: &'a [*const c_char],
    /// In place of this process's own.
    environment: Option<&'a [*const c_char]>,
    /// What that points to where it says LISTEN_PID.
    listen_pid: &'a ListenPid,
    stdio: [RawFd; 3],
    ties: Ties,
    mask: &'a SigSet,
    oom_score_adj: Option<Decimal>,
    parent: Pid,
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

impl ChildSetup<'_> {
    fn run(&self) -> ! {
        self.tie();
        child::reset_signals();
        child::set_mask(self.mask);
        if let Some(value) = &self.oom_score_adj {
            child::write_oom_score_adj(value);
        }
        for (target, &fd) in (0..).zip(&self.stdio) {
            // SAFETY: takes integers. The sources are above 2, as 0 to 2 are always open in this program.
            if unsafe { libc::dup2(fd, target) } < 0 {
                self.fail(b"cannot set up the standard streams of ");
            }
        }
        let environment = match self.environment {
            Some(environment) => {
                self.listen_pid.fill_in();
                environment.as_ptr()
            }
            // SAFETY: only a thread that changes the environment could be in the way, and there is none.
            None => unsafe { environ },
        };
        // SAFETY: path, arguments and environment are NUL-terminated and live.
        unsafe { libc::execve(self.path.as_ptr(), self.argv.as_ptr(), environment) };
        self.fail(b"cannot execute ")
    }

    fn tie(&self) {
        if self.ties == Ties::OwnGroupDiesWithParent {
            // SAFETY: both take integers; getppid cannot fail.
            unsafe {
                libc::setpgid(0, 0);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The parent may have ended just before.
                if libc::getppid() != self.parent.as_raw() {
                    libc::_exit(CANNOT_EXECUTE);
                }
            }
        }
    }

    fn fail(&self, what: &'static [u8]) -> ! {
        let reason = Errno::last().desc();
        for part in [what, self.path.to_bytes(), b": ", reason.as_bytes(), b"\n"] {
            // SAFETY: the part is live and as long as said. There is nowhere to report a failure.
            unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
        }
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(CANNOT_EXECUTE) }
    }
}

/// `LISTEN_PID=` with room for the number, which only the child knows.
struct ListenPid(UnsafeCell<[u8; LISTEN_PID.len() + 12]>);

const LISTEN_PID: &[u8] = b"LISTEN_PID=";

impl ListenPid {
    fn new() -> Self {
        let mut text = [0; LISTEN_PID.len() + 12];
        text[..LISTEN_PID.len()].copy_from_slice(LISTEN_PID);
        Self(UnsafeCell::new(text))
    }

    /// Called in the child.
    fn fill_in(&self) {
        let pid = Decimal::new(Pid::this().as_raw());
        // SAFETY: the child is the only one that looks at its copy, and no reference to the text is alive.
        let text = unsafe { &mut *self.0.get() };
        text[LISTEN_PID.len()..][..pid.as_bytes().len()].copy_from_slice(pid.as_bytes());
    }
}

/// This process's environment with another LISTEN_PID.
fn environment_with(listen_pid: &ListenPid) -> Vec<*const c_char> {
    let mut variables = Vec::new();
    // SAFETY: `environ` is a list of C strings that a null ends, or null, and no thread changes it.
    unsafe {
        let mut next = environ;
        while !next.is_null() && !(*next).is_null() {
            if !CStr::from_ptr(*next).to_bytes().starts_with(LISTEN_PID) {
                variables.push(*next);
            }
            next = next.add(1);
        }
    }
    variables.push(listen_pid.0.get().cast_const().cast());
    variables.push(ptr::null());
    variables
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{PipeReader, Read};
    use std::os::fd::AsFd;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;
    use crate::reaper::ExitStatus;
    use crate::sys::Signals;

    /// Runs a shell script with its output in a pipe. Returns that and how it ended.
    fn run(script: &str, change: impl FnOnce(&mut Program<'_>)) -> (String, ExitStatus) {
        run_program(OsStr::new("/bin/sh"), vec!["-c".into(), script.into()], change)
    }

    fn run_program(path: &OsStr, args: Vec<OsString>, change: impl FnOnce(&mut Program<'_>)) -> (String, ExitStatus) {
        let null = File::open("/dev/null").unwrap();
        let (mut reader, writer): (PipeReader, _) = io::pipe().unwrap();
        let mut program = Program {
            path,
            args,
            stdio: [null.as_fd(), writer.as_fd(), writer.as_fd()],
            ties: Ties::None,
            mask: SigSet::empty(),
            oom_score_adj: None,
            environment: Environment::Inherited,
        };
        change(&mut program);
        let spawned = program.spawn().unwrap();
        drop(writer);
        let mut output = String::new();
        reader.read_to_string(&mut output).unwrap();
        let mut fds = [PollFd::new(spawned.pidfd.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(10_000u16)), Ok(1), "it did not end in 10 s");
        (output, spawned.pidfd.try_reap().unwrap().unwrap())
    }

    #[test]
    fn arguments_output_and_status_pass_through() {
        let (output, status) = run("echo $0 \"$@\"; exit 4", |program| {
            program.args.extend(["zero".into(), "one two".into(), "".into()]);
        });
        assert_eq!((output.as_str(), status), ("zero one two \n", ExitStatus::Code(4)));
    }

    #[test]
    fn what_cannot_be_executed_says_so_itself() {
        for (path, reason) in [("/no/such/program", "No such file or directory"), ("/etc/passwd", "Permission denied")]
        {
            let (output, status) = run_program(OsStr::new(path), Vec::new(), |_| {});
            assert_eq!(output, format!("cannot execute {path}: {reason}\n"));
            assert_eq!(status, ExitStatus::Code(CANNOT_EXECUTE));
        }
    }

    #[test]
    fn signals_are_at_their_defaults_and_the_mask_is_the_one_given() {
        // SIGPIPE is ignored in every Rust program, this test among them.
        let mask = SigSet::from_iter([nix::sys::signal::Signal::SIGUSR1]);
        let args = ["-E", "^Sig(Blk|Ign)", "/proc/self/status"].map(OsString::from).to_vec();
        let (output, _) = run_program(OsStr::new("/bin/grep"), args, |program| program.mask = mask);
        assert_eq!(output, "SigBlk:\t0000000000000200\nSigIgn:\t0000000000000000\n");
    }

    #[test]
    fn a_signal_that_comes_at_once_reaches_the_program() {
        // One that this process catches, as a shim does, and that ends a program which does not.
        let _signals = Signals::catch(&[nix::sys::signal::Signal::SIGVTALRM]).unwrap();
        let null = File::open("/dev/null").unwrap();
        for _ in 0..50 {
            let program = Program {
                path: OsStr::new("/bin/sleep"),
                args: vec!["60".into()],
                stdio: [null.as_fd(), null.as_fd(), null.as_fd()],
                ties: Ties::None,
                mask: SigSet::empty(),
                oom_score_adj: None,
                environment: Environment::Inherited,
            };
            let Spawned { pidfd, .. } = program.spawn().unwrap();
            pidfd.signal(nix::sys::signal::Signal::SIGVTALRM).unwrap();
            let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut fds, PollTimeout::from(10_000u16)), Ok(1), "the signal was lost");
            assert_eq!(pidfd.try_reap().unwrap(), Some(ExitStatus::Signal(libc::SIGVTALRM)));
        }
    }

    #[test]
    fn ties_are_a_group_of_its_own_and_a_death_signal() {
        let script = "read pid comm state ppid pgrp rest </proc/$$/stat; [ $pgrp = $$ ]";
        assert_eq!(run(script, |program| program.ties = Ties::OwnGroupDiesWithParent).1, ExitStatus::Code(0));
        assert_eq!(run(script, |program| program.ties = Ties::None).1, ExitStatus::Code(1));
    }

    #[test]
    fn listen_pid_names_the_program_itself() {
        let (output, _) = run("[ \"$LISTEN_PID\" = $$ ] && echo self; echo ${PATH:+path}", |program| {
            program.environment = Environment::OwnListenPid;
        });
        assert_eq!(output, "self\npath\n");
        assert_eq!(run("echo ${LISTEN_PID-unset}", |_| {}).0, "unset\n");
    }
}
