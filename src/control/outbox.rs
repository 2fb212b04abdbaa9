//! What a client has still to get.

use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

use super::base64;

/// How long a client may take nothing of what waits for it.
pub(super) const STALL_TIME: Duration = Duration::from_secs(10);

/// How many bytes are encoded at once: few writes, and a moment's work (R22). A multiple of 3.
const PIECE: usize = 48 << 10;

/// A part of a message.
#[derive(Debug)]
pub(super) enum Part {
    /// To be sent as it is.
    Text(Vec<u8>),
    /// To be sent as base64, which is made of it piece by piece as the client takes it.
    Base64 {
        bytes: Vec<u8>,
        /// How many of them were encoded.
        encoded: usize,
    },
}

impl Part {
    /// Bytes to be encoded.
    pub(super) fn base64(bytes: Vec<u8>) -> Self {
        Self::Base64 { bytes, encoded: 0 }
    }
}

/// Messages on their way, each with the NUL that ends it. Bounded by whoever adds: one answer at a time, and events
/// only while there is room.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// What is sent now, and how much of it was.
    piece: Vec<u8>,
    sent: usize,
    /// What follows.
    parts: VecDeque<Part>,
    /// Since when the client takes nothing.
    stalled: Option<Instant>,
}

impl Outbox {
    /// Adds a message.
    pub(super) fn push(&mut self, message: impl IntoIterator<Item = Part>) {
        for part in message.into_iter().chain([Part::Text(vec![0])]) {
            match (self.parts.back_mut(), part) {
                (Some(Part::Text(text)), Part::Text(more)) => text.extend_from_slice(&more),
                (_, part) => self.parts.push_back(part),
            }
        }
        self.refill();
    }

    /// What is to be sent next.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.piece[self.sent..]
    }

    /// Whether all was sent.
    pub(super) fn is_empty(&self) -> bool {
        self.unsent().is_empty()
    }

    /// How much text there is.
    pub(super) fn len(&self) -> usize {
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.len(),
            Part::Base64 { bytes, encoded } => bytes.len() - encoded,
        });
        self.unsent().len() + parts.sum::<usize>()
    }

    /// So much of it was sent.
    pub(super) fn advance(&mut self, count: usize) {
        self.sent += count;
        self.stalled = None;
        self.refill();
    }

    /// The client takes nothing for now.
    pub(super) fn stall(&mut self, now: Instant) {
        self.stalled.get_or_insert(now);
    }

    /// When it must have taken something.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.stalled.map(|since| since + STALL_TIME)
    }

    /// Has something to send as long as there is anything, and holds no memory otherwise.
    fn refill(&mut self) {
        while self.is_empty() {
            self.piece = Vec::new();
            self.sent = 0;
            match self.parts.front_mut() {
                None => {
                    self.parts = VecDeque::new();
                    return;
                }
                Some(Part::Base64 { bytes, encoded }) if *encoded < bytes.len() => {
                    let end = bytes.len().min(*encoded + PIECE);
                    base64::encode(&bytes[*encoded..end], &mut self.piece);
                    *encoded = end;
                }
                Some(Part::Text(text)) if !text.is_empty() => self.piece = mem::take(text),
                Some(_) => drop(self.parts.pop_front()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> [Part; 1] {
        [Part::Text(text.into())]
    }

    /// Sends all of it, `size` bytes at a time.
    fn send(outbox: &mut Outbox, size: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        while !outbox.is_empty() {
            let count = outbox.unsent().len().min(size);
            sent.extend_from_slice(&outbox.unsent()[..count]);
            outbox.advance(count);
        }
        sent
    }

    #[test]
    fn messages_go_out_in_order_each_with_its_end() {
        for size in 1..10 {
            let mut outbox = Outbox::default();
            assert!(outbox.is_empty());
            outbox.push(text("{1}"));
            outbox.push(text("{2}"));
            assert_eq!(outbox.len(), 8);
            assert_eq!(send(&mut outbox, size), b"{1}\0{2}\0");
            assert_eq!((outbox.len(), outbox.piece.capacity(), outbox.parts.capacity()), (0, 0, 0));
            outbox.push(text("{3}"));
            assert_eq!(outbox.unsent()[0], b'{');
        }
    }

    #[test]
    fn bytes_are_encoded_piece_by_piece_and_make_one_whole() {
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 2] {
            let bytes: Vec<u8> = (0..len).map(|n| (n % 251).to_le_bytes()[0]).collect();
            let mut whole = b"[".to_vec();
            base64::encode(&bytes, &mut whole);
            whole.extend_from_slice(b"]\0");
            let mut outbox = Outbox::default();
            outbox.push([Part::Text(b"[".to_vec()), Part::base64(bytes), Part::Text(b"]".to_vec())]);
            assert!(outbox.piece.len() <= PIECE / 3 * 4);
            assert!(send(&mut outbox, 10_000) == whole, "{len}");
        }
    }

    #[test]
    fn k2_a_client_has_its_time_from_the_last_byte_it_took() {
        let mut outbox = Outbox::default();
        let start = Instant::now();
        outbox.push(text("{}"));
        outbox.stall(start);
        outbox.stall(start + Duration::from_secs(5));
        assert_eq!(outbox.deadline(), Some(start + STALL_TIME));
        outbox.advance(1);
        assert_eq!(outbox.deadline(), None);
    }
}
