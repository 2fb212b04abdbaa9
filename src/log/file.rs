//! The file at the log's path, and how another one takes its place.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{self, Path, PathBuf};

use dunnage_runtime::privileges;

use super::append::{Appender, Stopped};
use super::backups;
use super::place::Place;
use crate::whole_file::temporary_name;

/// An open log. Only a regular file is ever replaced; anything else (a fifo, `/dev/null`, `/dev/stdout`) stays what
/// was opened.
pub(super) struct LogFile {
    path: PathBuf,
    rules: Rules,
    appender: Appender<File>,
    regular: bool,
    size: u64,
}

/// What holds for every file at the path.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// How many files are kept that others took the place of.
    pub(super) backups: Option<NonZeroU32>,
    /// Directories that the file must be in or below, if there are any.
    pub(super) allowlist: Vec<PathBuf>,
}

impl LogFile {
    /// Opens what is at `path`, or makes a file there.
    pub(super) fn open(path: &Path, rules: Rules) -> io::Result<Self> {
        // As the path is used again later. Without a working directory it fails the same way in either form.
        let path = path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let file = open_allowed(&path, &rules)?;
        let log = Self::new(path, rules, file)?;
        if log.regular
            && log.rules.backups.is_some()
            && let Ok(place) = Place::find(&log.path, &log.rules.allowlist)
        {
            backups::mend(&place);
        }
        Ok(log)
    }

    fn new(path: PathBuf, rules: Rules, file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let (regular, there) = (metadata.is_file(), metadata.size());
        let torn = regular && there > 0 && last_byte(&path, there).is_some_and(|byte| byte != b'\n');
        let appender = if torn { Appender::after_torn_line(file) } else { Appender::new(file) };
        let size = there + appender.owed() as u64;
        Ok(Self { path, rules, appender, regular, size })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file can be replaced by another one, and so kept below a size.
    pub(super) fn is_regular(&self) -> bool {
        self.regular
    }

    /// How many files there are at most, with this one.
    pub(super) fn kept(&self) -> u64 {
        1 + self.rules.backups.map_or(0, |backups| backups.get().into())
    }

    /// How long the file is, once the end is there of what it may hold by half.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Looks at the real size: others may have emptied the file.
    pub(super) fn refresh_size(&mut self) {
        if let Ok(metadata) = self.appender.target.metadata() {
            self.size = metadata.size() + self.appender.owed() as u64;
        }
    }

    /// Appends whole records.
    pub(super) fn append(&mut self, batch: &[u8]) -> Result<(), Stopped> {
        let result = self.appender.append(batch);
        self.size += result.as_ref().map_or_else(|stopped| stopped.whole, |()| batch.len()) as u64;
        result
    }

    /// Puts a new file at the path and goes on with it. If that fails nothing has changed.
    pub(super) fn replace(&mut self) -> io::Result<()> {
        if !self.regular {
            return Ok(());
        }
        let _raised = privileges::raise();
        let file = if self.is_at_path() {
            put_new_file(&self.path, &self.rules)?
        } else {
            open_allowed(&self.path, &self.rules)?
        };
        let new = Self::new(self.path.clone(), self.rules.clone(), file)?;
        if !new.regular {
            // `/dev/stdout` was a file and is not any more, say.
            return Err(io::Error::other("what is there now is no regular file"));
        }
        // A last attempt to end what could neither be written nor taken back.
        let _ = self.appender.finish();
        *self = new;
        Ok(())
    }

    /// Ends a record that is there by half.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        Ok(self.appender.finish()?)
    }

    /// What can be made durable: not a fifo or a device.
    pub(super) fn into_regular_file(self) -> Option<File> {
        self.regular.then_some(self.appender.target)
    }

    /// Whether the path still leads to this file; not after it was renamed away or deleted.
    fn is_at_path(&self) -> bool {
        let (Ok(there), Ok(ours)) = (fs::metadata(&self.path), self.appender.target.metadata()) else {
            return false;
        };
        (there.dev(), there.ino()) == (ours.dev(), ours.ino())
    }
}

fn options(flags: i32) -> OpenOptions {
    let mut options = OpenOptions::new();
    // Writes to a fifo or a device must not block, nor a terminal become ours.
    options.append(true).mode(0o640).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | flags);
    options
}

/// Opens the log, or makes it, where the rules allow it.
fn open_allowed(path: &Path, rules: &Rules) -> io::Result<File> {
    let place = Place::find(path, &rules.allowlist)?;
    // The place is past all links: one that is there now is somebody's trick.
    open(&place.path(), if place.is_descriptor() { 0 } else { libc::O_NOFOLLOW })
}

/// Opens the log without ever blocking.
fn open(path: &Path, flags: i32) -> io::Result<File> {
    let options = || options(flags);
    let opened = options().create(true).open(path);
    let fifo = match &opened {
        Ok(file) => file.metadata()?.file_type().is_fifo(),
        // A fifo without a reader, or a socket.
        Err(error) => error.raw_os_error() == Some(libc::ENXIO),
    };
    if !fifo {
        return opened;
    }
    // With an end to read from as well a fifo holds what it has room for while nobody reads it, and takes more as soon
    // as somebody does.
    match options().read(true).open(path) {
        Ok(file) if file.metadata()?.file_type().is_fifo() => Ok(file),
        _ => opened,
    }
}

/// Makes a new file and renames it to take the place of the one at `path`, or of the one that a link there leads to.
fn put_new_file(path: &Path, rules: &Rules) -> io::Result<File> {
    let place = Place::find(path, &rules.allowlist)?;
    let temporary = place.beside(temporary_name(place.name(), "new"));
    // Of a shim that was killed between the two steps.
    let _ = fs::remove_file(&temporary);
    let file = options(0).create_new(true).open(&temporary)?;
    let renamed = match rules.backups {
        None => fs::rename(&temporary, place.path()),
        Some(keep) => backups::rotate(&place, keep, &temporary),
    };
    if let Err(error) = renamed {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(file)
}

/// The last byte of a regular file; not every log may be read.
fn last_byte(path: &Path, size: u64) -> Option<u8> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    let mut byte = [0];
    (file.read_at(&mut byte, size - 1).ok()? == 1).then_some(byte[0])
}
