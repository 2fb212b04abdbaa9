//! Writes whole records or none of a record.

use std::fs::File;
use std::io::Seek;
use std::os::unix::fs::MetadataExt;

use memchr::{memchr, memrchr};
use nix::errno::Errno;

/// Something that records are appended to.
pub(super) trait Target {
    /// Writes what it can take now of `bytes`.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno>;

    /// Takes the last `torn` bytes, half a record, off again. False if they stay and are the end of what is there.
    fn cut(&mut self, torn: usize) -> bool;
}

/// Not all was written, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stopped {
    /// How much of the batch is there or will be: whole records.
    pub(super) whole: usize,
    pub(super) reason: Errno,
}

/// Appends to a target that may take a part of what it is given, and never leaves it with half a record that it
/// does not finish.
pub(super) struct Appender<T> {
    pub(super) target: T,
    /// The rest of a record that could not be taken back, to be written before anything else.
    unfinished: Vec<u8>,
}

impl<T: Target> Appender<T> {
    pub(super) fn new(target: T) -> Self {
        Self { target, unfinished: Vec::new() }
    }

    /// For a target that ends in the middle of a line: ends it before anything else is written.
    pub(super) fn after_torn_line(target: T) -> Self {
        Self { target, unfinished: vec![b'\n'] }
    }

    /// Appends whole records.
    pub(super) fn append(&mut self, batch: &[u8]) -> Result<(), Stopped> {
        self.finish().map_err(|reason| Stopped { whole: 0, reason })?;
        let (done, reason) = match write_all(&mut self.target, batch) {
            (_, Ok(())) => return Ok(()),
            (done, Err(reason)) => (done, reason),
        };
        let mut whole = memrchr(b'\n', &batch[..done]).map_or(0, |newline| newline + 1);
        if whole < done && !self.target.cut(done - whole) {
            // Every record ends in a newline.
            let rest = memchr(b'\n', &batch[done..]).map_or(batch.len() - done, |newline| newline + 1);
            self.unfinished = batch[done..done + rest].to_vec();
            whole = done + rest;
        }
        Err(Stopped { whole, reason })
    }

    /// How much is missing of a record or a line that is there by half.
    pub(super) fn owed(&self) -> usize {
        self.unfinished.len()
    }

    /// Writes the rest of a record that is there by half.
    pub(super) fn finish(&mut self) -> Result<(), Errno> {
        if self.unfinished.is_empty() {
            return Ok(());
        }
        let (done, result) = write_all(&mut self.target, &self.unfinished);
        self.unfinished.drain(..done);
        if self.unfinished.is_empty() {
            self.unfinished = Vec::new(); // Gives its memory back.
        }
        result
    }
}

/// Writes until all is written or an error says why not; how much was written either way.
fn write_all(target: &mut impl Target, bytes: &[u8]) -> (usize, Result<(), Errno>) {
    let mut done = 0;
    while done < bytes.len() {
        match target.write(&bytes[done..]) {
            Ok(0) => return (done, Err(Errno::EIO)), // No file system should; asking again could go on for ever.
            Ok(written) => done += written,
            Err(Errno::EINTR) => {}
            Err(reason) => return (done, Err(reason)),
        }
    }
    (done, Ok(()))
}

/// A file opened with `O_APPEND`.
impl Target for File {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        nix::unistd::write(self, bytes)
    }

    fn cut(&mut self, torn: usize) -> bool {
        let (Ok(metadata), Ok(end)) = (self.metadata(), self.stream_position()) else {
            return false;
        };
        if !metadata.is_file() {
            return false;
        }
        // The position is where our last write ended, whatever others append or cut. If the file does not end there,
        // they did: then no byte of ours is the last one, and theirs are not ours to take off.
        metadata.size() != end || self.set_len(end - torn as u64).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::super::testing::Scratch;
    use super::*;

    const BATCH: &[u8] = b"first record\nsecond\n\nand a fourth one\n";

    /// Takes so many bytes, in writes of at most so many, then fails.
    struct Limited {
        bytes: Vec<u8>,
        room: usize,
        most: usize,
        can_cut: bool,
    }

    impl Target for Limited {
        fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
            let taken = bytes.len().min(self.room - self.bytes.len()).min(self.most);
            self.bytes.extend_from_slice(&bytes[..taken]);
            if taken == 0 { Err(Errno::ENOSPC) } else { Ok(taken) }
        }

        fn cut(&mut self, torn: usize) -> bool {
            if self.can_cut {
                self.bytes.truncate(self.bytes.len() - torn);
            }
            self.can_cut
        }
    }

    fn for_every_short_write(mut check: impl FnMut(usize, &mut dyn FnMut(bool) -> Appender<Limited>)) {
        for room in 0..BATCH.len() {
            for most in 1..=BATCH.len() {
                check(room, &mut |can_cut| Appender::new(Limited { bytes: Vec::new(), room, most, can_cut }));
            }
        }
    }

    #[test]
    fn f07_a_short_write_at_any_byte_leaves_whole_records_only() {
        for_every_short_write(|room, appender| {
            let mut appender = appender(true);
            let stopped = appender.append(BATCH).unwrap_err();
            let fitting = BATCH[..room].iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
            assert_eq!(stopped, Stopped { whole: fitting, reason: Errno::ENOSPC });
            assert_eq!(appender.target.bytes, BATCH[..fitting]);
            appender.target.room = usize::MAX;
            appender.append(b"next\n").unwrap();
            assert_eq!(appender.target.bytes, [&BATCH[..fitting], b"next\n"].concat());
        });
    }

    #[test]
    fn f07_half_a_record_that_stays_is_finished_before_anything_else() {
        for_every_short_write(|room, appender| {
            let mut appender = appender(false);
            let stopped = appender.append(BATCH).unwrap_err();
            let half = room > 0 && BATCH[room - 1] != b'\n';
            let rest = BATCH[room..].iter().position(|&byte| byte == b'\n').unwrap() + 1;
            assert_eq!(stopped.whole, if half { room + rest } else { room });
            assert_eq!(appender.target.bytes, BATCH[..room]);
            if stopped.whole > room {
                assert_eq!(appender.append(b"lost\n"), Err(Stopped { whole: 0, reason: Errno::ENOSPC }));
                appender.target.room += 1;
                assert_eq!(appender.finish().is_ok(), stopped.whole == room + 1);
            }
            appender.target.room = usize::MAX;
            appender.append(b"next\n").unwrap();
            assert_eq!(appender.target.bytes, [&BATCH[..stopped.whole], b"next\n"].concat());
        });
    }

    #[test]
    fn a_cut_takes_off_what_was_written_last() {
        let dir = Scratch::new();
        let path = dir.path("log");
        fs::write(&path, "before\n").unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        Target::write(&mut file, b"whole\nhal").unwrap();
        assert!(file.cut(3));
        assert_eq!(fs::read(&path).unwrap(), b"before\nwhole\n");
    }

    #[test]
    fn a_cut_leaves_alone_what_others_appended_or_cut() {
        let dir = Scratch::new();
        let path = dir.path("log");
        let mut file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        let mut other = OpenOptions::new().append(true).open(&path).unwrap();
        Target::write(&mut file, b"whole\nhal").unwrap();
        other.write_all(b"theirs\n").unwrap();
        assert!(file.cut(3));
        assert_eq!(fs::read(&path).unwrap(), b"whole\nhaltheirs\n");
        Target::write(&mut file, b"whole\nhal").unwrap();
        other.set_len(0).unwrap();
        assert!(file.cut(3));
        assert_eq!(fs::read(&path).unwrap(), b"", "a cut never lengthens a file");
    }
}
