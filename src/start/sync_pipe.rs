//! Messages to the caller: one JSON object, one line, one write.

use std::fmt::Write as _;
use std::os::fd::{AsFd, OwnedFd};

use log::warn;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;

use crate::cli::Api;

/// A message is shorter than this: the caller reads a page at once, and a pipe takes as much in one piece.
const MESSAGE_MAX: usize = 4096;

/// How long a caller may keep a message waiting, in milliseconds: its pipe is empty unless it is hostile.
const WRITE_WAIT: u16 = 1000;

/// The way to the caller, who may be gone.
#[derive(Debug)]
pub(crate) struct SyncPipe {
    fd: Option<OwnedFd>,
    api: Api,
}

impl SyncPipe {
    /// Answers on `fd` in the caller's dialect; without one nobody asked.
    pub(crate) fn new(fd: Option<OwnedFd>, api: Api) -> Self {
        Self { fd, api }
    }

    /// The container runs (or waits for its start) as `pid`. The last message of a create.
    pub(crate) fn started(&mut self, pid: i32) {
        let message = format!("{{\"{}\": {pid}}}\n", self.value_key());
        self.send_last(&message);
    }

    /// Nothing runs, for the reason that `text` gives: the runtime's own words where it had some.
    pub(crate) fn failed(&mut self, text: &[u8]) {
        let message = failure(self.value_key(), text);
        self.send_last(&message);
    }

    /// Closes it, as at the end of the process.
    pub(crate) fn close(&mut self) {
        self.fd = None;
    }

    fn value_key(&self) -> &'static str {
        match self.api {
            Api::Legacy => "pid",
            Api::V1 => "data",
        }
    }

    fn send_last(&mut self, message: &str) {
        let Some(fd) = self.fd.take() else { return };
        // A write that a pipe has room for does not block. One page free is room for any message.
        let mut ready = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut ready, PollTimeout::from(WRITE_WAIT)) {
            Ok(0) => warn!("the caller does not read its sync pipe: not told {}", message.trim_end()),
            _ => match write(&fd, message.as_bytes()) {
                Ok(_) => {}
                Err(Errno::EPIPE) => warn!("the caller has closed its sync pipe: not told {}", message.trim_end()),
                Err(errno) => warn!("cannot write to the sync pipe: {}: not told {}", errno.desc(), message.trim_end()),
            },
        }
    }
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

    fn told(api: Api, tell: impl FnOnce(&mut SyncPipe)) -> String {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        tell(&mut SyncPipe::new(Some(theirs.into()), api));
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn messages_in_both_dialects() {
        assert_eq!(told(Api::Legacy, |pipe| pipe.started(42)), "{\"pid\": 42}\n");
        assert_eq!(told(Api::V1, |pipe| pipe.started(42)), "{\"data\": 42}\n");
        assert_eq!(told(Api::Legacy, |pipe| pipe.failed(b"no")), "{\"pid\": -1, \"message\": \"no\"}\n");
        assert_eq!(told(Api::V1, |pipe| pipe.failed(b"no\n")), "{\"data\": -1, \"message\": \"no\\n\"}\n");
    }

    #[test]
    fn l01_one_message_then_the_end() {
        let text = told(Api::V1, |pipe| {
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
        SyncPipe::new(Some(theirs.into()), Api::V1).started(1);
        SyncPipe::new(None, Api::V1).started(1);
    }
}
