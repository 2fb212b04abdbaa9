//! From output to records: pure code, and all that a line of output costs. A crate of its own so that it is compiled for
//! speed, and all else for size.

#![forbid(unsafe_code)]

mod copy;

use memchr::memchr;

use copy::copy;

/// The length of a [`Prefix`].
pub const PREFIX_LEN: usize = 45;

/// The start of a record; its flag is `F` until the record says otherwise.
pub type Prefix = [u8; PREFIX_LEN];

/// Where the flag stands in a prefix.
pub const FLAG_AT: usize = 43;

/// The most text a record holds.
pub const TEXT_MAX: usize = 16 * 1024;

/// The longest record.
pub const RECORD_MAX: usize = PREFIX_LEN + TEXT_MAX + 1;

/// Output as the pieces that become one record each: lines with their newline, and pieces of lines without.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    rest: &'a [u8],
}

impl<'a> Pieces<'a> {
    /// All of `output`.
    #[must_use]
    pub fn new(output: &'a [u8]) -> Self {
        Self { rest: output }
    }

    /// What has not been taken yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The length of the record of the next piece.
    #[must_use]
    pub fn next_record_len(&self) -> Option<usize> {
        self.peek().map(Piece::record_len)
    }

    /// The next piece.
    #[inline]
    fn peek(&self) -> Option<Piece<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let window = &self.rest[..self.rest.len().min(TEXT_MAX + 1)];
        Some(match memchr(b'\n', window) {
            Some(newline) => Piece { text: &window[..=newline], is_line: true },
            None => Piece { text: &window[..window.len().min(TEXT_MAX)], is_line: false },
        })
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    #[inline]
    fn next(&mut self) -> Option<Piece<'a>> {
        let piece = self.peek()?;
        self.rest = &self.rest[piece.text.len()..];
        Some(piece)
    }
}

/// The text of one record.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    text: &'a [u8],
    is_line: bool,
}

impl Piece<'_> {
    /// Whether a newline ends it.
    #[must_use]
    pub fn is_line(self) -> bool {
        self.is_line
    }

    /// The length of its record.
    #[must_use]
    pub fn record_len(self) -> usize {
        PREFIX_LEN + self.text.len() + usize::from(!self.is_line)
    }
}

/// Whole records in a buffer, to be written at once.
#[derive(Debug)]
pub struct Batch<'b> {
    buffer: &'b mut [u8],
    len: usize,
    /// How many of the records are the ends of lines.
    lines: usize,
}

impl<'b> Batch<'b> {
    /// An empty one.
    #[must_use]
    pub fn new(buffer: &'b mut [u8]) -> Self {
        Self { buffer, len: 0, lines: 0 }
    }

    /// Adds records of `pieces` as long as they fit.
    pub fn fill(&mut self, prefix: &Prefix, pieces: &mut Pieces) {
        // All that a line costs is here: what goes on from line to line is kept in registers.
        let mut left = pieces.clone();
        let mut room = &mut self.buffer[self.len..];
        let (mut used, mut lines) = (0, 0);
        while let Some(piece) = left.next() {
            let Some((record, behind)) = room.split_at_mut_checked(piece.record_len()) else { break };
            let (start, text) = record.split_at_mut(PREFIX_LEN);
            start.copy_from_slice(prefix);
            copy(piece.text, text);
            if !piece.is_line {
                start[FLAG_AT] = b'P';
                text[piece.text.len()] = b'\n';
            }
            used += record.len();
            lines += usize::from(piece.is_line);
            room = behind;
            pieces.rest = left.rest;
        }
        self.len += used;
        self.lines += lines;
    }

    /// How many of the records are the ends of lines.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// The records.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &Prefix = b"2026-11-30T13:02:15.123456789+00:00 stdout F ";

    fn records(output: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut buffer = vec![0; 1 << 20];
        let mut batch = Batch::new(&mut buffer);
        let mut pieces = Pieces::new(output);
        batch.fill(PREFIX, &mut pieces);
        assert_eq!(pieces.rest(), b"");
        let lines = batch.bytes().split_inclusive(|&byte| byte == b'\n');
        lines.map(|line| (line[FLAG_AT], line[PREFIX_LEN..line.len() - 1].to_vec())).collect()
    }

    #[test]
    fn a_line_is_a_full_record_and_a_piece_without_newline_a_partial_one() {
        assert_eq!(records(b"one\ntwo"), [(b'F', b"one".to_vec()), (b'P', b"two".to_vec())]);
        assert_eq!(records(b"\n\n"), [(b'F', vec![]), (b'F', vec![])]);
        assert_eq!(records(b"\0\r\xff\n"), [(b'F', b"\0\r\xff".to_vec())]);
        assert_eq!(records(b""), []);
    }

    #[test]
    fn pieces_are_cut_at_16_kib() {
        for (text, newline, expected) in [
            (TEXT_MAX, true, vec![(b'F', TEXT_MAX)]),
            (TEXT_MAX, false, vec![(b'P', TEXT_MAX)]),
            (TEXT_MAX + 1, true, vec![(b'P', TEXT_MAX), (b'F', 1)]),
            (TEXT_MAX + 1, false, vec![(b'P', TEXT_MAX), (b'P', 1)]),
            (3 * TEXT_MAX, true, vec![(b'P', TEXT_MAX), (b'P', TEXT_MAX), (b'F', TEXT_MAX)]),
            (3 * TEXT_MAX, false, vec![(b'P', TEXT_MAX); 3]),
        ] {
            let mut output = vec![b'x'; text];
            output.extend(newline.then_some(b'\n'));
            let found: Vec<_> = records(&output).iter().map(|(flag, text)| (*flag, text.len())).collect();
            assert_eq!(found, expected, "{text} bytes, newline: {newline}");
        }
    }

    #[test]
    fn only_whole_records_go_into_a_batch() {
        let output = b"one\ntwo\nthree";
        for room in 0..200 {
            let mut buffer = vec![0; room];
            let mut batch = Batch::new(&mut buffer);
            let mut pieces = Pieces::new(output);
            batch.fill(PREFIX, &mut pieces);
            let whole = [0, 49, 98, 149].into_iter().rfind(|&len| len <= room).unwrap();
            assert_eq!(batch.bytes().len(), whole, "room for {room} bytes");
            assert_eq!(pieces.rest(), [&output[..], b"two\nthree", b"three", b""][whole / 49]);
        }
    }
}
