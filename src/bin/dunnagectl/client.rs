//! Calls the methods of a monitor: varlink, JSON objects that each end with a NUL byte.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, SockType, recv, send};
use serde_json::{Value, json};

use crate::error::{Context, Failure, Result, failure};
use crate::refusal;
use crate::shims::Shim;
use crate::socket;

/// How long a monitor may take for an answer that is due at once: it never waits for anything itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The largest answer; none that is asked for here comes near.
const MAX_ANSWER: usize = 16 << 20;

/// A connection to a monitor. Its calls are answered one after the other.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    received: Vec<u8>,
    method: String,
    /// Whom errors are about.
    who: String,
}

/// What came from the monitor.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// An answer's parameters.
    Answer(Value),
    /// Nothing for now.
    Nothing,
    /// The end of the connection.
    End,
}

impl Connection {
    /// Connects.
    pub(crate) fn open(shim: &Shim) -> Result<Self> {
        let path = shim.path();
        let socket = socket::connect(path, SockType::Stream).or_else(|error| {
            let at = path.display();
            match error.kind() {
                ErrorKind::NotFound => failure(format_args!(
                    "there is no socket {at}: the container has ended, or its monitor was started without \
                     --control-socket"
                )),
                ErrorKind::ConnectionRefused => failure(format_args!(
                    "{}: nobody listens at its socket: the monitor was killed, and its container may still run \
                     (runc list)",
                    shim.label()
                )),
                ErrorKind::PermissionDenied => failure(format_args!(
                    "{at} is not for this user: run dunnagectl as root, or as the user that the monitor runs as"
                )),
                ErrorKind::WouldBlock => failure(format_args!(
                    "{at} has too many clients waiting: the monitor does not run (stopped?), or try again"
                )),
                _ => failure(format_args!("cannot connect to {at}: {error}")),
            }
        })?;
        Ok(Self { socket, received: Vec::new(), method: String::new(), who: shim.label().to_owned() })
    }

    /// Calls a method that answers at once.
    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.call_within(method, parameters, PATIENCE)
    }

    /// The same where the answer may take longer.
    pub(crate) fn call_within(&mut self, method: &str, parameters: &Value, bound: Duration) -> Result<Value> {
        self.ask(method, parameters)?;
        self.answer(Instant::now() + bound)
    }

    /// Calls a method; its answer is still to come.
    pub(crate) fn ask(&mut self, method: &str, parameters: &Value) -> Result<()> {
        self.send(method, &json!({"method": format!("org.dunnage.shim.{method}"), "parameters": parameters}))
    }

    /// Calls a method that answers more than once.
    pub(crate) fn ask_for_more(&mut self, method: &str, parameters: &Value) -> Result<()> {
        let name = format!("org.dunnage.shim.{method}");
        self.send(method, &json!({"method": name, "parameters": parameters, "more": true}))
    }

    fn send(&mut self, method: &str, call: &Value) -> Result<()> {
        method.clone_into(&mut self.method);
        let mut message = call.to_string().into_bytes();
        message.push(0);
        let deadline = Instant::now() + PATIENCE;
        let mut rest = &message[..];
        while !rest.is_empty() {
            match send(self.socket.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::EAGAIN) => self.wait(PollFlags::POLLOUT, Some(deadline))?,
                Err(Errno::EINTR) => {}
                // Closed: said when the answer does not come.
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Ok(()),
                Err(error) => return self.fails(format_args!("cannot send: {}", error.desc())),
            }
        }
        Ok(())
    }

    /// The next answer, which must come by then.
    pub(crate) fn answer(&mut self, deadline: Instant) -> Result<Value> {
        self.answer_by(Some(deadline))
    }

    /// The next answer, however long it takes.
    pub(crate) fn answer_some_day(&mut self) -> Result<Value> {
        self.answer_by(None)
    }

    fn answer_by(&mut self, deadline: Option<Instant>) -> Result<Value> {
        loop {
            match self.next()? {
                Incoming::Answer(answer) => return Ok(answer),
                Incoming::End => return Err(self.gone()),
                Incoming::Nothing => self.wait(PollFlags::POLLIN, deadline)?,
            }
        }
    }

    /// What has come, without waiting for it.
    pub(crate) fn next(&mut self) -> Result<Incoming> {
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == 0) {
                let message: Vec<u8> = self.received.drain(..=end).collect();
                return self.read(&message[..end]).map(Incoming::Answer);
            }
            let mut bytes = [0; 16 << 10];
            match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
                Ok(0) | Err(Errno::ECONNRESET) => return Ok(Incoming::End),
                Ok(_) if self.received.len() > MAX_ANSWER => return self.fails("it answers without end"),
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(Errno::EAGAIN) => return Ok(Incoming::Nothing),
                Err(Errno::EINTR) => {}
                Err(error) => return self.fails(format_args!("cannot read the answer: {}", error.desc())),
            }
        }
    }

    fn read(&self, message: &[u8]) -> Result<Value> {
        let mut answer: Value = serde_json::from_slice(message)
            .context(|| format!("{}: the answer to {} is no JSON", self.who, self.method))?;
        match answer["error"].as_str() {
            None => Ok(answer["parameters"].take()),
            Some(error) => self.fails(refusal::explain(&self.method, error, &answer["parameters"])),
        }
    }

    /// The connection has ended where it should not.
    pub(crate) fn gone(&self) -> Failure {
        Failure::Told(format!(
            "{}: the monitor closed the connection without an answer to {}: it ended, has its 64 clients already, or \
             is not for this user; dunnagectl ps shows what is left",
            self.who, self.method
        ))
    }

    fn wait(&self, events: PollFlags, deadline: Option<Instant>) -> Result<()> {
        let timeout = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            None => PollTimeout::NONE,
            Some(Duration::ZERO) => {
                return self.fails(format_args!(
                    "no answer to {} in time: the monitor does not run (stopped, or out of memory?)",
                    self.method
                ));
            }
            Some(left) => PollTimeout::try_from(i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX))
                .unwrap_or(PollTimeout::MAX),
        };
        match poll(&mut [PollFd::new(self.socket.as_fd(), events)], timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => self.fails(format_args!("cannot wait: {}", io::Error::from(error))),
        }
    }

    fn fails<T>(&self, text: impl std::fmt::Display) -> Result<T> {
        failure(format_args!("{}: {text}", self.who))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
