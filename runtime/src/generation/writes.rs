//! Writing of the record: one write at a time, and what waits for it (G29).

use std::time::Instant;

use super::types::{Failure, Outcome, Reply, RequestId, Serial, StartId};
use super::{Action, Generations};

/// Which states of the record are on disk.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// The state that the record is in.
    latest: Serial,
    /// A write is asked for or in progress.
    busy: bool,
    /// The state that was written last, or is being written.
    begun: Serial,
    /// What waits for a state, the earliest first.
    waiting: Vec<(Serial, Then)>,
}

/// What follows a write.
#[derive(Debug)]
pub(super) enum Then {
    /// The start's pending record is there (G3).
    Ask(StartId),
    /// The process is in the record; it runs, whatever came of the write.
    Started(RequestId, Reply),
    /// This is true whether or not it is written.
    Answer(RequestId, Result<Reply, Failure>),
    /// This is true only if it is written.
    Confirm(RequestId, Reply),
    /// A hold that was taken back, and comes back if that cannot be written (G31).
    Released(RequestId, String, String),
    /// The intent of the switch is there (G16).
    Rename(RequestId),
    /// The new cgroup of the generation is there (G28).
    Move(RequestId),
}

impl Writes {
    /// The write begins: it takes the record as it is at this moment.
    pub(super) fn begin(&mut self) -> Serial {
        self.begun = self.latest;
        self.begun
    }

    /// Whether no write is asked for or in progress.
    pub(super) fn are_settled(&self) -> bool {
        !self.busy
    }

    /// Whether no write that was begun has the pending record of the start.
    pub(super) fn is_unwritten(&self, id: StartId) -> bool {
        self.waiting.iter().any(|(needed, then)| *needed > self.begun && matches!(then, Then::Ask(its) if *its == id))
    }
}

impl Generations {
    /// The record has changed.
    pub(super) fn save(&mut self) {
        self.writes.latest.0 += 1;
        self.write();
    }

    /// The record has changed, and something waits until that is written.
    pub(super) fn save_then(&mut self, then: Then) {
        self.save();
        self.writes.waiting.push((self.writes.latest, then));
    }

    fn write(&mut self) {
        if !self.writes.busy {
            self.writes.busy = true;
            self.actions.push_back(Action::WriteRecord(Serial::default()));
        }
    }

    /// The answer to [`Action::WriteRecord`]. What failed is written with the next change.
    pub fn handle_recorded(&mut self, now: Instant, serial: Serial, result: &Result<(), String>) {
        self.writes.busy = false;
        let later = self.writes.waiting.partition_point(|&(needed, _)| needed <= serial);
        let due: Vec<_> = self.writes.waiting.drain(..later).collect();
        if (serial < self.writes.latest && result.is_ok()) || !self.writes.waiting.is_empty() {
            self.write();
        }
        for (_, then) in due {
            self.go_on(now, then, result.clone());
        }
    }

    fn go_on(&mut self, now: Instant, then: Then, result: Result<(), String>) {
        match then {
            Then::Ask(id) => self.handle_pending_recorded(now, id, result),
            Then::Started(request, reply) => {
                let uncertain = |error| Failure::StartUncertain(format!("it was started, but not recorded: {error}"));
                self.report(Outcome::Answer(request, result.map(|()| reply).map_err(uncertain)));
            }
            Then::Answer(request, answer) => self.answer(request, answer),
            Then::Confirm(request, reply) => self.answer(request, result.map(|()| reply).map_err(Failure::Record)),
            Then::Released(request, build, reason) => self.finish_release(request, build, reason, result),
            Then::Rename(request) => self.handle_intent_recorded(request, result),
            Then::Move(request) => self.handle_move_recorded(request, result),
        }
    }
}
