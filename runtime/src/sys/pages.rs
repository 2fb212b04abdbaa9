//! Memory that can be given back.

use std::io;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

/// A zeroed buffer of fixed size outside the heap. Only pages that were written to cost memory, and
/// [`Pages::release`] gives them back.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    len: NonZeroUsize,
}

impl Pages {
    /// A buffer of `len` bytes.
    pub fn new(len: NonZeroUsize) -> io::Result<Self> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new private mapping that aliases nothing.
        let start = unsafe { mmap_anonymous(None, len, protection, MapFlags::MAP_PRIVATE)? };
        Ok(Self { start: start.cast(), len })
    }

    /// Gives the memory back to the kernel; the buffer reads as zeroes afterwards (`MADV_DONTNEED`, madvise(2)).
    pub fn release(&mut self) {
        // SAFETY: the whole range is this mapping, and `&mut self` says that nobody looks at its bytes.
        // Advice that is refused changes nothing.
        let _ = unsafe { madvise(self.start.cast(), self.len.get(), MmapAdvise::MADV_DONTNEED) };
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is readable, `len` bytes long, initialised (zeroes) and lives as long as `self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len.get()) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the slice exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len.get()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this mapping, which nothing refers to any more.
        let _ = unsafe { munmap(self.start.cast(), self.len.get()) };
    }
}
