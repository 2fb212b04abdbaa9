//! What a client has still to get.

use std::time::{Duration, Instant};

/// How long a client may take nothing of what waits for it.
pub(super) const STALL_TIME: Duration = Duration::from_secs(10);

/// Messages on their way, each with the NUL that ends it. Bounded by whoever adds: one answer at a time, and events
/// only while there is room.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
    /// Since when it takes nothing.
    stalled: Option<Instant>,
}

impl Outbox {
    /// Adds a message.
    pub(super) fn push(&mut self, mut message: Vec<u8>) {
        message.push(0);
        if self.is_empty() {
            self.bytes = message;
        } else {
            self.bytes.extend_from_slice(&message);
        }
    }

    /// What is to be sent next.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Whether all was sent.
    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// How much there is.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// So much of it was sent.
    pub(super) fn advance(&mut self, count: usize) {
        self.sent += count;
        self.stalled = None;
        if self.is_empty() {
            // What it took is given back.
            *self = Self::default();
        }
    }

    /// The client takes nothing for now.
    pub(super) fn stall(&mut self, now: Instant) {
        self.stalled.get_or_insert(now);
    }

    /// When it must have taken something.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.stalled.map(|since| since + STALL_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_out_in_order_each_with_its_end() {
        let mut outbox = Outbox::default();
        assert!(outbox.is_empty());
        outbox.push(b"{1}".to_vec());
        outbox.push(b"{2}".to_vec());
        assert_eq!(outbox.unsent(), b"{1}\0{2}\0");
        outbox.advance(2);
        assert_eq!((outbox.unsent(), outbox.len()), (b"}\0{2}\0".as_slice(), 6));
        outbox.advance(6);
        assert!(outbox.is_empty());
        outbox.push(b"{3}".to_vec());
        assert_eq!(outbox.unsent(), b"{3}\0");
    }

    #[test]
    fn k2_a_client_has_its_time_from_the_last_byte_it_took() {
        let mut outbox = Outbox::default();
        let start = Instant::now();
        outbox.push(b"{}".to_vec());
        outbox.stall(start);
        outbox.stall(start + Duration::from_secs(5));
        assert_eq!(outbox.deadline(), Some(start + STALL_TIME));
        outbox.advance(1);
        assert_eq!(outbox.deadline(), None);
    }
}
