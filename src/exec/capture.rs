//! Output that is an answer.

use std::mem;

use crate::relay::Sink;
use crate::stream::Stream;

/// The first bytes of each stream.
#[derive(Debug)]
pub(crate) struct Capture {
    limit: usize,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    truncated: bool,
}

/// What was kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// There was more.
    pub(crate) truncated: bool,
}

impl Capture {
    /// Keeps `limit` bytes of each stream.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, stdout: Vec::new(), stderr: Vec::new(), truncated: false }
    }

    /// What was kept so far; it is kept no longer.
    pub(crate) fn take(&mut self) -> Captured {
        Captured { stdout: mem::take(&mut self.stdout), stderr: mem::take(&mut self.stderr), truncated: self.truncated }
    }
}

impl Sink for Capture {
    fn write(&mut self, stream: Stream, output: &[u8]) {
        let kept = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let room = self.limit - kept.len();
        self.truncated |= output.len() > room;
        kept.extend_from_slice(&output[..output.len().min(room)]);
    }

    fn has_grown(&mut self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_is_kept_up_to_the_limit() {
        let mut capture = Capture::new(5);
        capture.write(Stream::Stdout, b"abc");
        capture.write(Stream::Stderr, b"12345");
        capture.write(Stream::Stdout, b"de");
        let whole = Captured { stdout: b"abcde".to_vec(), stderr: b"12345".to_vec(), truncated: false };
        assert_eq!(capture.take(), whole);

        capture.write(Stream::Stderr, b"1234");
        capture.write(Stream::Stderr, b"567");
        let cut = Captured { stdout: Vec::new(), stderr: b"12345".to_vec(), truncated: true };
        assert_eq!(capture.take(), cut);
    }
}
