//! What the tests of the log share: a directory of their own, and strict readers of logs and of the journal's entries.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

use dunnage_records::{PREFIX_LEN, TEXT_MAX};

/// A directory that goes with its test.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("dunnage-log-{}-{number}", process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A record, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) stamp: String,
    pub(super) stream: String,
    pub(super) flag: char,
    pub(super) text: Vec<u8>,
}

/// A log, taken apart.
#[derive(Debug)]
pub(super) struct Records(Vec<Record>);

impl Records {
    /// Reads a log file.
    pub(super) fn of(path: impl AsRef<Path>) -> Self {
        Self::parse(&fs::read(path).unwrap())
    }

    /// Takes a log apart; panics where it is not one.
    pub(super) fn parse(log: &[u8]) -> Self {
        assert!(log.is_empty() || log.ends_with(b"\n"), "the last line is torn");
        Self(log.split_inclusive(|&byte| byte == b'\n').map(|line| record(&line[..line.len() - 1])).collect())
    }

    /// The output of one stream, its pieces joined; what the log says of itself left out.
    pub(super) fn joined(&self, stream: &str) -> Vec<u8> {
        let mut joined = Vec::new();
        for record in self.iter().filter(|record| record.stream == stream && !record.is_note()) {
            joined.extend_from_slice(&record.text);
            joined.extend((record.flag == 'F').then_some(b'\n'));
        }
        joined
    }

    /// How many lines of the output have their ends here.
    pub(super) fn lines(&self) -> u64 {
        self.iter().filter(|record| record.flag == 'F' && !record.is_note()).count() as u64
    }

    /// Streams, flags and texts.
    pub(super) fn plain(&self) -> Vec<(&str, char, &str)> {
        let text = |record| std::str::from_utf8(record).unwrap();
        self.iter().map(|record| (&*record.stream, record.flag, text(&record.text))).collect()
    }

    /// What the log says of itself: bytes and lines that are missing, and why.
    pub(super) fn notes(&self) -> Vec<(u64, u64, String)> {
        self.iter().filter(|record| record.is_note()).map(Record::note).collect()
    }
}

impl Deref for Records {
    type Target = [Record];

    fn deref(&self) -> &[Record] {
        &self.0
    }
}

impl Record {
    fn is_note(&self) -> bool {
        self.text.starts_with(b"dunnage: ")
    }

    fn note(&self) -> (u64, u64, String) {
        assert_eq!((&*self.stream, self.flag), ("stderr", 'F'));
        parse_note(std::str::from_utf8(&self.text).unwrap())
    }
}

fn parse_note(text: &str) -> (u64, u64, String) {
    let (bytes, rest) = text.strip_prefix("dunnage: ").unwrap().split_once(" bytes of output (").unwrap();
    let (lines, rest) = rest.split_once(" line").unwrap();
    let (_, reason) = rest.split_once(") were not logged: ").unwrap();
    (bytes.parse().unwrap(), lines.parse().unwrap(), reason.to_owned())
}

fn record(line: &[u8]) -> Record {
    const PATTERN: &[u8; PREFIX_LEN] = b"0000-00-00T00:00:00.000000000+00:00 stdxxx x ";
    let (prefix, text) = line.split_at_checked(PREFIX_LEN).expect("a line without a whole prefix");
    let prefix = std::str::from_utf8(prefix).expect("a prefix that is no text");
    for (found, &pattern) in prefix.bytes().zip(PATTERN) {
        let fits = match pattern {
            b'0' => found.is_ascii_digit(),
            b'+' => found == b'+' || found == b'-',
            b'x' => found.is_ascii_alphabetic(),
            exact => found == exact,
        };
        assert!(fits, "no record: {prefix:?}");
    }
    let (stream, flag) = (&prefix[36..42], prefix.as_bytes()[43] as char);
    assert!(["stdout", "stderr"].contains(&stream) && ['F', 'P'].contains(&flag), "no record: {prefix:?}");
    assert!(text.len() <= TEXT_MAX, "a text of {} bytes", text.len());
    Record { stamp: prefix[..35].to_owned(), stream: stream.to_owned(), flag, text: text.to_owned() }
}

/// An entry of the journal, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry(Vec<(String, Vec<u8>)>);

impl Entry {
    /// Takes a datagram apart; panics where it is no entry.
    pub(super) fn parse(mut datagram: &[u8]) -> Self {
        let mut fields = Vec::new();
        while !datagram.is_empty() {
            let end = datagram.iter().position(|&byte| byte == b'\n').expect("a field without an end");
            let (line, rest) = (&datagram[..end], &datagram[end + 1..]);
            let (name, value);
            if let Some(equals) = line.iter().position(|&byte| byte == b'=') {
                (name, value) = (&line[..equals], &line[equals + 1..]);
                datagram = rest;
            } else {
                let (len, rest) = rest.split_first_chunk().expect("a value without a length");
                let len = usize::try_from(u64::from_le_bytes(*len)).unwrap();
                assert_eq!(rest.get(len), Some(&b'\n'), "a value without an end");
                (name, value) = (line, &rest[..len]);
                datagram = &rest[len + 1..];
            }
            let name = String::from_utf8(name.to_vec()).unwrap();
            assert!(fields.iter().all(|(other, _)| *other != name), "{name} twice");
            fields.push((name, value.to_vec()));
        }
        Self(fields)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(other, _)| other == name)
    }

    pub(super) fn field(&self, name: &str) -> &[u8] {
        &self.0.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("no {name} in {self:?}")).1
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(self.field("MESSAGE")).unwrap()
    }

    /// What the log says of itself: bytes and lines that are missing, and why.
    pub(super) fn note(&self) -> Option<(u64, u64, String)> {
        self.field("MESSAGE").strip_prefix(b"dunnage: ").map(|_| parse_note(self.text().trim_end()))
    }
}
