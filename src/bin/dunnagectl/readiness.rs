//! Waits until a generation says that it is ready.

use std::os::fd::AsFd;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use crate::client::{Connection, Incoming, PATIENCE};
use crate::error::{Result, failure, one_line};
use crate::shims::Shim;

/// Hears of all that happens since it began to listen.
#[derive(Debug)]
pub(crate) struct Readiness {
    events: Connection,
}

/// What an event says of it.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Ready,
    Ended(i64),
    /// What it says of itself.
    Status(String),
    /// It may have been told, and was not heard.
    Missed,
    Nothing,
}

impl Readiness {
    /// Begins to listen.
    pub(crate) fn listen(shim: &Shim) -> Result<Self> {
        let mut events = Connection::open(shim)?;
        events.ask_for_more("Events", &json!({}))?;
        // The first event says that from here on all are told.
        events.answer(Instant::now() + PATIENCE)?;
        Ok(Self { events })
    }

    /// Waits for READY=1 of what was started.
    pub(crate) fn wait(mut self, started: &Value, deadline: Instant) -> Result<()> {
        let target = started["target"].as_str().unwrap_or_default();
        let mut status = "it has said nothing of itself".to_owned();
        loop {
            match self.events.next()? {
                Incoming::Answer(answer) => match news(&answer["event"], target) {
                    News::Ready => return Ok(()),
                    News::Ended(code) => {
                        return failure(format_args!(
                            "{target} ended with status {code} before it was ready ({status}); its log says more"
                        ));
                    }
                    News::Status(text) => status = format!("it says: {text}"),
                    News::Missed => {
                        return failure(format_args!("whether {target} is ready was missed: it runs, ask it"));
                    }
                    News::Nothing => {}
                },
                Incoming::End => return Err(self.events.gone()),
                Incoming::Nothing if Instant::now() >= deadline => {
                    return failure(format_args!(
                        "{target} runs, and has not become ready in time ({status}); dunnagectl kill ends it"
                    ));
                }
                Incoming::Nothing => self.rest(deadline)?,
            }
        }
    }

    fn rest(&self, deadline: Instant) -> Result<()> {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis() + 1;
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.events.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => failure(format_args!("cannot wait: {}", error.desc())),
        }
    }
}

fn news(event: &Value, target: &str) -> News {
    let kind = event["kind"].as_str().unwrap_or_default();
    if kind == "missed" {
        return News::Missed;
    }
    if event["target"] != target {
        return News::Nothing;
    }
    match kind {
        "exited" => News::Ended(event["exit_code"].as_i64().unwrap_or(-1)),
        "notified" => {
            let message = event["generation"]["message"].as_str().unwrap_or_default();
            let status = message.lines().find_map(|line| line.strip_prefix("STATUS="));
            if message.lines().any(|line| line == "READY=1") {
                News::Ready
            } else {
                status.map_or(News::Nothing, |status| News::Status(one_line(status)))
            }
        }
        _ => News::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_word_makes_it_ready() {
        let notified = |target: &str, message: &str| json!({"kind": "notified", "target": target, "generation": {"n": 7, "message": message}});
        assert_eq!(news(&notified("gen-7", "STATUS=up\nREADY=1"), "gen-7"), News::Ready);
        assert_eq!(news(&notified("gen-6", "READY=1"), "gen-7"), News::Nothing);
        assert_eq!(news(&notified("gen-7", "READY=0\nREADY=11"), "gen-7"), News::Nothing);
        assert_eq!(news(&notified("gen-7", "STATUS=loading"), "gen-7"), News::Status("loading".to_owned()));
        assert_eq!(news(&json!({"kind": "exited", "target": "gen-7", "exit_code": 1}), "gen-7"), News::Ended(1));
        assert_eq!(news(&json!({"kind": "exited", "target": "gen-6", "exit_code": 1}), "gen-7"), News::Nothing);
        assert_eq!(news(&json!({"kind": "missed", "count": 3}), "gen-7"), News::Missed);
    }
}
