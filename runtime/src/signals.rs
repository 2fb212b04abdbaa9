//! Signals as events of the loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// The signals that arrived, and the mask that the process was started with.
#[derive(Debug)]
pub struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    original_mask: SigSet,
}

impl Signals {
    /// Catches `signals` from now on, also those that the process was started with as blocked or ignored.
    pub fn catch(signals: &[Signal]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        let numbers = signals.iter().map(|&signal| signal as i32);
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, numbers)?;
        let mut original_mask = SigSet::empty();
        let caught: SigSet = signals.iter().copied().collect();
        sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&caught), Some(&mut original_mask))?;
        Ok(Self { delivery, original_mask })
    }

    /// Those that arrived since the last time, each once however often it came.
    pub fn pending(&mut self) -> impl Iterator<Item = Signal> {
        self.delivery.pending().filter_map(|number| Signal::try_from(number).ok())
    }

    /// The mask that programs are started with: the one this process was started with.
    #[must_use]
    pub fn original_mask(&self) -> SigSet {
        self.original_mask
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}
