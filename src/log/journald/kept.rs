//! Output of one stream that is no entry yet: the start of a line, and what journald did not take.

use std::io;
use std::mem;
use std::num::NonZeroUsize;

use dunnage_runtime::sys::Pages;

use super::text::{self, TEXT_MAX, Text};
use crate::stream::Stream;

/// The start of a line, and one read (64 KiB).
pub(super) const KEPT_MAX: NonZeroUsize = NonZeroUsize::new(TEXT_MAX + (64 << 10)).unwrap();

/// What of that memory a container that says a line now and then uses, which is not worth giving back.
const PAGE: usize = 4096;

/// See the module.
pub(super) struct Kept {
    stream: Stream,
    pages: Pages,
    /// What of the pages is output.
    start: usize,
    end: usize,
    /// More than one of the pages was used.
    grown: bool,
    /// The priority of the line whose first piece was taken.
    begun: Option<u8>,
    ended: bool,
}

impl Kept {
    pub(super) fn new(stream: Stream) -> io::Result<Self> {
        Ok(Self { stream, pages: Pages::new(KEPT_MAX)?, start: 0, end: 0, grown: false, begun: None, ended: false })
    }

    /// Adds output, as much as there is room for; how much that was.
    pub(super) fn push(&mut self, output: &[u8]) -> usize {
        self.pages.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let len = output.len().min(self.pages.len() - self.end);
        self.pages[self.end..self.end + len].copy_from_slice(&output[..len]);
        self.end += len;
        self.grown |= self.end > PAGE;
        len
    }

    /// Nothing follows: what is there of a line is all of it.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Hands out the texts of entries, until there is none or `take` fails, which leaves the text there.
    pub(super) fn take_while<E>(&mut self, mut take: impl FnMut(&Text<'_>) -> Result<(), E>) -> Result<(), E> {
        while let Some(text) = text::next(&self.pages[self.start..self.end], self.stream, self.begun, self.ended) {
            take(&text)?;
            self.begun = text.partial.then_some(text.priority);
            self.start += text.len;
        }
        Ok(())
    }

    pub(super) fn has_grown(&mut self) -> bool {
        mem::take(&mut self.grown)
    }

    /// Gives memory back, if nothing is kept there.
    pub(super) fn release(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.pages.release();
        }
    }
}
