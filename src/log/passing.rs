//! Output that would be gone again by the time that all of it is written, as files at their limit are replaced.
//!
//! A read of empty lines makes forty times its size of records. With a limit of a few lines those are thousands of files,
//! of which the last few stay: to make the others would keep the loop from all else meanwhile.

use dunnage_records::{PREFIX_LEN, Pieces};

/// What was passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// How long the records are.
    pub(super) bytes: u64,
    /// How many of them are the ends of lines.
    pub(super) lines: u64,
}

/// Takes what does not stay off `pieces`, if they are written to files of at most `limit` bytes of which the last `kept`
/// do, and the first is empty.
pub(super) fn pass_over(pieces: &mut Pieces, limit: u64, kept: u64) -> Passed {
    let mut passed = Passed::default();
    if most_bytes(pieces) <= limit {
        return passed; // One file.
    }
    let mut files = Files { limit, begun: 0, filled: 0 };
    pieces.clone().for_each(|piece| files.add(piece.record_len()));
    let gone = files.begun.saturating_sub(kept);

    let mut files = Files { limit, begun: 0, filled: 0 };
    let mut rest = pieces.clone();
    while let Some(piece) = rest.next() {
        files.add(piece.record_len());
        if files.begun > gone {
            break;
        }
        passed.bytes += piece.record_len() as u64;
        passed.lines += u64::from(piece.is_line());
        *pieces = rest.clone();
    }
    passed
}

/// How long the records of `pieces` are at most: each byte may be a line.
pub(super) fn most_bytes(pieces: &Pieces) -> u64 {
    (pieces.rest().len() * (PREFIX_LEN + 1)) as u64
}

/// Files that records are counted into, one after the other.
struct Files {
    limit: u64,
    begun: u64,
    filled: u64,
}

impl Files {
    fn add(&mut self, record: usize) {
        let record = record as u64;
        if self.begun == 0 || self.filled + record > self.limit {
            self.begun += 1;
            self.filled = 0;
        }
        self.filled += record;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: u64 = PREFIX_LEN as u64 + 1;

    fn passed(output: &[u8], limit: u64, kept: u64) -> (usize, Passed) {
        let mut pieces = Pieces::new(output);
        let passed = pass_over(&mut pieces, limit, kept);
        (output.len() - pieces.rest().len(), passed)
    }

    #[test]
    fn the_last_files_stay() {
        let lines = [b'\n'; 10];
        // Two records a file, of five; and a record alone where none fits.
        for (limit, kept, gone) in
            [(RECORD * 2, 1, 8), (RECORD * 2 + 1, 2, 6), (RECORD * 2, 4, 2), (RECORD * 2, 5, 0), (1, 3, 7), (1, 99, 0)]
        {
            let expected = Passed { bytes: gone * RECORD, lines: gone };
            assert_eq!(passed(&lines, limit, kept), (usize::try_from(gone).unwrap(), expected), "{limit}, {kept}");
        }
    }

    #[test]
    fn nothing_goes_where_all_fits() {
        assert_eq!(passed(b"", 1, 1), (0, Passed::default()));
        assert_eq!(passed(&[b'\n'; 10], RECORD * 10, 1), (0, Passed::default()));
        assert_eq!(passed(b"a long line\nand its next", RECORD * 2 + 22, 1).0, 12);
        assert_eq!(passed(b"a long line\nand its next", RECORD * 2 + 23, 1).0, 0);
    }

    #[test]
    fn pieces_of_lines_are_no_lines() {
        let mut output = vec![b'x'; 3 * dunnage_records::TEXT_MAX];
        output.push(b'\n');
        let gone = Passed { bytes: 2 * (RECORD + dunnage_records::TEXT_MAX as u64), lines: 0 };
        assert_eq!(passed(&output, 1, 1), (2 * dunnage_records::TEXT_MAX, gone));
    }
}
