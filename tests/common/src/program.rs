//! A program that a test runs: its output is kept, and nothing is waited for without a bound.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use nix::unistd::{pipe2, read, write};

use crate::process::{Process, Status};
use crate::terminal::Terminal;
use crate::wait::Deadline;

/// A program that was started. One that still runs when it goes is killed.
#[derive(Debug)]
pub struct Program {
    name: String,
    /// The process.
    pub process: Process,
    reaped: bool,
    stdin: Option<OwnedFd>,
    /// What it has not taken yet.
    pending: Vec<u8>,
    stdin_ends: bool,
    stdout: Capture,
    stderr: Capture,
}

/// What a program left.
#[derive(Clone, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub status: Status,
    /// All of its stdout.
    pub stdout: Vec<u8>,
    /// All of its stderr.
    pub stderr: Vec<u8>,
}

#[derive(Debug)]
struct Capture {
    /// Nothing at its end.
    pipe: Option<OwnedFd>,
    bytes: Vec<u8>,
}

impl Program {
    /// Starts a program with three pipes.
    pub fn start(argv: &[OsString], env: &[(OsString, OsString)]) -> Self {
        Self::start_with(argv, env, &[])
    }

    /// The same, and these descriptors from 3 on.
    pub fn start_with(argv: &[OsString], env: &[(OsString, OsString)], fds: &[BorrowedFd<'_>]) -> Self {
        let pipe = || pipe2(OFlag::O_CLOEXEC).expect("a pipe");
        let ((its_in, stdin), (stdout, its_out), (stderr, its_err)) = (pipe(), pipe(), pipe());
        for ours in [&stdin, &stdout, &stderr] {
            fcntl(ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe can be made nonblocking");
        }
        let streams = [its_in.as_fd(), its_out.as_fd(), its_err.as_fd()];
        let all: Vec<_> = streams.into_iter().chain(fds.iter().copied()).zip(0..).collect();
        let process = Process::spawn(argv, env, &all);
        Self {
            name: argv.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "),
            process,
            reaped: false,
            stdin: Some(stdin),
            pending: Vec::new(),
            stdin_ends: false,
            stdout: Capture { pipe: Some(stdout), bytes: Vec::new() },
            stderr: Capture { pipe: Some(stderr), bytes: Vec::new() },
        }
    }

    /// Starts a program on a terminal, which becomes its controlling one.
    pub fn start_on(terminal: &Terminal, argv: &[OsString], env: &[(OsString, OsString)]) -> Process {
        let slave = terminal.open_slave();
        let setsid = [OsString::from("/usr/bin/setsid"), "--ctty".into()];
        let argv: Vec<_> = setsid.into_iter().chain(argv.iter().cloned()).collect();
        Process::spawn(&argv, env, &[(slave.as_fd(), 0), (slave.as_fd(), 1), (slave.as_fd(), 2)])
    }

    /// Gives it more input. What it does not take at once, it takes while this is waited on.
    pub fn send(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        self.feed();
    }

    /// Ends the input once it has taken all.
    pub fn end_input(&mut self) {
        self.stdin_ends = true;
        self.feed();
    }

    /// Waits until this text is in its stdout.
    pub fn expect(&mut self, text: &str) {
        let deadline = Deadline::usual();
        while !contains(&self.stdout.bytes, text) {
            assert!(self.stdout.pipe.is_some(), "{} has ended without {text:?}; it had {}", self.name, self.so_far());
            self.turn(deadline, text);
        }
    }

    /// Waits for its end, and gives all of its output. Its input ends.
    pub fn finish(self) -> Finished {
        self.finish_by(Deadline::usual())
    }

    /// The same with a bound of its own.
    pub fn finish_by(mut self, deadline: Deadline) -> Finished {
        self.end_input();
        while self.stdout.pipe.is_some() || self.stderr.pipe.is_some() {
            self.turn(deadline, "the end of its output");
        }
        let status = self.process.wait_status(deadline, &self.name);
        self.reaped = true;
        let take = std::mem::take;
        Finished { status, stdout: take(&mut self.stdout.bytes), stderr: take(&mut self.stderr.bytes) }
    }

    fn so_far(&self) -> String {
        format!("stdout \"{}\", stderr \"{}\"", text(&self.stdout.bytes), text(&self.stderr.bytes))
    }

    /// Moves what can be moved.
    fn turn(&mut self, deadline: Deadline, what: &str) {
        let input = self.stdin.as_ref().filter(|_| !self.pending.is_empty());
        let wanted = [(input, PollFlags::POLLOUT), (self.stdout.pipe.as_ref(), PollFlags::POLLIN)]
            .into_iter()
            .chain([(self.stderr.pipe.as_ref(), PollFlags::POLLIN)]);
        let mut fds: Vec<_> =
            wanted.filter_map(|(fd, events)| fd.map(|fd: &OwnedFd| PollFd::new(fd.as_fd(), events))).collect();
        match poll(&mut fds, deadline.left()) {
            Ok(0) => panic!("waited in vain for {what} of {}; so far {}", self.name, self.so_far()),
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => panic!("cannot poll: {error}"),
        }
        self.stdout.read();
        self.stderr.read();
        self.feed();
    }

    fn feed(&mut self) {
        while let Some(stdin) = self.stdin.as_ref().filter(|_| !self.pending.is_empty()) {
            match write(stdin, &self.pending) {
                Ok(count) => drop(self.pending.drain(..count)),
                Err(nix::Error::EAGAIN) => return,
                // Nobody reads it any more.
                Err(nix::Error::EPIPE) => self.stdin = None,
                Err(error) => panic!("cannot write to {}: {error}", self.name),
            }
        }
        if self.stdin_ends {
            self.stdin = None;
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.reaped {
            self.process.signal(nix::libc::SIGKILL);
            self.process.wait_status(Deadline::usual(), "a program that was killed");
        }
    }
}

impl Capture {
    fn read(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        let mut buffer = [0; 16 << 10];
        match read(pipe, &mut buffer) {
            Ok(0) => self.pipe = None,
            Ok(count) => self.bytes.extend_from_slice(&buffer[..count]),
            Err(nix::Error::EAGAIN) => {}
            Err(error) => panic!("a pipe can be read: {error}"),
        }
    }
}

impl Finished {
    /// Its stdout as text, of a program that ended with status 0.
    pub fn ok(self) -> String {
        self.exited(0)
    }

    /// Its stdout as text, of a program that ended with this status.
    pub fn exited(self, status: i32) -> String {
        assert_eq!(self.status, Status::Exited(status), "{self:?}");
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Its stderr as text.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, stdout \"{}\", stderr \"{}\"", self.status, text(&self.stdout), text(&self.stderr))
    }
}

/// The start of a stream, for messages.
fn text(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(2000)].escape_ascii().to_string()
}

/// Whether a text is in a stream's bytes.
pub(crate) fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// A command line out of words.
pub(crate) fn words<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Vec<OsString> {
    words.into_iter().map(|word| word.as_ref().to_owned()).collect()
}
