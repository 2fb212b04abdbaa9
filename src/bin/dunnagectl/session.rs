//! A person or script at a process's streams, until it ends or is left.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use dunnage_runtime::sys;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::{read, write};
use serde_json::{Value, json};

use crate::attach::{Attach, Output};
use crate::client::{Connection, Incoming, PATIENCE};
use crate::error::{Context, Result, failure, output};
use crate::keys::DetachKeys;
use crate::raw_mode::RawMode;
use crate::shims::Shim;
use crate::signals::Signals;

/// What is read of stdin at once: the most that a packet of input may have is 32 KiB.
const INPUT: usize = 8 << 10;

/// How many packets of output are written before anything else is looked at.
const PACKETS_PER_TURN: usize = 16;

/// What is to be attached to, and how.
#[derive(Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) shim: &'a Shim,
    /// What the process is called as a target.
    pub(crate) target: String,
    pub(crate) attach: Attach,
    /// Whether our stdin goes to it.
    pub(crate) input: bool,
    /// Whether it has a terminal.
    pub(crate) terminal: bool,
    pub(crate) keys: DetachKeys,
    /// Whether signals to us go to it; otherwise they end us alone.
    pub(crate) passes_signals: bool,
    /// Where its end will be told.
    pub(crate) news: Connection,
    /// Finds the end in what is told there.
    pub(crate) read_end: fn(&Value) -> Option<End>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) exit_code: i64,
    pub(crate) timed_out: bool,
}

impl End {
    /// Out of an object with these fields.
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let timed_out = object["timed_out"] == true || object["kind"] == "timed_out";
        Some(Self { exit_code: object["exit_code"].as_i64()?, timed_out })
    }

    /// Out of an answer of Events, if it tells the container's end.
    pub(crate) fn of_container(answer: &Value) -> Option<Self> {
        let event = &answer["event"];
        let is_end = event["kind"] == "exited" || event["kind"] == "timed_out";
        if is_end && event["target"] == "container" { Self::read(event) } else { None }
    }
}

/// How a session ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// With the process.
    Ended(End),
    /// By the keys for that: the process goes on.
    Detached,
    /// By a signal to us: the process goes on.
    Left(Signal),
}

/// See the module.
struct Session<'a> {
    terms: Terms<'a>,
    signals: Signals,
    /// Whether stdin may have more.
    input_open: bool,
    /// What was read of it and not sent.
    pending: Vec<u8>,
    detached: bool,
    output_open: bool,
    end: Option<End>,
    /// When the end must have been told.
    due: Option<Instant>,
}

/// Stays until the process's end, with its terminal's keys and size passed on if it has one.
pub(crate) fn run(terms: Terms<'_>) -> Result<Outcome> {
    // Caught before the terminal is raw: none of them leaves it so.
    let caught = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGWINCH];
    let signals = Signals::catch(&caught).context(|| "cannot catch signals")?;
    let is_interactive = terms.terminal && terms.input && io::stdin().is_terminal();
    let _raw = if is_interactive { Some(RawMode::enter()?) } else { None };
    let mut session = Session {
        input_open: terms.input,
        terms,
        signals,
        pending: Vec::new(),
        detached: false,
        output_open: true,
        end: None,
        due: None,
    };
    session.resize();
    session.run()
}

impl Session<'_> {
    fn run(&mut self) -> Result<Outcome> {
        loop {
            for signal in self.signals.pending() {
                match signal {
                    Signal::SIGWINCH => self.resize(),
                    Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP if self.terms.passes_signals => self.pass(signal),
                    _ => return Ok(Outcome::Left(signal)),
                }
            }
            if self.output_open {
                self.take_output()?;
            }
            self.take_news()?;
            self.give_input()?;
            if self.detached {
                return Ok(Outcome::Detached);
            }
            match (self.output_open, self.end) {
                (false, Some(end)) => return Ok(Outcome::Ended(end)),
                (false, None) if self.due.is_some_and(|due| due <= Instant::now()) => {
                    return failure(format_args!(
                        "{}: the connection to {} was closed before it ended: it goes on (more clients than the monitor \
                         takes, or this one read too slowly)",
                        self.terms.shim.label(),
                        self.terms.target
                    ));
                }
                _ => self.wait()?,
            }
        }
    }

    /// Writes what the process has written, as much as one turn takes: keys and signals have theirs, however much it is.
    fn take_output(&mut self) -> Result<()> {
        for _ in 0..PACKETS_PER_TURN {
            match self.terms.attach.receive()? {
                Output::Stdout(bytes) => write_all(io::stdout().as_fd(), bytes)?,
                Output::Stderr(bytes) => write_all(io::stderr().as_fd(), bytes)?,
                Output::Nothing => return Ok(()),
                Output::End => {
                    self.output_open = false;
                    self.due.get_or_insert(Instant::now() + PATIENCE);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn take_news(&mut self) -> Result<()> {
        while self.end.is_none() {
            match self.terms.news.next()? {
                Incoming::Answer(answer) => self.end = (self.terms.read_end)(&answer),
                Incoming::Nothing => return Ok(()),
                Incoming::End => return Err(self.terms.news.gone()),
            }
        }
        Ok(())
    }

    /// Passes on what stdin has, as much as one turn takes, while the process takes it.
    fn give_input(&mut self) -> Result<()> {
        if !self.send_pending()? || !self.input_open || !is_readable(io::stdin().as_fd()) {
            return Ok(());
        }
        let mut typed = [0; INPUT];
        match read(io::stdin(), &mut typed) {
            // A terminal that is gone gives an error.
            Ok(0) | Err(Errno::EIO) => self.end_input()?,
            Ok(count) if self.terms.terminal => {
                (self.pending, self.detached) = self.terms.keys.filter(&typed[..count]);
            }
            Ok(count) => self.pending.extend_from_slice(&typed[..count]),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return failure(format_args!("cannot read stdin: {}", error.desc())),
        }
        self.send_pending().map(drop)
    }

    /// Whether all that was read is sent.
    fn send_pending(&mut self) -> Result<bool> {
        if !self.pending.is_empty() && self.terms.attach.send(&self.pending)? {
            self.pending.clear();
        }
        Ok(self.pending.is_empty())
    }

    fn end_input(&mut self) -> Result<()> {
        self.input_open = false;
        let rest = self.terms.keys.rest();
        if !rest.is_empty() {
            self.terms.attach.send(&rest)?;
        }
        self.terms.attach.end_input();
        Ok(())
    }

    /// Waits for anything to do.
    fn wait(&self) -> Result<()> {
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if self.end.is_none() {
            fds.push(PollFd::new(self.terms.news.as_fd(), PollFlags::POLLIN));
        }
        if self.output_open {
            let input = if self.pending.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            fds.push(PollFd::new(self.terms.attach.as_fd(), PollFlags::POLLIN | input));
        }
        let stdin = io::stdin();
        if self.input_open && self.pending.is_empty() {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        let timeout = self.due.map_or(PollTimeout::NONE, |due| {
            let left = due.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => failure(format_args!("cannot wait: {}", error.desc())),
        }
    }

    /// Gives the process's terminal the size of ours.
    fn resize(&self) {
        if !self.terms.terminal {
            return;
        }
        let size = sys::window_size(&io::stdout()).or_else(|| sys::window_size(&io::stdin()));
        if let Some((height, width)) = size {
            self.tell("Resize", &json!({"target": self.terms.target, "height": height, "width": width}));
        }
    }

    fn pass(&self, signal: Signal) {
        self.tell("Signal", &json!({"target": self.terms.target, "signal": signal.as_str()}));
    }

    /// On a connection of its own, as the answer to another call is still to come. It may have ended meanwhile: that is
    /// told there.
    fn tell(&self, method: &str, parameters: &Value) {
        let _ = Connection::open(self.terms.shim).and_then(|mut connection| connection.call(method, parameters));
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

/// Writes all, also where stdout is not blocking because another program made it so.
pub(crate) fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EAGAIN) => {
                let _ = poll(&mut [PollFd::new(fd, PollFlags::POLLOUT)], PollTimeout::NONE);
            }
            Err(Errno::EINTR) => {}
            Err(error) => return Err(output(&error.into())),
        }
    }
    Ok(())
}
