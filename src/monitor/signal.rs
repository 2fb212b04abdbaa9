//! Signals that clients of the control socket send: to a target's process, or to all that it has.

use std::time::Instant;

use nix::sys::signal::Signal;

use super::service::{CONTAINER, Service};
use super::{Monitor, Phase};
use crate::control::reply::Done;
use crate::control::{ConnectionId, Refusal};

impl Monitor {
    /// Sends a signal to the target's process, or has it sent to all that it has.
    pub(super) fn signal(
        &mut self,
        from: ConnectionId,
        target: String,
        signal: Signal,
        all: bool,
        now: Instant,
    ) -> Result<(), Refusal> {
        let child = match (target.as_str(), &self.phase) {
            (CONTAINER, Phase::Running(child)) => Some(*child),
            (name, _) => self.exec_named(name).and_then(|exec| exec.child()),
        };
        let Some(child) = child else { return Err(Refusal::NotFound { target }) };
        if !all {
            self.driver.signal_child(&self.event_loop, now, child, signal);
            self.answer(from, &Done {}, now);
        } else if let Some(service) = &mut self.service {
            let broadcast = self.driver.signal_all(now, child, signal)?;
            service.signallers.add(broadcast, from, target);
        }
        Ok(())
    }

    /// Answers those whose signal to all was sent.
    pub(super) fn answer_signallers(&mut self, now: Instant) {
        if let Some(service) = &mut self.service {
            let Service { signallers, control, .. } = &mut **service;
            signallers.answer(&mut self.driver, control, now);
        }
    }
}
