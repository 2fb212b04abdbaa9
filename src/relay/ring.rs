//! Output that attach clients have still to get: one ring for all of them, in which each client has a position.
//!
//! The ring holds whole packets, each behind a short header. So a position is always the start of a packet (or the
//! end), and a slow client gets the same packets as a fast one.

use std::io;
use std::num::NonZeroUsize;

use dunnage_runtime::sys::Pages;

use crate::stream::Stream;

/// The most output that a packet carries: clients read with buffers of one byte more, for its stream.
pub(super) const MAX_PAYLOAD: usize = 8192;

/// The stream's tag and the payload's length, little-endian.
const HEADER: usize = 3;

/// A place in all the output that ever went through one ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position(u64);

impl Position {
    /// The place behind the packets that `output` makes, if the first of them is here.
    pub(super) fn after(self, output: &[u8]) -> Self {
        Self(self.0 + stored_size(output.len()) as u64)
    }
}

/// The room that output of `len` bytes takes.
pub(super) fn stored_size(len: usize) -> usize {
    len + len.div_ceil(MAX_PAYLOAD) * HEADER
}

/// The packets that output becomes.
pub(super) fn payloads(output: &[u8]) -> impl Iterator<Item = &[u8]> {
    output.chunks(MAX_PAYLOAD)
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ring {
    bytes: Pages,
    start: Position,
    end: Position,
}

/// A packet in the ring.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    /// Which stream it is a piece of.
    pub(super) stream: Stream,
    /// The piece, in two where the ring's edge cuts it.
    pub(super) payload: (&'a [u8], &'a [u8]),
    /// The place behind it.
    pub(super) next: Position,
}

impl Ring {
    /// An empty ring for `capacity` bytes.
    pub(super) fn new(capacity: NonZeroUsize) -> io::Result<Self> {
        Ok(Self { bytes: Pages::new(capacity)?, start: Position::default(), end: Position::default() })
    }

    /// The place behind the last packet.
    pub(super) fn end(&self) -> Position {
        self.end
    }

    /// How many bytes, headers among them, there is room for.
    pub(super) fn room(&self) -> usize {
        self.bytes.len() - self.used()
    }

    fn used(&self) -> usize {
        // Never more than the capacity, which is a usize.
        usize::try_from(self.end.0 - self.start.0).unwrap_or(usize::MAX)
    }

    /// Appends output as packets: all of it, or, without room for that, nothing.
    #[must_use]
    pub(super) fn push(&mut self, stream: Stream, output: &[u8]) -> bool {
        if stored_size(output.len()) > self.room() {
            return false;
        }
        for payload in payloads(output) {
            // A payload is at most MAX_PAYLOAD long, which two bytes can say.
            #[expect(clippy::cast_possible_truncation)]
            let [low, high] = (payload.len() as u16).to_le_bytes();
            self.append(&[stream.packet_tag(), low, high]);
            self.append(payload);
        }
        true
    }

    fn append(&mut self, bytes: &[u8]) {
        let offset = self.offset(self.end);
        let (head, tail) = bytes.split_at(bytes.len().min(self.bytes.len() - offset));
        self.bytes[offset..offset + head.len()].copy_from_slice(head);
        self.bytes[..tail.len()].copy_from_slice(tail);
        self.end.0 += bytes.len() as u64;
    }

    /// The packet at `at`; none at the end.
    pub(super) fn packet(&self, at: Position) -> Option<Packet<'_>> {
        if at >= self.end {
            return None;
        }
        let byte = |index| self.bytes[self.offset(Position(at.0 + index))];
        let stream = if byte(0) == Stream::Stdout.packet_tag() { Stream::Stdout } else { Stream::Stderr };
        let len = usize::from(u16::from_le_bytes([byte(1), byte(2)]));

        let payload = Position(at.0 + HEADER as u64);
        let offset = self.offset(payload);
        let head = len.min(self.bytes.len() - offset);
        Some(Packet {
            stream,
            payload: (&self.bytes[offset..offset + head], &self.bytes[..len - head]),
            next: Position(payload.0 + len as u64),
        })
    }

    /// Makes room: what is before `at` is needed no more.
    pub(super) fn forget_before(&mut self, at: Position) {
        self.start = self.start.max(at.min(self.end));
    }

    /// Whether nothing is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Forgets all, and begins anew where its memory is in use already.
    pub(super) fn clear(&mut self) {
        (self.start, self.end) = (Position::default(), Position::default());
    }

    fn offset(&self, at: Position) -> usize {
        // A remainder of the capacity fits where the capacity does.
        #[expect(clippy::cast_possible_truncation)]
        let offset = (at.0 % self.bytes.len() as u64) as usize;
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(capacity: usize) -> Ring {
        Ring::new(NonZeroUsize::new(capacity).expect("a capacity")).expect("a mapping")
    }

    fn push(ring: &mut Ring, stream: Stream, output: &[u8]) {
        assert!(ring.push(stream, output), "no room");
    }

    fn read(ring: &Ring, at: &mut Position) -> Option<(Stream, Vec<u8>)> {
        let packet = ring.packet(*at)?;
        *at = packet.next;
        Some((packet.stream, [packet.payload.0, packet.payload.1].concat()))
    }

    #[test]
    fn packets_come_out_as_they_went_in() {
        let mut ring = ring(64);
        let mut at = ring.end();
        push(&mut ring, Stream::Stdout, b"out");
        push(&mut ring, Stream::Stderr, b"err");
        assert_eq!(read(&ring, &mut at), Some((Stream::Stdout, b"out".to_vec())));
        assert_eq!(read(&ring, &mut at), Some((Stream::Stderr, b"err".to_vec())));
        assert_eq!(read(&ring, &mut at), None);
    }

    #[test]
    fn packets_that_the_edge_cuts_stay_whole() {
        // Coprime to every record's size, so that the edge comes to lie at each place within header and payload.
        let mut ring = ring(61);
        let mut at = ring.end();
        for round in 0u8..200 {
            let payload: Vec<u8> = (0..=round % 30).map(|n| n ^ round).collect();
            push(&mut ring, Stream::Stderr, &payload);
            assert_eq!(read(&ring, &mut at), Some((Stream::Stderr, payload)));
            ring.forget_before(at);
        }
        assert_eq!(ring.room(), 61);
    }

    #[test]
    fn long_output_becomes_full_packets_and_a_rest() {
        let mut ring = ring(1 << 16);
        let start = ring.end();
        let output: Vec<u8> = (0..2 * MAX_PAYLOAD + 5).map(|n| (n % 251).to_le_bytes()[0]).collect();
        push(&mut ring, Stream::Stdout, &output);

        let mut at = start;
        let lengths: Vec<usize> = std::iter::from_fn(|| read(&ring, &mut at).map(|(_, bytes)| bytes.len())).collect();
        assert_eq!(lengths, [MAX_PAYLOAD, MAX_PAYLOAD, 5]);
        assert_eq!(start.after(&output), ring.end());
    }

    #[test]
    fn a_position_counts_the_packets_before_it() {
        let mut ring = ring(1 << 16);
        let output = [7; MAX_PAYLOAD + 1];
        let second = ring.end().after(&output[..MAX_PAYLOAD]);
        push(&mut ring, Stream::Stdout, &output);
        assert_eq!(ring.packet(second).expect("the second packet").payload.0, [7]);
    }

    #[test]
    fn room_comes_back_only_for_what_is_forgotten() {
        let mut ring = ring(32);
        let start = ring.end();
        push(&mut ring, Stream::Stdout, &[0; 10]);
        let middle = ring.end();
        push(&mut ring, Stream::Stdout, &[0; 10]);
        assert_eq!(ring.room(), 32 - 2 * stored_size(10));

        ring.forget_before(middle);
        assert_eq!(ring.room(), 32 - stored_size(10));
        ring.forget_before(start);
        assert_eq!(ring.room(), 32 - stored_size(10));
        // A client may wait for output that is about to be pushed: nothing that is not there is forgotten.
        ring.forget_before(ring.end().after(&[0; 100]));
        assert_eq!(ring.room(), 32);
    }

    #[test]
    fn output_without_room_is_refused_whole() {
        let mut ring = ring(32);
        let mut at = ring.end();
        push(&mut ring, Stream::Stdout, &[1; 20]);
        assert!(!ring.push(Stream::Stdout, &[2; 10]));
        assert_eq!(read(&ring, &mut at), Some((Stream::Stdout, vec![1; 20])));
        assert_eq!(read(&ring, &mut at), None);
    }

    #[test]
    fn a_full_ring_still_shows_its_packets() {
        let mut ring = ring(stored_size(13));
        let mut at = ring.end();
        push(&mut ring, Stream::Stdout, &[1; 13]);
        assert_eq!(ring.room(), 0);
        assert_eq!(read(&ring, &mut at), Some((Stream::Stdout, vec![1; 13])));
    }
}
