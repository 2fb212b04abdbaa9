//! Where the container's output is logged.

use std::io;

use crate::cli::Logging;
use crate::stream::Stream;

/// The container's log. Nothing here fails its caller once it is open: what could not be written is counted and
/// told in the log itself as soon as there is room again.
pub(crate) struct Log {}

impl Log {
    /// Opens the log file, appending to what it holds.
    pub(crate) fn open(config: &Logging) -> io::Result<Self> {
        let _ = config;
        todo!()
    }

    /// Logs output that was read in one piece, stamped once.
    pub(crate) fn write(&mut self, stream: Stream, output: &[u8]) {
        let _ = (stream, output);
        todo!()
    }

    /// `2 0 0` on the ctl fifo, SIGUSR1: a new file at the log's path, at once.
    pub(crate) fn reopen(&mut self) {
        todo!()
    }

    /// Makes the log durable.
    pub(crate) fn sync(&mut self) {
        todo!()
    }
}
