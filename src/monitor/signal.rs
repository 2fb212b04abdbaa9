//! Signals that clients of the control socket send: to a target's process, or to all that it has.

use std::time::Instant;

use dunnage_runtime::driver::BroadcastId;
use nix::sys::signal::Signal;

use super::service::CONTAINER;
use super::{Monitor, Phase};
use crate::control::reply::Done;
use crate::control::{ConnectionId, Refusal};

/// Who waits for a signal to be sent to all processes of a target.
#[derive(Debug)]
pub(super) struct Signaller {
    broadcast: BroadcastId,
    pub(super) connection: ConnectionId,
    target: String,
}

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
            return Ok(());
        }
        let too_many = |_| Refusal::Busy { reason: "too many signals to all wait already".to_owned() };
        let broadcast = self.driver.signal_all(now, child, signal).map_err(too_many)?;
        if let Some(service) = &mut self.service {
            service.signallers.push(Signaller { broadcast, connection: from, target });
        }
        Ok(())
    }

    /// Answers those whose signal to all was sent.
    pub(super) fn answer_signallers(&mut self, now: Instant) {
        while let Some(sent) = self.driver.poll_broadcast() {
            let Some(service) = &mut self.service else { return };
            let position = service.signallers.iter().position(|signaller| signaller.broadcast == sent.id);
            let Some(position) = position else { continue };
            let Signaller { connection, target, .. } = service.signallers.swap_remove(position);
            if sent.reached {
                service.control.answer(connection, &Done {}, now);
            } else {
                service.control.refuse(connection, &Refusal::NotFound { target }, now);
            }
        }
    }
}
