//! Reads a container's log: records of the form `STAMP STREAM F|P TEXT`, a line each.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is read at once.
const BLOCK: usize = 64 << 10;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) time: &'a str,
    pub(crate) is_stderr: bool,
    /// A piece of a line that goes on in the next record of the stream.
    pub(crate) partial: bool,
    pub(crate) text: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads a line without its end; nothing if it is no record.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.splitn(4, |&byte| byte == b' ');
        let time = str::from_utf8(words.next()?).ok()?;
        let is_stderr = match words.next()? {
            b"stdout" => false,
            b"stderr" => true,
            _ => return None,
        };
        let partial = match words.next()? {
            b"F" => false,
            b"P" => true,
            _ => return None,
        };
        Some(Self { time, is_stderr, partial, text: words.next()? })
    }
}

/// A log that may grow, and be replaced by a new file at its path.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    /// The beginning of a record whose end is not there yet.
    rest: Vec<u8>,
}

impl LogFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: File::open(path)?, rest: Vec::new() })
    }

    /// Goes to where the last `lines` lines begin.
    pub(crate) fn seek_to_last(&mut self, lines: usize) -> io::Result<()> {
        let end = self.file.seek(SeekFrom::End(0))?;
        let mut length = u64::try_from(BLOCK).unwrap_or(u64::MAX).min(end);
        loop {
            let start = self.file.seek(SeekFrom::Start(end - length))?;
            let mut tail = Vec::new();
            (&self.file).take(length).read_to_end(&mut tail)?;
            // Unless it is the file's, its beginning is in the middle of a record.
            let begin = if start == 0 {
                0
            } else {
                tail.iter().position(|&byte| byte == b'\n').map_or(tail.len(), |at| at + 1)
            };
            if let Some(at) = last_lines(&tail[begin..], lines, start == 0) {
                self.file.seek(SeekFrom::Start(start + u64::try_from(begin + at).unwrap_or(0)))?;
                return Ok(());
            }
            length = (length * 2).min(end);
        }
    }

    /// Gives each record up to the file's present end, without the end of its line.
    pub(crate) fn read<E: From<io::Error>>(&mut self, mut give: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut block = vec![0; BLOCK];
        loop {
            let count = self.file.read(&mut block)?;
            if count == 0 {
                return Ok(());
            }
            self.rest.extend_from_slice(&block[..count]);
            let mut start = 0;
            while let Some(length) = self.rest[start..].iter().position(|&byte| byte == b'\n') {
                give(&self.rest[start..start + length])?;
                start += length + 1;
            }
            self.rest.drain(..start);
        }
    }

    /// Whether another file is at the path, or this one begins anew. Then this one has all that it will ever have.
    pub(crate) fn is_replaced(&mut self) -> io::Result<bool> {
        let here = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(there) => Ok(identity(&here) != identity(&there) || here.len() < self.file.stream_position()?),
            // There is none for a moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Goes on with the file that came after this one: where full files are kept, as `PATH.1` and so on, the one that
    /// has the number below, else the one at the path.
    pub(crate) fn follow(&mut self) -> io::Result<()> {
        let this = identity(&self.file.metadata()?);
        let is_this = |number| fs::metadata(self.kept(number)).is_ok_and(|kept| identity(&kept) == this);
        let next = loop {
            let Some(number) = (1..=MAX_KEPT).take_while(|&number| self.kept(number).exists()).find(|&it| is_this(it))
            else {
                break File::open(&self.path)?;
            };
            let next = File::open(self.kept(number - 1));
            // Unless all of them got other numbers meanwhile.
            if is_this(number) {
                break next?;
            }
        };
        self.file = next;
        self.rest.clear();
        Ok(())
    }

    /// The path of a full file that is kept; 0 is the log itself.
    fn kept(&self, number: u32) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        if number > 0 {
            path.push(format!(".{number}"));
        }
        path.into()
    }
}

/// How many kept files are looked at.
const MAX_KEPT: u32 = 1000;

/// Which file it is.
fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Where in these records the last lines begin; nothing if that is before them, and they are not `all` there are.
fn last_lines(records: &[u8], lines: usize, all: bool) -> Option<usize> {
    let mut found = 0;
    let mut at = records.len();
    while at > 0 {
        let start = records[..at - 1].iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        let record = Record::parse(records[start..at].trim_ascii_end());
        // Each whole record ends a line, and so does the end of the file.
        if at == records.len() || record.is_none_or(|record| !record.partial) {
            if found == lines {
                return Some(at);
            }
            found += 1;
        }
        at = start;
    }
    all.then_some(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::{env, process};

    use super::*;

    /// A file that is removed with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(content: &str) -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let name = format!("dunnagectl-log-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let path = env::temp_dir().join(name);
            fs::write(&path, content).unwrap();
            Self(path)
        }

        fn append(&self, text: &str) {
            File::options().append(true).open(&self.0).unwrap().write_all(text.as_bytes()).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn texts(log: &mut LogFile) -> Vec<String> {
        let mut texts = Vec::new();
        log.read(|line| {
            texts.push(String::from_utf8_lossy(Record::parse(line).unwrap().text).into_owned());
            io::Result::Ok(())
        })
        .unwrap();
        texts
    }

    #[test]
    fn records_are_read_as_they_are_written() {
        let record = Record::parse(b"2026-11-30T18:03:37.1+00:00 stderr P  two  spaces ").unwrap();
        assert_eq!((record.time, record.is_stderr, record.partial), ("2026-11-30T18:03:37.1+00:00", true, true));
        assert_eq!(record.text, b" two  spaces ");
        assert_eq!(Record::parse(b"t stdout F ").unwrap().text, b"");
        for no_record in [&b"words of another kind"[..], b"t stdout X a", b"t stdout F", b""] {
            assert_eq!(Record::parse(no_record), None);
        }
    }

    #[test]
    fn the_last_lines_begin_where_their_first_piece_does() {
        let text = "t stdout F one\nt stdout P tw\nt stdout F o\nt stdout F three\nt stdout P four\n";
        let scratch = Scratch::new(text);
        for (lines, wanted) in [
            (0, &[][..]),
            (1, &["four"]),
            (2, &["three", "four"]),
            (3, &["tw", "o", "three", "four"]),
            (4, &["one", "tw", "o", "three", "four"]),
            (9, &["one", "tw", "o", "three", "four"]),
        ] {
            let mut log = LogFile::open(&scratch.0).unwrap();
            log.seek_to_last(lines).unwrap();
            assert_eq!(texts(&mut log), wanted, "{lines}");
        }
    }

    #[test]
    fn last_lines_may_be_more_than_is_read_at_once() {
        let all: Vec<String> = (0..20_000).map(|number| format!("line {number}")).collect();
        let scratch = Scratch::new("");
        scratch.append(&all.iter().map(|text| format!("t stdout F {text}\n")).collect::<Vec<_>>().concat());
        for lines in [1, 1000, 10_000, 19_999, 20_000, 20_001] {
            let mut log = LogFile::open(&scratch.0).unwrap();
            log.seek_to_last(lines).unwrap();
            assert_eq!(texts(&mut log), all[all.len().saturating_sub(lines)..], "{lines}");
        }
        let empty = Scratch::new("");
        LogFile::open(&empty.0).unwrap().seek_to_last(3).unwrap();
    }

    #[test]
    fn what_is_appended_is_read_once_it_is_whole_and_a_new_file_is_noticed() {
        let scratch = Scratch::new("t stdout F one\nt stdout F tw");
        let mut log = LogFile::open(&scratch.0).unwrap();
        assert_eq!(texts(&mut log), ["one"]);
        scratch.append("o\n");
        assert_eq!(texts(&mut log), ["two"]);
        assert!(!log.is_replaced().unwrap());
        fs::remove_file(&scratch.0).unwrap();
        assert!(!log.is_replaced().unwrap());
        fs::write(&scratch.0, "t stdout F three\n").unwrap();
        assert!(log.is_replaced().unwrap());
    }

    #[test]
    fn files_that_were_replaced_meanwhile_are_read_in_their_order() {
        let scratch = Scratch::new("t stdout F one\n");
        let mut log = LogFile::open(&scratch.0).unwrap();
        assert_eq!(texts(&mut log), ["one"]);
        let kept = [0, 1, 2, 3].map(|number| log.kept(number));
        fs::rename(&kept[0], &kept[3]).unwrap();
        for (number, text) in [(2, "two"), (1, "three"), (0, "four")] {
            fs::write(&kept[number], format!("t stdout F {text}\n")).unwrap();
        }
        let mut read = Vec::new();
        while log.is_replaced().unwrap() {
            log.follow().unwrap();
            read.extend(texts(&mut log));
        }
        assert_eq!(read, ["two", "three", "four"]);
        for path in &kept[1..] {
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_file_that_begins_anew_is_noticed() {
        let scratch = Scratch::new("t stdout F one\n");
        let mut log = LogFile::open(&scratch.0).unwrap();
        texts(&mut log);
        fs::write(&scratch.0, "t\n").unwrap();
        assert!(log.is_replaced().unwrap());
    }
}
