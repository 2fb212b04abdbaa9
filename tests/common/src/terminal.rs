//! A terminal with a person before it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use nix::poll::PollFlags;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::program::contains;
use crate::wait::{self, Deadline};

/// A pseudo-terminal: we hold the master.
#[derive(Debug)]
pub struct Terminal {
    master: File,
    slave: PathBuf,
    /// Of what was shown, how much was expected already.
    seen: usize,
    shown: Vec<u8>,
}

impl Terminal {
    /// A terminal of this size.
    pub fn new(rows: u16, columns: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a pseudo-terminal");
        unlockpt(&master).expect("a pseudo-terminal can be unlocked");
        let slave = ptsname(&master, Vec::new()).expect("a pseudo-terminal has a name");
        let slave = PathBuf::from(std::ffi::OsStr::from_bytes(slave.as_bytes()));
        let terminal = Self { master: master.into(), slave, seen: 0, shown: Vec::new() };
        terminal.resize(rows, columns);
        terminal
    }

    /// The other end, for a program.
    pub(crate) fn open_slave(&self) -> OwnedFd {
        let mut options = File::options();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, nix::libc::O_NOCTTY);
        options.read(true).write(true).open(&self.slave).expect("the terminal can be opened").into()
    }

    /// Another size; who has the terminal gets a SIGWINCH.
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, size).expect("a terminal can be resized");
    }

    /// Whether lines are edited and echoed by the terminal, as shells want it: not raw.
    pub fn edits_lines(&self) -> bool {
        let modes = tcgetattr(&self.master).expect("a terminal has modes").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Presses keys.
    pub fn press(&self, keys: &str) {
        (&self.master).write_all(keys.as_bytes()).expect("keys can be pressed");
    }

    /// Presses keys as people do: each alone, once the one before was read.
    pub fn press_one_by_one(&self, keys: &str) {
        let slave = self.open_slave();
        for key in keys.split_inclusive(|_| true) {
            self.press(key);
            wait::eventually(Deadline::usual(), &format!("{key:?} to be read"), || {
                // Polled at the other end, as the kernel first brings what was pressed there.
                !wait::poll_for(slave.as_fd(), PollFlags::POLLIN, Deadline::after(Duration::ZERO))
            });
        }
    }

    /// Waits until this text is shown, after what was expected before.
    pub fn expect(&mut self, text: &str) {
        let deadline = Deadline::usual();
        while !contains(&self.shown[self.seen..], text) {
            wait::readable(self.master.as_fd(), deadline, &format!("{text:?} on the terminal; it has {self}"));
            assert!(self.read(), "the terminal was closed without {text:?}; it has {self}");
        }
        let start = self.shown[self.seen..].windows(text.len()).position(|window| window == text.as_bytes());
        self.seen += start.unwrap_or_default() + text.len();
    }

    /// Reads until nobody has the terminal open, and gives all that was shown.
    pub fn to_end(mut self) -> String {
        let deadline = Deadline::usual();
        loop {
            wait::readable(self.master.as_fd(), deadline, &format!("the end of the terminal; it has {self}"));
            if !self.read() {
                return self.to_string();
            }
        }
    }

    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        match self.master.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.shown.extend_from_slice(&buffer[..count]);
                true
            }
            // Nobody has the other end open.
            Err(error) if error.raw_os_error() == Some(nix::libc::EIO) => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) => panic!("a terminal can be read: {error}"),
        }
    }
}

impl std::fmt::Display for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.shown))
    }
}
