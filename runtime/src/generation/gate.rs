//! The caller's last word on a start (G6).

use std::time::Instant;

use super::start::Phase;
use super::types::{Failure, Opened, Outcome, Point, RequestId, StartId, Token};
use super::{Generations, Timer};

impl Generations {
    /// Asks the caller, if it wants to be asked.
    pub(super) fn ask(&mut self, now: Instant, id: StartId, opened: Opened, point: Point) {
        if let Some(reason) = self.find_start(id).and_then(|start| self.held(&start.source, &opened.build)) {
            return self.fail_start(now, id, Failure::Refused(reason));
        }
        let token = Token(self.take_number());
        let Some(start) = self.find_start_mut(id) else { return };
        let build = opened.build.clone();
        let (role, asked) = (start.role, start.request.zip(start.gate));
        start.phase = Phase::Asking { opened, point, token };
        match asked {
            None => self.go_on_after_gate(now, id),
            Some((request, limit)) => {
                self.deadlines.set(Timer::Gate(id), now + limit);
                self.report(Outcome::Gate { request, token, role, build, point });
            }
        }
    }

    /// An answer that names a token. Returns whether anybody waits for it.
    pub fn handle_gate_answer(&mut self, now: Instant, token: Token, answer: Result<(), String>) -> bool {
        let asked = |phase: &Phase| matches!(phase, Phase::Asking { token: its, .. } if *its == token);
        let Some(id) = self.starts.iter().find(|start| asked(&start.phase)).map(|start| start.id) else { return false };
        self.deadlines.cancel(Timer::Gate(id));
        match answer {
            Ok(()) => self.go_on_after_gate(now, id),
            Err(reason) => self.fail_start(now, id, Failure::Refused(reason)),
        }
        true
    }

    pub(super) fn handle_gate_timeout(&mut self, now: Instant, id: StartId) {
        self.fail_start(now, id, Failure::Refused("the gate was not answered in time".into()));
    }

    /// The caller went away (K3). Only a start that it is to be asked about ends with it.
    pub fn handle_caller_gone(&mut self, now: Instant, request: RequestId) {
        self.end_asked(now, request, "the caller went away");
    }

    /// The caller said something on the connection of its own start, where answers to a gate have no place.
    pub fn handle_caller_spoke(&mut self, now: Instant, request: RequestId) {
        self.end_asked(now, request, "the gate is answered on another connection than that of the start");
    }

    fn end_asked(&mut self, now: Instant, request: RequestId, reason: &str) {
        let asked = self.starts.iter().find(|start| start.request == Some(request) && start.gate.is_some());
        if let Some(start) = asked.filter(|start| start.is_cancellable()) {
            self.fail_start(now, start.id, Failure::Refused(reason.into()));
        }
    }
}
