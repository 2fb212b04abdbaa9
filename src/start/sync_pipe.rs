//! Messages to the caller: one JSON object, one line, one write.

use std::fmt::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use log::warn;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;

use crate::cli::{Api, Config};

/// A message is shorter than this: the caller reads a page at once, and a pipe takes as much in one piece.
const MESSAGE_MAX: usize = 4096;

/// How long a caller may keep a message waiting: its pipe is empty unless it is hostile.
const WRITE_WAIT: Duration = Duration::from_secs(1);

/// The way to the caller, who may be gone.
#[derive(Debug)]
pub(crate) struct SyncPipe {
    fd: Option<OwnedFd>,
    dialect: Dialect,
}

/// What the caller expects on its sync pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `{"pid": N}`, or why there is none.
    LegacyCreate,
    /// `{"exit_code": N}` at the end.
    LegacyExec,
    /// `{"data": PID}`.
    Create,
    /// `{"data": PID}`, and `{"data": CODE}` at the end.
    Exec,
}

impl Dialect {
    /// The dialect of what `config` asks for.
    pub(crate) fn of(config: &Config) -> Self {
        match (config.api, config.is_exec()) {
            (Api::Legacy, false) => Self::LegacyCreate,
            (Api::Legacy, true) => Self::LegacyExec,
            (Api::V1, false) => Self::Create,
            (Api::V1, true) => Self::Exec,
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::LegacyCreate => "pid",
            Self::LegacyExec => "exit_code",
            Self::Create | Self::Exec => "data",
        }
    }
}

impl SyncPipe {
    /// Answers on `fd`; without one nobody asked.
    pub(crate) fn new(fd: Option<OwnedFd>, dialect: Dialect) -> Self {
        Self { fd, dialect }
    }

    /// The process runs (a container waits for its start) as `pid`.
    pub(crate) fn started(&mut self, pid: i32) {
        match self.dialect {
            Dialect::LegacyExec => {}
            Dialect::Exec => self.send(&value("data", pid)),
            Dialect::LegacyCreate | Dialect::Create => {
                self.send(&value(self.dialect.key(), pid));
                self.close();
            }
        }
    }

    /// An exec's process ended with `code`. The last message.
    pub(crate) fn ended(&mut self, code: i32) {
        match self.dialect {
            Dialect::LegacyExec | Dialect::Exec => self.send(&value(self.dialect.key(), code)),
            Dialect::LegacyCreate | Dialect::Create => {}
        }
        self.close();
    }

    /// Nothing runs, for the reason that `text` gives: the runtime's own words where it had some. Or an exec was ended
    /// at its timeout. The last message.
    pub(crate) fn failed(&mut self, text: &[u8]) {
        self.send(&failure(self.dialect.key(), text));
        self.close();
    }

    /// Closes it, as at the end of the process.
    pub(crate) fn close(&mut self) {
        self.fd = None;
    }

    fn send(&self, message: &str) {
        if let Some(fd) = &self.fd {
            send(fd, message);
        }
    }
}

/// The way to the caller of an exec with clients, who waits until they can attach.
#[derive(Debug)]
pub(crate) struct AttachPipe(Option<OwnedFd>);

impl AttachPipe {
    /// Answers on `fd`; without one nobody asked.
    pub(crate) fn new(fd: Option<OwnedFd>) -> Self {
        Self(fd)
    }

    /// The attach socket and the fifos are there. The only message.
    pub(crate) fn ready(self) {
        if let Some(fd) = self.0 {
            send(&fd, &value("data", 0));
        }
    }

    /// They will not be.
    pub(crate) fn failed(self, text: &[u8]) {
        if let Some(fd) = self.0 {
            send(&fd, &failure("data", text));
        }
    }
}

fn send(fd: &OwnedFd, message: &str) {
    let deadline = Instant::now() + WRITE_WAIT;
    loop {
        if !has_room(fd, deadline) {
            return warn!("the caller does not read its pipe: not told {}", message.trim_end());
        }
        let told = message.trim_end();
        match write(fd, message.as_bytes()) {
            Ok(_) => return,
            // The caller may have made it nonblocking.
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(Errno::EPIPE) => return warn!("the caller has closed its pipe: not told {told}"),
            Err(errno) => return warn!("cannot write to the caller's pipe: {}: not told {told}", errno.desc()),
        }
    }
}

/// Whether a write would not block before the deadline. One page free is room for any message.
fn has_room(fd: &OwnedFd, deadline: Instant) -> bool {
    let mut ready = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // It is a second at most, which fits.
        match poll(&mut ready, PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)) {
            Err(Errno::EINTR) => {}
            polled => return polled != Ok(0),
        }
    }
}

fn value(key: &str, value: i32) -> String {
    format!("{{\"{key}\": {value}}}\n")
}

/// The message of a failure. Of a text that is too long the end is kept, where runtimes say what it came to.
fn failure(key: &str, text: &[u8]) -> String {
    let mut message = format!("{{\"{key}\": -1, \"message\": \"");
    let end = "\"}\n";
    let room = MESSAGE_MAX - 1 - message.len() - end.len();
    let text = String::from_utf8_lossy(text);
    let mut used = 0;
    let start = text
        .char_indices()
        .rev()
        .take_while(|&(_, character)| {
            used += escaped_len(character);
            used <= room
        })
        .last()
        .map_or(text.len(), |(position, _)| position);
    for character in text[start..].chars() {
        push_escaped(&mut message, character);
    }
    message.push_str(end);
    message
}

fn push_escaped(out: &mut String, character: char) {
    match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\0'..='\u{1f}' | '\u{7f}' => {
            // A String takes all that is written to it.
            let _ = write!(out, "\\u{:04x}", u32::from(character));
        }
        _ => out.push(character),
    }
}

fn escaped_len(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        '\0'..='\u{1f}' | '\u{7f}' => 6,
        _ => character.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn told(dialect: Dialect, tell: impl FnOnce(&mut SyncPipe)) -> String {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        tell(&mut SyncPipe::new(Some(theirs.into()), dialect));
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn messages_in_all_dialects() {
        for (dialect, started, ended, failed) in [
            (Dialect::LegacyCreate, "{\"pid\": 42}\n", "", "{\"pid\": -1, \"message\": \"no\\n\"}\n"),
            (Dialect::Create, "{\"data\": 42}\n", "", "{\"data\": -1, \"message\": \"no\\n\"}\n"),
            (Dialect::LegacyExec, "", "{\"exit_code\": 3}\n", "{\"exit_code\": -1, \"message\": \"no\\n\"}\n"),
            (Dialect::Exec, "{\"data\": 42}\n", "{\"data\": 3}\n", "{\"data\": -1, \"message\": \"no\\n\"}\n"),
        ] {
            let life = told(dialect, |pipe| {
                pipe.started(42);
                pipe.ended(3);
            });
            assert_eq!(life, format!("{started}{ended}"));
            assert_eq!(told(dialect, |pipe| pipe.failed(b"no\n")), failed);
        }
    }

    #[test]
    fn l01_one_message_then_the_end() {
        let text = told(Dialect::Create, |pipe| {
            pipe.failed(b"first");
            pipe.started(1);
        });
        assert_eq!(text, "{\"data\": -1, \"message\": \"first\"}\n");
    }

    #[test]
    fn whatever_the_bytes_the_message_is_json() {
        let all: Vec<u8> = (0..=255).collect();
        let message = failure("data", &all);
        assert!(message.bytes().filter(|&byte| byte < 0x20).eq([b'\n']), "{message:?}");
        assert!(message.contains("\\u0000\\u0001") && message.contains("\\\"#$") && message.contains('\u{fffd}'));
    }

    #[test]
    fn of_a_long_text_the_end_is_kept_and_the_message_fits() {
        for unit in ["x", "\"", "\u{1}", "é", "🚢"] {
            let text = unit.repeat(8192) + "the end";
            let message = failure("data", text.as_bytes());
            assert!(message.len() < MESSAGE_MAX && message.len() >= MESSAGE_MAX - 8, "{} of {unit}", message.len());
            assert!(message.ends_with("the end\"}\n"));
        }
    }

    #[test]
    fn a_caller_that_is_gone_is_nothing() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(ours);
        SyncPipe::new(Some(theirs.into()), Dialect::Create).started(1);
        SyncPipe::new(None, Dialect::Create).started(1);
    }
}
