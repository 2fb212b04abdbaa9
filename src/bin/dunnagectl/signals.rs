//! Signals to a session, as events.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// Catches signals: a handler notes which, and makes this readable.
pub(crate) struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    /// Catches `signals` from now on.
    pub(crate) fn catch(signals: &[Signal]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let numbers = signals.iter().map(|&signal| signal as i32);
        SignalDelivery::with_pipe(read, write, SignalOnly, numbers).map(Self)
    }

    /// Those that arrived since the last time, each once however often it came.
    pub(crate) fn pending(&mut self) -> Vec<Signal> {
        // Each is one of those that are caught.
        self.0.pending().filter_map(|number| Signal::try_from(number).ok()).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }
}
