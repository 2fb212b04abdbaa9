//! The k8s-file driver: one record a line, `STAMP STREAM F|P TEXT`, appended to a file.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use memchr::memchr_iter;
use nix::errno::Errno;

use super::file::{LogFile, Rules};
use super::loss::{Loss, Totals};
use super::passing;
use super::stamp::Stamp;
use crate::buffer::Buffer;
use crate::cli::K8sFileOptions;
use crate::stream::Stream;
use dunnage_records::{Batch, Pieces, RECORD_MAX};

/// How many bytes of records are written at once: few writes, and still a part of the processor's cache.
const BUFFER_SIZE: NonZeroUsize = NonZeroUsize::new(128 * 1024).unwrap();
const _: () = assert!(BUFFER_SIZE.get() >= RECORD_MAX, "every record fits");

/// How long after a failed attempt the next one is made to replace a file at its limit.
const REPLACE_PAUSE: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct K8sFile {
    file: LogFile,
    /// The size that no record may pass, but for one that is alone in its file.
    size_max: Option<u64>,
    /// How much may still be written in all; the record that passes it is whole.
    left: Option<u64>,
    stamp: Stamp,
    buffer: Buffer,
    loss: Option<Loss>,
    totals: Totals,
    /// After a loss or a failed replacing was told to the shim's own log, it is not told again before a reopening.
    warned: bool,
    replace_failed: Option<Instant>,
}

impl K8sFile {
    pub(super) fn open(options: &K8sFileOptions) -> io::Result<Self> {
        let rules = Rules { backups: options.backups, allowlist: options.allowlist.clone() };
        let file = LogFile::open(&options.path, rules)?;
        Ok(Self {
            size_max: options.size_max.filter(|_| file.is_regular()),
            left: options.total_max.map(|max| max.saturating_sub(file.size())),
            file,
            stamp: Stamp::new(),
            buffer: Buffer::new(BUFFER_SIZE)?,
            loss: None,
            totals: Totals::default(),
            warned: false,
            replace_failed: None,
        })
    }

    /// Logs output; what cannot be written now is counted.
    pub(super) fn write(&mut self, stream: Stream, output: &[u8]) {
        let pieces = Pieces::new(output);
        match &mut self.loss {
            Some(loss) if Instant::now() < loss.retry_at() => {
                loss.add(output.len(), pieces.count(), &mut self.totals);
            }
            _ => self.put(stream, pieces),
        }
    }

    /// A new file at the path, at once.
    pub(super) fn reopen(&mut self) {
        match self.file.replace() {
            Ok(()) => {
                self.replace_failed = None;
                self.warned = false;
                self.tell_loss();
            }
            Err(error) => {
                ::log::warn!(
                    "cannot reopen log file {}: {error}; the old one stays in use",
                    self.file.path().display()
                );
            }
        }
    }

    /// The end of the output, see [`Log::close`](super::Log::close).
    pub(super) fn finish(&mut self) {
        self.tell_loss();
        if let Some(loss) = &self.loss {
            ::log::warn!("log file {}: {loss}", self.file.path().display());
        }
        if let Err(error) = self.file.finish() {
            ::log::warn!("cannot end log file {}: {error}", self.file.path().display());
        }
    }

    /// What can be made durable.
    pub(super) fn into_regular_file(self) -> Option<File> {
        self.file.into_regular_file()
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    pub(super) fn has_grown(&mut self) -> bool {
        self.buffer.has_grown()
    }

    pub(super) fn release(&mut self) {
        self.buffer.release();
    }

    /// When [`K8sFile::tell_loss`] should be called, if no output comes before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.loss.as_ref().map(Loss::tell_at)
    }

    /// Says in the log what is missing there, if it takes it now.
    pub(super) fn tell_loss(&mut self) {
        if self.loss.is_some() {
            self.put(Stream::Stderr, Pieces::new(b""));
        }
    }

    /// Writes what was lost before, then `pieces`; after an error the rest of them is lost.
    fn put(&mut self, stream: Stream, mut pieces: Pieces) {
        let start = self.loss.as_ref().map(|_| Instant::now());
        self.stamp.update();
        let prefix = self.stamp.prefix(stream);
        loop {
            if self.left == Some(0) {
                self.loss = None; // Nothing more is expected to be there.
                return;
            }
            let note = self.loss.as_ref().map(|loss| format!("dunnage: {loss}\n"));
            let next = note.as_ref().map(|note| prefix.len() + note.len());
            let Some(mut next) = next.or_else(|| pieces.next_record_len()) else {
                return;
            };
            if self.keep_limit(next) && note.is_none() {
                self.pass_over(&mut pieces);
                next = pieces.next_record_len().unwrap_or(next);
            }
            let room = self.room_for(next);
            let mut batch = Batch::new(&mut self.buffer[..room]);
            if let Some(note) = &note {
                batch.fill(&self.stamp.prefix(Stream::Stderr), &mut Pieces::new(note.as_bytes()));
            }
            let mut dropped = pieces.clone();
            let note_lines = batch.lines();
            batch.fill(&prefix, &mut pieces);
            let (len, lines) = (batch.bytes().len(), batch.lines() - note_lines);
            self.buffer.filled(len);
            let records = &self.buffer[..len];

            let result = self.file.append(records);
            let whole = result.as_ref().map_or_else(|stopped| stopped.whole, |()| records.len());
            self.left = self.left.map(|left| left.saturating_sub(whole as u64));
            if self.left == Some(0) {
                ::log::info!("log file {} is as large as --log-global-size-max allows", self.file.path().display());
            }
            let Err(stopped) = result else {
                self.totals.lines_logged += lines as u64;
                self.loss = None;
                continue;
            };
            let mut logged = memchr_iter(b'\n', &records[..stopped.whole]).count();
            if note.is_some() && logged > 0 {
                self.loss = None;
                logged -= 1;
            }
            self.totals.lines_logged += dropped.by_ref().take(logged).filter(|piece| piece.is_line()).count() as u64;
            self.lose(dropped, stopped.reason, start);
            return;
        }
    }

    /// Takes off `pieces` what would be gone again by the end of them, now that the file is a new one.
    fn pass_over(&mut self, pieces: &mut Pieces) {
        let Some(limit) = self.size_max else { return };
        // Where the log ends is for the records themselves to find.
        if self.left.is_some_and(|left| left <= passing::most_bytes(pieces)) {
            return;
        }
        let passed = passing::pass_over(pieces, limit, self.file.kept());
        self.totals.lines_logged += passed.lines;
        self.left = self.left.map(|left| left - passed.bytes);
    }

    /// Counts what could not be written, in an attempt that began at `start` if there was a loss before.
    fn lose(&mut self, dropped: Pieces, reason: Errno, start: Option<Instant>) {
        if dropped.rest().is_empty() && self.loss.is_none() {
            return; // A record that is there by half will be finished.
        }
        let now = Instant::now();
        if !self.warned {
            self.warned = true;
            let path = self.file.path().display();
            ::log::warn!("cannot write log file {path}: {}; output is dropped until it works again", reason.desc());
        }
        let loss = self.loss.get_or_insert_with(|| Loss::new(reason, now));
        loss.add(dropped.rest().len(), dropped.count(), &mut self.totals);
        if let Some(start) = start {
            loss.attempted(reason, start, now);
        }
    }

    /// Replaces a file that would pass its limit with a record of `next` bytes, and whether it did. If that is impossible
    /// the old one grows on.
    fn keep_limit(&mut self, next: usize) -> bool {
        self.size_max.is_some_and(|limit| self.passes(limit, next) && self.replace(limit, next))
    }

    /// How many bytes may be written at once, with the first record taking `next`.
    fn room_for(&self, next: usize) -> usize {
        let in_file = self.size_max.filter(|&limit| !self.passes(limit, next));
        let in_file = in_file.map_or(u64::MAX, |limit| limit.saturating_sub(self.file.size()));
        let left = self.left.unwrap_or(u64::MAX).min(in_file);
        usize::try_from(left).unwrap_or(usize::MAX).clamp(next, BUFFER_SIZE.get())
    }

    fn passes(&self, limit: u64, next: usize) -> bool {
        self.file.size() > 0 && self.file.size() + next as u64 > limit
    }

    /// Whether there is another file now, that takes a record of `next` bytes.
    fn replace(&mut self, limit: u64, next: usize) -> bool {
        if self.replace_failed.is_some_and(|failed| failed.elapsed() < REPLACE_PAUSE) {
            return false;
        }
        self.file.refresh_size();
        if !self.passes(limit, next) {
            return false;
        }
        match self.file.replace() {
            Ok(()) => {
                self.replace_failed = None;
                true
            }
            Err(error) => {
                if self.replace_failed.replace(Instant::now()).is_none() {
                    let path = self.file.path().display();
                    ::log::warn!("cannot replace log file {path} at its size limit: {error}; it grows on");
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
