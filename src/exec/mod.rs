//! Processes executed in the container beside its own, for clients of the control socket.
//!
//! Each has its own streams, terminal, files and attach socket; none has an exit file, a log or an exit command.

mod capture;
mod directory;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use dunnage_runtime::event_loop::EventLoop;
use dunnage_runtime::reaper::{CallId, ChildId};
use log::warn;
use nix::unistd::Pid;

pub(crate) use capture::{Capture, Captured};
use directory::Directory;

use crate::cli::Stdio;
use crate::control::ConnectionId;
use crate::error::{Context, Result};
use crate::relay::{AttachSocket, ChildStdio, Relay};
use crate::source::{ExecId, Source, Target};
use crate::start::{Console, Handover};

/// How many execs there may be at once: each has a handful of descriptors.
const MAX_EXECS: usize = 64;

/// What the answers of all execs may come to together.
const MAX_CAPTURED: usize = 128 << 20;

/// How long attach clients get to take the rest of the output: as at the container's end.
const FLUSH_WAIT: Duration = Duration::from_secs(1);

/// Who waits for an exec, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// For its output and its end.
    Sync {
        connection: ConnectionId,
        /// The exec is for nobody else: it ends if the caller leaves.
        cancel_on_disconnect: bool,
    },
    /// To be told that it started, and that it ended.
    Stream { connection: ConnectionId },
    /// Nobody any more.
    Gone,
}

impl Caller {
    /// The connection to answer on.
    pub(crate) fn connection(self) -> Option<ConnectionId> {
        match self {
            Self::Sync { connection, .. } | Self::Stream { connection } => Some(connection),
            Self::Gone => None,
        }
    }
}

/// How an exec is wanted.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    /// The OCI process, as JSON.
    pub(crate) process: &'a str,
    pub(crate) stdio: Stdio,
    /// How much output is kept of each stream.
    pub(crate) max_output: usize,
    pub(crate) caller: Caller,
}

/// How far an exec is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    /// Its files are there.
    Prepared,
    /// Its runtime runs.
    Starting { call: CallId },
    /// It was started.
    Running { child: ChildId, pid: Pid, started: SystemTime },
    /// It has ended; clients take what they have not read yet.
    Flushing { until: Instant },
}

/// An exec.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) id: ExecId,
    pub(crate) caller: Caller,
    pub(crate) state: State,
    pub(crate) relay: Relay,
    pub(crate) capture: Capture,
    pub(crate) console: Option<Console>,
    /// Nobody wants it any more: its process is killed, or will be once it is known.
    pub(crate) cancelled: bool,
    max_output: usize,
    directory: Directory,
    attach: Option<AttachSocket>,
}

impl Exec {
    /// Makes all that the process needs.
    pub(crate) fn prepare(
        event_loop: &EventLoop<Source>,
        id: ExecId,
        order: &Order<'_>,
        beside: &Path,
        stall_timeout: Option<Duration>,
    ) -> Result<(Self, ChildStdio)> {
        let target = Target::Exec(id);
        let directory = Directory::create(beside).context(|| "cannot prepare the exec")?;
        directory.write_process(order.process).context(|| "cannot prepare the exec")?;
        let console = match order.stdio {
            Stdio::Terminal => Some(Console::listen(event_loop, target)?),
            _ => None,
        };
        let (mut relay, child_stdio) =
            Relay::new(event_loop, target, order.stdio, false, stall_timeout).context(|| "cannot make the pipes")?;
        let mut attach = None;
        if let Caller::Stream { .. } = order.caller {
            let made = AttachSocket::create(directory.path(), None, "".as_ref());
            let (socket, listener) = made.context(|| "cannot let clients attach")?;
            relay.listen(event_loop, listener).context(|| "cannot watch the attach socket")?;
            relay.keep_for_the_first();
            attach = Some(socket);
        }
        let exec = Self {
            id,
            caller: order.caller,
            state: State::Prepared,
            relay,
            capture: Capture::new(order.max_output),
            console,
            cancelled: false,
            max_output: order.max_output,
            directory,
            attach,
        };
        Ok((exec, child_stdio))
    }

    /// What the runtime reads the process from.
    pub(crate) fn process_path(&self) -> PathBuf {
        self.directory.process()
    }

    /// Where the runtime writes its PID.
    pub(crate) fn pid_file(&self) -> PathBuf {
        self.directory.pid_file()
    }

    /// Where clients attach.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.socket()
    }

    /// The registration of its process, while that runs.
    pub(crate) fn child(&self) -> Option<ChildId> {
        match self.state {
            State::Running { child, .. } => Some(child),
            _ => None,
        }
    }

    /// Whether its process or its runtime is there.
    pub(crate) fn is_alive(&self) -> bool {
        self.child().is_some() || self.call().is_some()
    }

    /// The call that starts it.
    pub(crate) fn call(&self) -> Option<CallId> {
        match self.state {
            State::Starting { call } => Some(call),
            _ => None,
        }
    }

    /// Receives the terminal from the runtime, if it has come. Whether it is set up.
    pub(crate) fn receive_terminal(&mut self, event_loop: &EventLoop<Source>) -> Option<bool> {
        let Handover::Terminal(master) = self.console.as_mut()?.receive(event_loop) else { return None };
        let connected = self.relay.connect_terminal(event_loop, master);
        self.close_console(event_loop);
        Some(connected.inspect_err(|error| warn!("cannot set up the terminal of {}: {error}", self.id)).is_ok())
    }

    pub(crate) fn close_console(&mut self, event_loop: &EventLoop<Source>) {
        if let Some(console) = self.console.take() {
            console.close(event_loop);
        }
    }

    /// Its process runs.
    pub(crate) fn begin(&mut self, event_loop: &EventLoop<Source>, child: ChildId, pid: Pid) {
        self.state = State::Running { child, pid, started: SystemTime::now() };
        self.close_console(event_loop);
        self.relay.take_stderr_tail();
        // Its environment may hold secrets.
        self.directory.remove_process();
    }

    /// Its process has ended, and its output is read. What it is now depends on its clients.
    pub(crate) fn end(&mut self, event_loop: &EventLoop<Source>, now: Instant) {
        self.relay.drain(event_loop, &mut self.capture, now);
        self.close_console(event_loop);
        self.state = State::Flushing { until: now + FLUSH_WAIT };
    }

    fn is_done(&self, now: Instant) -> bool {
        match self.state {
            State::Flushing { until } => self.relay.flushed() || until <= now,
            _ => false,
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let flush = match self.state {
            State::Flushing { until } => Some(until),
            _ => None,
        };
        [flush, self.relay.next_timeout()].into_iter().flatten().min()
    }

    fn close(mut self, event_loop: &EventLoop<Source>) {
        self.close_console(event_loop);
        self.relay.close(event_loop);
        if let Some(attach) = &mut self.attach {
            attach.unlink_socket();
        }
    }
}

/// The execs of a shim.
#[derive(Debug)]
pub(crate) struct Execs {
    list: Vec<Exec>,
    next_id: ExecId,
}

impl Default for Execs {
    fn default() -> Self {
        Self { list: Vec::new(), next_id: ExecId::FIRST }
    }
}

impl Execs {
    /// A number for one more exec, which may keep so much output; or why there cannot be one.
    pub(crate) fn admit(&mut self, max_output: usize) -> Result<ExecId, String> {
        if self.list.len() >= MAX_EXECS {
            return Err(format!("{} execs run already", self.list.len()));
        }
        // Of each of two streams.
        let captured: usize = self.list.iter().map(|exec| 2 * exec.max_output).sum();
        if captured + 2 * max_output > MAX_CAPTURED {
            return Err("the execs that run may keep too much output already".to_owned());
        }
        while self.list.iter().any(|exec| exec.id == self.next_id) {
            self.next_id = self.next_id.next();
        }
        let id = self.next_id;
        self.next_id = id.next();
        Ok(id)
    }

    pub(crate) fn add(&mut self, exec: Exec) {
        self.list.push(exec);
    }

    pub(crate) fn get_mut(&mut self, id: ExecId) -> Option<&mut Exec> {
        self.list.iter_mut().find(|exec| exec.id == id)
    }

    pub(crate) fn by_call(&mut self, call: CallId) -> Option<&mut Exec> {
        self.list.iter_mut().find(|exec| exec.call() == Some(call))
    }

    pub(crate) fn by_child(&mut self, child: ChildId) -> Option<&mut Exec> {
        self.list.iter_mut().find(|exec| exec.child() == Some(child))
    }

    pub(crate) fn by_name(&mut self, name: &str) -> Option<&mut Exec> {
        self.list.iter_mut().find(|exec| exec.id.to_string() == name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Exec> {
        self.list.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Exec> {
        self.list.iter_mut()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Removes one that nobody attaches to.
    pub(crate) fn remove(&mut self, event_loop: &EventLoop<Source>, id: ExecId) {
        if let Some(position) = self.list.iter().position(|exec| exec.id == id) {
            self.list.remove(position).close(event_loop);
        }
    }

    /// Removes those that have ended and whose clients have everything, or had their time.
    pub(crate) fn settle(&mut self, event_loop: &EventLoop<Source>, now: Instant) {
        while let Some(position) = self.list.iter().position(|exec| exec.is_done(now)) {
            self.list.remove(position).close(event_loop);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.list.iter().filter_map(Exec::next_timeout).min()
    }

    /// Gives up memory that is not needed now.
    pub(crate) fn shrink(&mut self) {
        self.list.shrink_to_fit();
    }

    /// Closes all.
    pub(crate) fn close(&mut self, event_loop: &EventLoop<Source>) {
        for exec in self.list.drain(..) {
            exec.close(event_loop);
        }
    }
}

/// The runtime's ends of an exec's streams.
pub(crate) fn borrowed(stdio: &ChildStdio) -> [std::os::fd::BorrowedFd<'_>; 3] {
    [stdio.stdin.as_fd(), stdio.stdout.as_fd(), stdio.stderr.as_fd()]
}
