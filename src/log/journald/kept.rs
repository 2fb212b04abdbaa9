//! Output of one stream that is no entry yet: the start of a line, and what journald did not take.

use std::io;
use std::num::NonZeroUsize;

use super::text::{self, TEXT_MAX, Text};
use crate::buffer::Buffer;
use crate::stream::Stream;

/// The start of a line, and one read (64 KiB).
pub(super) const KEPT_MAX: NonZeroUsize = NonZeroUsize::new(TEXT_MAX + (64 << 10)).unwrap();

/// See the module.
pub(super) struct Kept {
    stream: Stream,
    buffer: Buffer,
    /// What of the buffer is output.
    start: usize,
    end: usize,
    /// The priority of the line whose first piece was taken.
    begun: Option<u8>,
    ended: bool,
}

impl Kept {
    pub(super) fn new(stream: Stream) -> io::Result<Self> {
        Ok(Self { stream, buffer: Buffer::new(KEPT_MAX)?, start: 0, end: 0, begun: None, ended: false })
    }

    /// Adds output, as much as there is room for; how much that was.
    pub(super) fn push(&mut self, output: &[u8]) -> usize {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let len = output.len().min(self.buffer.len() - self.end);
        self.buffer[self.end..self.end + len].copy_from_slice(&output[..len]);
        self.end += len;
        self.buffer.filled(self.end);
        len
    }

    /// Nothing follows: what is there of a line is all of it.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Hands out the texts of entries, until there is none or `take` fails, which leaves the text there.
    pub(super) fn take_while<E>(&mut self, mut take: impl FnMut(&Text<'_>) -> Result<(), E>) -> Result<(), E> {
        while let Some(text) = text::next(&self.buffer[self.start..self.end], self.stream, self.begun, self.ended) {
            take(&text)?;
            self.begun = text.partial.then_some(text.priority);
            self.start += text.len;
        }
        Ok(())
    }

    /// Whether there is memory to give back soon, see [`Buffer::has_grown`]. Not while there is the start of a line, which
    /// may be for ever.
    pub(super) fn has_grown(&mut self) -> bool {
        self.is_empty() && self.buffer.has_grown()
    }

    /// Gives memory back, or has it given back once nothing is kept there.
    pub(super) fn release(&mut self) {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
            self.buffer.release();
        } else {
            self.buffer.keep();
        }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }
}
