//! What logs are held to: read back they are the output, whatever it was and however it came.

use std::cell::Cell;
use std::env;
use std::fs;
use std::num::NonZeroU32;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::unistd::gettid;

use super::append::{Appender, Target};
pub(crate) use super::journald::fuzzing::journal_entries;
use super::k8s_file::K8sFile;
use crate::cli::K8sFileOptions;
use crate::fuzzing::Input;
use crate::stream::Stream;
use dunnage_records::{Batch, FLAG_AT, PREFIX_LEN, Pieces, Prefix, TEXT_MAX};

/// One that tests look for: its stream, whether it is a whole line or the last piece of one, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    stream: Stream,
    full: bool,
    text: Vec<u8>,
}

impl Record {
    fn len(&self) -> usize {
        PREFIX_LEN + self.text.len() + 1
    }

    /// Takes a log apart, strictly.
    fn all_of(log: &[u8]) -> Vec<Self> {
        assert!(log.is_empty() || log.ends_with(b"\n"), "the last line is torn");
        let lines = log.split_inclusive(|&byte| byte == b'\n');
        lines.map(|line| Self::parse(&line[..line.len() - 1])).collect()
    }

    fn parse(line: &[u8]) -> Self {
        let (prefix, text) = line.split_at_checked(PREFIX_LEN).expect("a line with a whole prefix");
        let shape = |byte: &u8| match byte {
            b'0'..=b'9' => b'0',
            // Only the offset has either.
            b'+' => b'-',
            other => *other,
        };
        assert!(prefix[..36].iter().map(shape).eq(*b"0000-00-00T00:00:00.000000000-00:00 "), "no time");
        let (stream, full) = match &prefix[36..] {
            b"stdout F " => (Stream::Stdout, true),
            b"stdout P " => (Stream::Stdout, false),
            b"stderr F " => (Stream::Stderr, true),
            b"stderr P " => (Stream::Stderr, false),
            other => panic!("no stream and flag: {}", other.escape_ascii()),
        };
        assert!(text.len() <= TEXT_MAX, "a text of {} bytes", text.len());
        Self { stream, full, text: text.to_vec() }
    }

    /// Those of output that was read in one piece, found byte by byte.
    fn of_output(stream: Stream, output: &[u8]) -> Vec<Self> {
        let (mut records, mut text) = (Vec::new(), Vec::new());
        for &byte in output {
            if byte == b'\n' {
                records.push(Self { stream, full: true, text: std::mem::take(&mut text) });
                continue;
            }
            if text.len() == TEXT_MAX {
                records.push(Self { stream, full: false, text: std::mem::take(&mut text) });
            }
            text.push(byte);
        }
        if !text.is_empty() {
            records.push(Self { stream, full: false, text });
        }
        records
    }

    /// The output that it stands for.
    fn output(&self) -> impl Iterator<Item = u8> + '_ {
        self.text.iter().copied().chain(self.full.then_some(b'\n'))
    }
}

const PREFIX: &Prefix = b"2026-11-30T13:02:15.123456789+00:00 stdout F ";

/// Output, in batches that have room for a record, or a little more.
pub(crate) fn records(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut rooms = Input::new(input.text());
    let mut output = Vec::new();
    while !input.is_empty() {
        output.extend_from_slice(&input.output());
    }
    let expected = Record::of_output(Stream::Stdout, &output);
    let mut pieces = Pieces::new(&output);
    assert_eq!(pieces.clone().count(), expected.len());

    let mut log = Vec::new();
    while let Some(next) = pieces.next_record_len() {
        let room = next + rooms.number();
        let mut buffer = vec![0; room];
        let mut batch = Batch::new(&mut buffer);
        batch.fill(PREFIX, &mut pieces);
        let len = batch.bytes().len();
        assert!(len >= next && matches!(batch.bytes()[FLAG_AT], b'F' | b'P'));
        assert!(pieces.next_record_len().is_none_or(|next| len + next > room), "one more had fitted");
        log.extend_from_slice(batch.bytes());
    }
    let found = Record::all_of(&log);
    assert!(found == expected);
    assert!(found.iter().flat_map(Record::output).eq(output));
}

/// A disk that fails at any moment.
struct Disk<'a> {
    content: Vec<u8>,
    script: Input<'a>,
    /// It never fails again.
    repaired: bool,
}

impl Target for Disk<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let action = if self.repaired || self.script.is_empty() { 0 } else { self.script.byte() };
        let taken = match action {
            0 => bytes.len(),
            1 => return Err(Errno::EINTR),
            2 => return Err(Errno::ENOSPC),
            3 => return Err(Errno::EAGAIN),
            count => usize::from(count - 4),
        };
        let taken = taken.min(bytes.len());
        self.content.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn cut(&mut self, torn: usize) -> bool {
        let can = self.script.flag();
        if can {
            self.content.truncate(self.content.len().checked_sub(torn).expect("no more than is there"));
        }
        can
    }
}

/// Whole records or none of a record, whatever the disk does.
pub(crate) fn appender(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let script = Input::new(input.text());
    let torn: &[u8] = if input.flag() { b"torn" } else { b"" };
    let disk = Disk { content: torn.to_vec(), script, repaired: false };
    let mut appender = if torn.is_empty() { Appender::new(disk) } else { Appender::after_torn_line(disk) };
    let mut expected = Vec::new();
    while !input.is_empty() {
        // Each line is a record.
        let mut batch = input.output();
        batch.push(b'\n');
        let whole = appender.append(&batch).map_or_else(|stopped| stopped.whole, |()| batch.len());
        assert!(whole == 0 || batch[whole - 1] == b'\n', "{whole} of {}", batch.escape_ascii());
        expected.extend_from_slice(&batch[..whole]);
    }
    appender.target.repaired = true;
    assert_eq!(appender.finish(), Ok(()));
    let content = appender.target.content.strip_prefix(torn).expect("what was there");
    // The line that was torn has an end now, if anything was tried.
    let content = if torn.is_empty() { content } else { content.strip_prefix(b"\n").expect("its end") };
    assert!(content == expected, "{} bytes, not {}", content.len(), expected.len());
}

/// A log with limits, in a directory of its own: its files hold what is left of one record after the other.
pub(crate) fn files(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let scratch = Scratch::new();
    let path = scratch.0.join("log");
    let size_max = [0, 1, 100, 1000, 20_000, input.number() as u64];
    let size_max = Some(*input.one_of(&size_max)).filter(|&max| max > 0);
    let total_max = Some(input.number() as u64).filter(|&max| max > 0);
    let keep = input.byte() % 8;
    // The start of a line, of somebody who did not end it.
    let torn = vec![b'x'; input.byte().into()];
    fs::write(&path, &torn).expect("a file");
    let options = K8sFileOptions {
        path: path.clone(),
        size_max,
        total_max,
        backups: NonZeroU32::new(keep.into()),
        allowlist: Vec::new(),
    };

    let mut log = K8sFile::open(&options).expect("a log");
    let mut expected = Files::new(&options, &torn);
    while !input.is_empty() {
        match input.byte() % 16 {
            0 => {
                log.reopen();
                expected.begin();
            }
            1 => log.release(),
            number => {
                let stream = [Stream::Stdout, Stream::Stderr][usize::from(number & 1)];
                let output = input.output();
                log.write(stream, &output);
                expected.write(Record::of_output(stream, &output));
            }
        }
    }
    log.finish();
    assert_eq!(log.deadline(), None, "nothing is lost");
    assert_eq!(log.totals().lines_logged, expected.lines);

    let backup = |number: u8| path.with_extension(number.to_string());
    assert!(!backup(keep + 1).exists(), "there are more than {keep}");
    let paths: Vec<PathBuf> = (1..=keep).rev().map(backup).filter(|path| path.exists()).chain([path.clone()]).collect();
    let found: Vec<_> = paths
        .iter()
        .map(|path| fs::read(path).expect("a file"))
        .map(|content| Record::all_of(without(&torn, &content)))
        .collect();
    let all = expected.records.len();
    let kept = &expected.records[all.saturating_sub(usize::from(keep) + 1)..];
    assert!(found == kept, "{} files of {all}, not {}", found.len(), kept.len());
}

/// The files of a log and what is in them, if none of them ever goes.
struct Files {
    /// Of each file.
    records: Vec<Vec<Record>>,
    /// How long the last one is.
    size: u64,
    size_max: u64,
    left: u64,
    lines: u64,
}

impl Files {
    fn new(options: &K8sFileOptions, torn: &[u8]) -> Self {
        let size = (torn.len() + usize::from(!torn.is_empty())) as u64;
        let left = options.total_max.map_or(u64::MAX, |max| max.saturating_sub(size));
        Self { records: vec![Vec::new()], size, size_max: options.size_max.unwrap_or(u64::MAX), left, lines: 0 }
    }

    fn write(&mut self, records: Vec<Record>) {
        for record in records {
            self.push(record);
        }
    }

    fn begin(&mut self) {
        self.records.push(Vec::new());
        self.size = 0;
    }

    /// A record goes into the file where it fits. The one that passes the limit of all is whole, and the last.
    fn push(&mut self, record: Record) {
        if self.left == 0 {
            return;
        }
        let len = record.len() as u64;
        if self.size > 0 && self.size + len > self.size_max {
            self.begin();
        }
        self.size += len;
        self.left = self.left.saturating_sub(len);
        self.lines += u64::from(record.full);
        self.records.last_mut().expect("there is always one").push(record);
    }
}

/// A log without the torn line that may be its first.
fn without<'a>(torn: &[u8], content: &'a [u8]) -> &'a [u8] {
    match content.strip_prefix(torn) {
        Some(rest) if !torn.is_empty() => rest.strip_prefix(b"\n").unwrap_or(rest),
        _ => content,
    }
}

/// A directory that goes with its test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        thread_local! {
            static NEXT: Cell<u64> = const { Cell::new(0) };
        }
        let number = NEXT.replace(NEXT.get() + 1);
        let path = env::temp_dir().join(format!("dunnage-fuzz-{}-{number}", gettid()));
        fs::create_dir(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
