//! Where output goes beside the clients: a log, or what keeps it for an answer.

use crate::log::Log;
use crate::stream::Stream;

/// What logs output.
pub(crate) trait Sink {
    /// Logs output that was read in one piece. Neither fails nor blocks.
    fn write(&mut self, stream: Stream, output: &[u8]);

    /// Whether it takes more. If not, the container waits.
    fn has_room(&self) -> bool {
        true
    }

    /// Waits for room, for a moment at most: what was written before the container's end is all read now.
    fn make_room(&mut self) {}

    /// The stream has ended.
    fn end(&mut self, _stream: Stream) {}

    /// Whether, since the last time this was asked, memory was used that is to be given back when nothing comes.
    fn has_grown(&mut self) -> bool;
}

impl Sink for Log {
    fn write(&mut self, stream: Stream, output: &[u8]) {
        self.write(stream, output);
    }

    fn has_room(&self) -> bool {
        self.has_room()
    }

    fn make_room(&mut self) {
        self.make_room();
    }

    fn end(&mut self, stream: Stream) {
        self.end(stream);
    }

    fn has_grown(&mut self) -> bool {
        self.has_grown()
    }
}
