//! The fifos by which callers resize the terminal and have the log reopened: `ctl` and `winsz` in the bundle.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use dunnage_runtime::event_loop::{EventLoop, Interest};
use log::warn;
use memchr::memchr;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::rearm;
use crate::error::{Context, Result};
use crate::socket_file::remove_leftover;
use crate::source::Source;

/// The largest number of rows or columns.
pub(super) const MAX_SIZE: u16 = 1000;

/// The longest line. Those that mean something have 12 bytes at most, leading zeroes aside.
pub(super) const MAX_LINE: usize = 128;

/// How many reads a fifo gets in one turn.
const READS_PER_TURN: usize = 16;

/// What a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The terminal's size.
    Resize {
        /// Rows.
        height: u16,
        /// Columns.
        width: u16,
    },
    /// A new log file.
    ReopenLogs,
}

/// Which of the fifos, and so what its lines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fifo {
    /// `1 HEIGHT WIDTH` resizes, `2 0 0` reopens logs.
    Ctl,
    /// `HEIGHT WIDTH`.
    Winsz,
}

impl Fifo {
    fn name(self) -> &'static str {
        match self {
            Self::Ctl => "ctl",
            Self::Winsz => "winsz",
        }
    }

    fn source(self) -> Source {
        match self {
            Self::Ctl => Source::Ctl,
            Self::Winsz => Source::Winsz,
        }
    }

    /// What a line asks for. As in conmon, the sizes of a `2` are looked at, but mean nothing, and words after them neither.
    pub(super) fn parse(self, line: &[u8]) -> Option<Request> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let mut number = || str::from_utf8(words.next()?).ok()?.parse().ok().filter(|&number: &u16| number <= MAX_SIZE);
        let kind = match self {
            Self::Ctl => number()?,
            Self::Winsz => 1,
        };
        let (height, width) = (number()?, number()?);
        match kind {
            1 => Some(Request::Resize { height, width }),
            2 => Some(Request::ReopenLogs),
            _ => None,
        }
    }
}

/// A fifo, open.
#[derive(Debug)]
pub(crate) struct ControlFifo {
    fifo: Fifo,
    file: fs::File,
    lines: Lines,
}

impl ControlFifo {
    /// Makes a fifo in the bundle, in place of what an earlier run left, and starts to watch it.
    pub(crate) fn create(event_loop: &EventLoop<Source>, bundle: &Path, fifo: Fifo) -> Result<Self> {
        let path = bundle.join(fifo.name());
        remove_leftover(&path)?;
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR | Mode::S_IRGRP)
            .context(|| format!("cannot make the fifo {}", path.display()))?;
        // For writing as well: then there always is a writer, and no hang-up when the last other one leaves.
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags.bits()).open(&path);
        let file = file.context(|| format!("cannot open the fifo {}", path.display()))?;
        event_loop
            .watch(&file, fifo.source(), Interest::READABLE)
            .context(|| format!("cannot watch the fifo {}", path.display()))?;
        Ok(Self { fifo, file, lines: Lines::default() })
    }

    /// Its name in the event loop.
    pub(crate) fn source(&self) -> Source {
        self.fifo.source()
    }

    /// Reads what callers wrote, and hands out what they ask for.
    pub(crate) fn handle(&mut self, event_loop: &EventLoop<Source>, mut request: impl FnMut(Request)) {
        let mut bytes = [0; 512];
        for _ in 0..READS_PER_TURN {
            match (&self.file).read(&mut bytes) {
                Ok(len) => self.lines.split(&bytes[..len], |line| match self.fifo.parse(line.text) {
                    Some(asked) if !line.overlong => request(asked),
                    _ => warn!("{} does not understand \"{line}\"", self.fifo.name()),
                }),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    warn!("cannot read {}: {error}", self.fifo.name());
                    return;
                }
            }
        }
        rearm(event_loop, &self.file, self.fifo.source(), Interest::READABLE);
    }

    /// Closes the fifo. Its file is the caller's to remove.
    pub(crate) fn close(self, event_loop: &EventLoop<Source>) {
        event_loop.unwatch(&self.file);
    }
}

/// Puts lines together, however they are spread over reads.
#[derive(Debug)]
pub(super) struct Lines {
    buffer: [u8; MAX_LINE],
    len: usize,
    overlong: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self { buffer: [0; MAX_LINE], len: 0, overlong: false }
    }
}

/// A line, or the start of one that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) text: &'a [u8],
    pub(super) overlong: bool,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.overlong { "..." } else { "" };
        write!(formatter, "{}{more}", self.text.escape_ascii())
    }
}

impl Lines {
    /// Takes what was read, and hands out each line that is complete.
    pub(super) fn split(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line<'_>)) {
        while let Some(end) = memchr(b'\n', bytes) {
            self.append(&bytes[..end]);
            each(Line { text: &self.buffer[..self.len], overlong: self.overlong });
            self.len = 0;
            self.overlong = false;
            bytes = &bytes[end + 1..];
        }
        self.append(bytes);
    }

    fn append(&mut self, bytes: &[u8]) {
        let fitting = bytes.len().min(MAX_LINE - self.len);
        self.buffer[self.len..][..fitting].copy_from_slice(&bytes[..fitting]);
        self.len += fitting;
        self.overlong |= fitting < bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    use std::time::{Duration, Instant};

    use dunnage_runtime::event_loop::Events;

    use super::*;
    use crate::relay::tests::Directory;

    fn lines(reads: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for bytes in reads {
            lines.split(bytes, |line| found.push(line.to_string()));
        }
        found
    }

    #[test]
    fn lines_are_found_however_they_are_read() {
        assert_eq!(lines(&[b"1 24 80\n2 0 0\n"]), ["1 24 80", "2 0 0"]);
        assert_eq!(lines(&[b"1 2", b"4 ", b"80\n2 0", b" 0\n", b"1 1"]), ["1 24 80", "2 0 0"]);
        assert_eq!(lines(&[b"\n\n"]), ["", ""]);
    }

    #[test]
    fn an_overlong_line_is_skipped_whole_and_harms_no_other() {
        let long = [b'1'; 1000];
        let start = format!("{}...", "1".repeat(MAX_LINE));
        assert_eq!(lines(&[b"2 0 0\n", &long, &long, b"\n1 24 80\n"]), ["2 0 0", &start, "1 24 80"]);
        let whole = [b'1'; MAX_LINE];
        assert_eq!(lines(&[&whole, b"\n"]), ["1".repeat(MAX_LINE)]);
    }

    #[test]
    fn lines_are_shown_escaped() {
        assert_eq!(lines(&[b"a\x1b[2J\xff\0\r\n"]), [r"a\x1b[2J\xff\x00\r"]);
    }

    #[test]
    fn ctl_lines_mean_what_callers_mean() {
        let resize = |height, width| Some(Request::Resize { height, width });
        assert_eq!(Fifo::Ctl.parse(b"1 24 80"), resize(24, 80));
        assert_eq!(Fifo::Ctl.parse(b"1 0 1000"), resize(0, 1000));
        assert_eq!(Fifo::Ctl.parse(b" 1\t24  80\r"), resize(24, 80));
        assert_eq!(Fifo::Ctl.parse(b"2 0 0"), Some(Request::ReopenLogs));
        assert_eq!(Fifo::Ctl.parse(b"2 1 1"), Some(Request::ReopenLogs));
        assert_eq!(Fifo::Ctl.parse(b"1 0024 80 7 and \xff"), resize(24, 80));
    }

    #[test]
    fn winsz_lines_are_sizes() {
        assert_eq!(Fifo::Winsz.parse(b"24 80"), Some(Request::Resize { height: 24, width: 80 }));
        assert_eq!(Fifo::Winsz.parse(b"24 80 7"), Some(Request::Resize { height: 24, width: 80 }));
        assert_eq!(Fifo::Winsz.parse(b"24"), None);
    }

    #[test]
    fn other_lines_mean_nothing() {
        let others: [&[u8]; 13] = [
            b"",
            b"1",
            b"1 24",
            b"1 24 1001",
            b"1 -1 80",
            b"1 24.5 80",
            b"1 0x18 0x50",
            b"1 65560 80",
            b"1 99999999999999999999 80",
            b"0 24 80",
            b"3 0 0",
            b"one 24 80",
            b"1 24 80\xff",
        ];
        for line in others {
            assert_eq!(Fifo::Ctl.parse(line), None, "{}", line.escape_ascii());
        }
    }

    /// Handles events until `count` requests were made.
    fn requests(event_loop: &mut EventLoop<Source>, fifo: &mut ControlFifo, count: usize) -> Vec<Request> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut events = Events::with_capacity(8);
        let mut requests = Vec::new();
        while requests.len() < count {
            assert!(Instant::now() < deadline, "{count} requests expected, these came: {requests:?}");
            event_loop.wait(&mut events, Some(deadline)).expect("wait");
            for _ in events.iter::<Source>() {
                fifo.handle(event_loop, |request| requests.push(request));
            }
        }
        requests
    }

    #[test]
    fn leftovers_are_replaced_by_a_fifo_that_only_its_group_may_read() {
        let bundle = Directory::new();
        let event_loop = EventLoop::new().expect("a loop");
        std::fs::write(bundle.path().join("elsewhere"), "untouched").expect("write");
        std::os::unix::fs::symlink("elsewhere", bundle.path().join("winsz")).expect("symlink");
        std::fs::write(bundle.path().join("ctl"), "old").expect("write");

        for fifo in [Fifo::Ctl, Fifo::Winsz] {
            let _open = ControlFifo::create(&event_loop, bundle.path(), fifo).expect("create");
            let metadata = bundle.path().join(fifo.name()).symlink_metadata().expect("metadata");
            assert!(metadata.file_type().is_fifo());
            assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
        }
        assert_eq!(std::fs::read(bundle.path().join("elsewhere")).expect("read"), b"untouched");
    }

    #[test]
    fn k04_writers_come_and_go_without_a_hang_up() {
        let bundle = Directory::new();
        let mut event_loop = EventLoop::new().expect("a loop");
        let mut fifo = ControlFifo::create(&event_loop, bundle.path(), Fifo::Ctl).expect("create");
        // CRI-O opens it like this, which would wait for ever if there were no reader.
        let open = || File::options().write(true).open(bundle.path().join("ctl")).expect("open");
        open().write_all(b"1 24 ").expect("write");
        open().write_all(b"80\nnonsense\n2 0 0\n").expect("write");
        let expected = [Request::Resize { height: 24, width: 80 }, Request::ReopenLogs];
        assert_eq!(requests(&mut event_loop, &mut fifo, 2), expected);

        let mut events = Events::with_capacity(8);
        event_loop.wait(&mut events, Some(Instant::now() + Duration::from_millis(50))).expect("wait");
        assert_eq!(events.iter::<Source>().count(), 0, "nobody writes, but there are events");
    }

    #[test]
    fn more_than_a_turn_of_lines_is_read_to_its_end() {
        let bundle = Directory::new();
        let mut event_loop = EventLoop::new().expect("a loop");
        let mut fifo = ControlFifo::create(&event_loop, bundle.path(), Fifo::Winsz).expect("create");
        let mut writer = File::options().write(true).open(bundle.path().join("winsz")).expect("open");
        let count = 64_000 / 6;
        writer.write_all("24 80\n".repeat(count).as_bytes()).expect("write");
        assert_eq!(requests(&mut event_loop, &mut fifo, count).len(), count);
    }
}
