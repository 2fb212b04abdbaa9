//! Who waits for a signal to be sent to all processes of a target.

use std::time::Instant;

use dunnage_runtime::driver::{BroadcastId, Driver};

use super::reply::Done;
use super::{ConnectionId, Control, Refusal};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Signallers(Vec<Signaller>);

#[derive(Debug)]
struct Signaller {
    broadcast: BroadcastId,
    connection: ConnectionId,
    target: String,
}

impl Signallers {
    /// The call of `connection` is answered once the signal was sent to all that `target` has.
    pub(crate) fn add(&mut self, broadcast: BroadcastId, connection: ConnectionId, target: String) {
        self.0.push(Signaller { broadcast, connection, target });
    }

    /// The client is gone. Its signal is sent all the same.
    pub(crate) fn forget(&mut self, client: ConnectionId) {
        self.0.retain(|signaller| signaller.connection != client);
    }

    /// Answers those whose signal was sent.
    pub(crate) fn answer(&mut self, driver: &mut Driver, control: &mut Control, now: Instant) {
        while let Some(sent) = driver.poll_broadcast() {
            let position = self.0.iter().position(|signaller| signaller.broadcast == sent.id);
            let Some(position) = position else { continue };
            let Signaller { connection, target, .. } = self.0.swap_remove(position);
            if sent.reached {
                control.answer(connection, &Done {}, now);
            } else {
                control.refuse(connection, &Refusal::NotFound { target }, now);
            }
        }
    }

    /// Gives up memory that is not needed now.
    pub(crate) fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }
}
