//! A monitor that was started.

use std::cell::OnceCell;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use serde_json::Value;

use crate::process::{Process, Status};
use crate::wait::{self, Deadline};
use crate::{Client, Log, Sandbox};

/// Our ends of a monitor's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) out: OwnedFd,
    pub(crate) err: OwnedFd,
    pub(crate) sync: Option<OwnedFd>,
    pub(crate) attach: Option<OwnedFd>,
    pub(crate) start: OwnedFd,
}

/// JSON values, one a line, that are read from a pipe or socket.
#[derive(Debug)]
struct Messages {
    fd: OwnedFd,
    read: Vec<u8>,
}

/// A monitor that was started.
#[derive(Debug)]
pub struct Running<'a> {
    sandbox: &'a Sandbox,
    /// The process that was started: the short side, or with `--sync` the only one.
    pub started: Process,
    status: Option<Status>,
    out: OwnedFd,
    err: OwnedFd,
    sync: Option<Messages>,
    attach: Option<Messages>,
    start: Option<File>,
    long: OnceCell<Process>,
}

impl<'a> Running<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox, started: Process, pipes: Pipes) -> Self {
        Self {
            sandbox,
            started,
            status: None,
            out: pipes.out,
            err: pipes.err,
            sync: pipes.sync.map(Messages::new),
            attach: pipes.attach.map(Messages::new),
            start: Some(pipes.start.into()),
            long: OnceCell::new(),
        }
    }

    /// Sends the start byte. Nothing happens if the monitor has ended already.
    pub fn go(&mut self) {
        if let Some(start) = &mut self.start {
            let _ = start.write_all(b"\0");
        }
    }

    /// Gives up: closes the start pipe.
    pub fn close_start(&mut self) {
        self.start = None;
    }

    /// Closes our end of the sync pipe.
    pub fn close_sync(&mut self) {
        self.sync = None;
    }

    /// The next message on the sync pipe, or nothing at its end.
    pub fn message(&mut self) -> Option<Value> {
        self.sync.as_mut().expect("a sync pipe").next()
    }

    /// All messages to the end of the sync pipe.
    pub fn messages(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.message()).collect()
    }

    /// The next message on the attach pipe, or nothing at its end.
    pub fn attach_message(&mut self) -> Option<Value> {
        self.attach.as_mut().expect("an attach pipe").next()
    }

    /// The payload's pid: the first message, of a create that worked.
    pub fn pid(&mut self) -> i32 {
        let message = self.message().unwrap_or_else(|| panic!("no message; stderr: {}", self.stderr()));
        let pid = message.get("data").or_else(|| message.get("pid")).and_then(Value::as_i64);
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0);
        pid.unwrap_or_else(|| panic!("the create failed: {message}"))
    }

    /// The payload, of a create that worked.
    pub fn payload(&mut self) -> Process {
        let pid = self.pid();
        Process::open(pid).unwrap_or_else(|| panic!("the payload {pid} is gone already"))
    }

    /// Waits for the end of the process that was started.
    pub fn status(&mut self) -> Status {
        if let Some(status) = self.status {
            return status;
        }
        let status = self.started.wait_status(Deadline::usual(), "the process that was started");
        *self.status.insert(status)
    }

    /// The long side of a double fork. Ask while it lives, or once [`Self::end`] has.
    pub fn long(&self) -> &Process {
        self.long.get_or_init(|| {
            let pid = wait::file(&self.sandbox.monitor_pid_file(), Deadline::usual(), "the monitor's pid", |pid| {
                std::str::from_utf8(pid?).ok()?.parse().ok()
            });
            Process::open(pid).unwrap_or_else(|| panic!("the monitor {pid} is gone already"))
        })
    }

    /// Waits until the long side has ended. It may have, or may never have been.
    pub fn end(&self) {
        if let Some(long) = self.long.get() {
            return long.wait_end(Deadline::usual(), "the monitor");
        }
        let Ok(pid) = fs::read_to_string(self.sandbox.monitor_pid_file()) else { return };
        // The pid may be a stranger's by now: only who has our marker is waited for.
        let pid: i32 = pid.parse().expect("the monitor's pid");
        if let Some(long) = self.sandbox.processes().into_iter().find(|process| process.pid() == pid) {
            long.wait_end(Deadline::usual(), "the monitor");
        }
    }

    /// Waits for the exit file, and gives what is in it.
    pub fn exit_code(&self) -> String {
        self.exit_code_by(Deadline::usual())
    }

    /// The same with a bound of its own.
    pub fn exit_code_within(&self, bound: Duration) -> String {
        self.exit_code_by(Deadline::after(bound))
    }

    fn exit_code_by(&self, deadline: Deadline) -> String {
        let code = wait::file_exists(&self.sandbox.exit_file(), deadline);
        String::from_utf8(code).expect("an exit file is text")
    }

    /// Connects an attach client.
    pub fn attach(&self) -> Client {
        let path = self.sandbox.bundle().join("attach");
        Client::connect(&path).unwrap_or_else(|error| panic!("cannot attach: {error}"))
    }

    /// Waits until the monitor has accepted so many clients that are still there. A connection is made before that, and
    /// output that comes in between is not for it.
    pub fn accepted(&self, clients: usize) {
        let long = self.long().proc_dir();
        wait::eventually(Deadline::usual(), "the clients to be accepted", || {
            let fds = crate::descriptors(&long).unwrap_or_default();
            // The listening socket is one of them.
            fds.values().filter(|fd| fd.target.starts_with("socket:")).count() > clients
        });
    }

    /// Writes to the control fifo.
    pub fn control(&self, text: &str) {
        let fifo = OpenOptions::new().write(true).open(self.sandbox.bundle().join("ctl"));
        fifo.and_then(|mut fifo| fifo.write_all(text.as_bytes())).expect("the control fifo takes a line");
    }

    /// The log as it is now.
    pub fn log(&self) -> Log {
        Log::parse(&fs::read(self.sandbox.log()).expect("the log"))
    }

    /// Waits until the raw log has this text.
    pub fn log_has(&self, text: &str) {
        let what = format!("{text:?} in the log");
        wait::file(&self.sandbox.log(), Deadline::usual(), &what, |log| {
            log?.windows(text.len()).any(|window| window == text.as_bytes()).then_some(())
        });
    }

    /// All that the monitor writes to its stdout, to the end.
    pub fn stdout(&self) -> String {
        to_end(self.out.as_fd(), "stdout")
    }

    /// All that the monitor writes to its stderr, to the end.
    pub fn stderr(&self) -> String {
        to_end(self.err.as_fd(), "stderr")
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.started.signal(nix::libc::SIGKILL);
            self.started.wait_status(Deadline::usual(), "the process that was started and killed");
        }
    }
}

impl Messages {
    fn new(fd: OwnedFd) -> Self {
        Self { fd, read: Vec::new() }
    }
}

impl Iterator for Messages {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap_or_else(|error| {
                    panic!("no JSON from the monitor: {error}: {:?}", String::from_utf8_lossy(&line))
                }));
            }
            let mut buffer = [0; 8192];
            wait::readable(&self.fd, Deadline::usual(), "a message from the monitor, or the end");
            let count = nix::unistd::read(&self.fd, &mut buffer).expect("messages can be read");
            if count == 0 {
                assert!(self.read.is_empty(), "half a message: {:?}", String::from_utf8_lossy(&self.read));
                return None;
            }
            self.read.extend_from_slice(&buffer[..count]);
        }
    }
}

fn to_end(fd: BorrowedFd<'_>, name: &str) -> String {
    let mut file = File::from(fd.try_clone_to_owned().expect("a duplicate"));
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        wait::readable(fd, Deadline::usual(), &format!("the end of the monitor's {name}"));
        match file.read(&mut buffer).expect("a pipe can be read") {
            0 => return String::from_utf8_lossy(&text).into_owned(),
            count => text.extend_from_slice(&buffer[..count]),
        }
    }
}
