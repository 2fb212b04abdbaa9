//! A buffer that is filled again and again, and costs no more than a page while nothing much happens.

use std::io;
use std::mem;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};

use dunnage_runtime::sys::Pages;

/// The size of a page on most machines. Where pages are larger, a buffer is given back a little more often.
const PAGE: usize = 4096;

/// See the module. Who fills it says how far ([`Buffer::filled`]).
#[derive(Debug)]
pub(crate) struct Buffer {
    pages: Pages,
    grown: bool,
}

impl Buffer {
    /// A buffer for `len` bytes.
    pub(crate) fn new(len: NonZeroUsize) -> io::Result<Self> {
        Ok(Self { pages: Pages::new(len)?, grown: false })
    }

    /// It was filled up to `end`.
    #[inline]
    pub(crate) fn filled(&mut self, end: usize) {
        self.grown |= end > PAGE;
    }

    /// Whether, since the last time this was asked, more was filled than the one page that the next few bytes take
    /// anyway: then there will be something to [`release`](Buffer::release).
    pub(crate) fn has_grown(&mut self) -> bool {
        mem::take(&mut self.grown)
    }

    /// Gives the memory back. The content is lost.
    pub(crate) fn release(&mut self) {
        self.pages.release();
    }

    /// Puts that off while the content is needed: there still is something to give back.
    pub(crate) fn keep(&mut self) {
        self.grown = true;
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages
    }
}
