//! Signals as events of the loop.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

/// The signals that arrived and were not looked at yet, a bit each.
static PENDING: AtomicU64 = AtomicU64::new(0);

/// Catches signals: a handler notes which, and makes this readable.
#[derive(Debug)]
pub struct Signals {
    event: EventFd,
    handlers: Vec<signal_hook::SigId>,
    original_mask: SigSet,
}

impl Signals {
    /// Catches `signals` from now on, also those that the process was started with as blocked or ignored. One at a time
    /// in a process.
    pub fn catch(signals: &[Signal]) -> io::Result<Self> {
        let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let fd = event.as_raw_fd();
        let mut caught = Self { event, handlers: Vec::with_capacity(signals.len()), original_mask: SigSet::empty() };
        for &signal in signals {
            let bit = 1 << (signal as u32);
            let note = move || {
                PENDING.fetch_or(bit, Ordering::SeqCst);
                // SAFETY: the descriptor outlives the handler, which `drop` unregisters; write(2) may be called in a
                // handler. A counter at its limit is readable already.
                unsafe { libc::write(fd, (&raw const ONE).cast(), size_of_val(&ONE)) };
            };
            // SAFETY: the handler stores to an atomic and calls write(2), which are async-signal-safe; signal-hook keeps
            // errno.
            caught.handlers.push(unsafe { signal_hook::low_level::register(signal as i32, note)? });
        }
        let set: SigSet = signals.iter().copied().collect();
        sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&set), Some(&mut caught.original_mask))?;
        Ok(caught)
    }

    /// Those that arrived since the last time, each once however often it came.
    pub fn pending(&mut self) -> impl Iterator<Item = Signal> + use<> {
        // Emptied first: what comes after that makes it readable again.
        let _ = self.event.read();
        let pending = PENDING.swap(0, Ordering::SeqCst);
        Signal::iterator().filter(move |&signal| pending & (1 << (signal as u32)) != 0)
    }

    /// The mask that programs are started with: the one this process was started with.
    #[must_use]
    pub fn original_mask(&self) -> SigSet {
        self.original_mask
    }
}

/// What a write to an eventfd adds.
static ONE: u64 = 1;

impl Drop for Signals {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            signal_hook::low_level::unregister(handler);
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::signal::raise;

    use super::*;

    #[test]
    fn each_signal_that_came_is_told_once() {
        let mut signals = Signals::catch(&[Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH]).unwrap();
        for signal in [Signal::SIGUSR2, Signal::SIGUSR1, Signal::SIGUSR1] {
            raise(signal).unwrap();
        }
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::ZERO), Ok(1));
        assert_eq!(signals.pending().collect::<Vec<_>>(), [Signal::SIGUSR1, Signal::SIGUSR2]);
        assert_eq!(signals.pending().count(), 0);
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::ZERO), Ok(0));
    }
}
