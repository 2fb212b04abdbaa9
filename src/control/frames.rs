//! Messages out of a stream of bytes: each ends with a NUL.

use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

use memchr::memchr;

/// All that a client may have sent and that was not taken yet: one message of that size, or several smaller ones.
pub(super) const MAX_UNANSWERED: usize = 1 << 20;

/// How many messages may wait while one is being answered.
pub(super) const MAX_QUEUED: usize = 16;

/// How long a message may take from its first byte to its last.
pub(super) const MESSAGE_TIME: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Frames {
    complete: VecDeque<Vec<u8>>,
    /// The bytes of those.
    queued: usize,
    incomplete: Vec<u8>,
    /// When the incomplete one began.
    since: Option<Instant>,
}

/// What a client does that there is no answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// It sent more than fits without waiting for an answer.
    TooLong,
    /// It sent too many calls without waiting for an answer.
    TooMany,
}

impl Frames {
    /// The next message, which stays.
    pub(super) fn peek(&self) -> Option<&[u8]> {
        self.complete.front().map(Vec::as_slice)
    }

    /// Takes in what arrived.
    pub(super) fn push(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), Violation> {
        while let Some(end) = memchr(0, bytes) {
            self.append(&bytes[..end])?;
            let message = mem::take(&mut self.incomplete);
            self.since = None;
            self.queued += message.len();
            self.complete.push_back(message);
            if self.complete.len() > MAX_QUEUED {
                return Err(Violation::TooMany);
            }
            bytes = &bytes[end + 1..];
        }
        if !bytes.is_empty() {
            self.append(bytes)?;
            self.since.get_or_insert(now);
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        if self.queued + self.incomplete.len() + bytes.len() > MAX_UNANSWERED {
            return Err(Violation::TooLong);
        }
        self.incomplete.extend_from_slice(bytes);
        Ok(())
    }

    /// The next message.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let message = self.complete.pop_front()?;
        self.queued -= message.len();
        Some(message)
    }

    /// Whether there is a message.
    pub(super) fn have_message(&self) -> bool {
        !self.complete.is_empty()
    }

    /// When an incomplete message must be complete.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.since.map(|since| since + MESSAGE_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(frames: &mut Frames) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| frames.take()).collect()
    }

    #[test]
    fn messages_come_out_whole_however_they_arrive() {
        let stream = b"{\"a\":1}\0{}\0\0rest";
        let now = Instant::now();
        for size in 1..=stream.len() {
            let mut frames = Frames::default();
            for piece in stream.chunks(size) {
                frames.push(piece, now).unwrap();
            }
            assert_eq!(messages(&mut frames), [b"{\"a\":1}".to_vec(), b"{}".to_vec(), Vec::new()]);
            assert!(!frames.have_message());
            assert_eq!(frames.deadline(), Some(now + MESSAGE_TIME));
        }
    }

    #[test]
    fn k2_a_message_has_its_time_from_its_own_first_byte() {
        let mut frames = Frames::default();
        let start = Instant::now();
        let later = start + Duration::from_secs(9);
        frames.push(b"{", start).unwrap();
        frames.push(b"\"a\"", later).unwrap();
        assert_eq!(frames.deadline(), Some(start + MESSAGE_TIME));
        frames.push(b"}\0{", later).unwrap();
        assert_eq!(frames.deadline(), Some(later + MESSAGE_TIME));
        frames.push(b"}\0", later).unwrap();
        assert_eq!(frames.deadline(), None);
    }

    #[test]
    fn k2_a_message_over_the_limit_is_refused_before_it_is_whole() {
        let now = Instant::now();
        let mut frames = Frames::default();
        frames.push(&vec![b'x'; MAX_UNANSWERED], now).unwrap();
        assert_eq!(frames.push(b"x", now), Err(Violation::TooLong));

        let mut frames = Frames::default();
        frames.push(&[vec![b'x'; MAX_UNANSWERED], vec![0]].concat(), now).unwrap();
        assert_eq!(frames.push(b"x", now), Err(Violation::TooLong));
        assert_eq!(frames.take().unwrap().len(), MAX_UNANSWERED);
    }

    #[test]
    fn k2_sixteen_calls_may_wait() {
        let now = Instant::now();
        let mut frames = Frames::default();
        frames.push(&[b"{}\0".as_slice(); MAX_QUEUED].concat(), now).unwrap();
        assert_eq!(frames.push(b"{}\0", now), Err(Violation::TooMany));
    }
}
