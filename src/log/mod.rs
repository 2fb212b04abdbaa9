//! Where the container's output is logged.

mod append;
mod backups;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod journald;
mod k8s_file;
mod loss;
mod passing;
mod place;
mod stamp;
#[cfg(test)]
mod testing;

use std::fs::File;
use std::io;
use std::time::Instant;

use dunnage_runtime::event_loop::EventLoop;

use crate::cli::Logging;
use crate::source::Source;
use crate::stream::Stream;
use journald::Journald;
use k8s_file::K8sFile;
pub(crate) use loss::Totals;
pub(crate) use stamp::rfc3339;

/// The container's log: none, one or several. Nothing here fails its caller once it is open: what could not be written
/// is counted and told in the log itself as soon as there is room again.
#[derive(Default)]
pub(crate) struct Log {
    file: Option<K8sFile>,
    journald: Option<Journald>,
}

impl Log {
    /// Opens the log file, appending to what it holds. Without a log there is nothing to do from then on.
    pub(crate) fn open(config: &Logging) -> io::Result<Self> {
        let file = config.file.as_ref().map(|options| {
            K8sFile::open(options).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot open log file {}: {error}", options.path.display()))
            })
        });
        let journald = config.journald.as_ref().map(Journald::open);
        Ok(Self { file: file.transpose()?, journald: journald.transpose()? })
    }

    /// Logs output that was read in one piece, stamped once.
    pub(crate) fn write(&mut self, stream: Stream, output: &[u8]) {
        if let Some(file) = &mut self.file {
            file.write(stream, output);
        }
        if let Some(journald) = &mut self.journald {
            journald.write(stream, output);
        }
    }

    /// Nothing more comes from this stream.
    pub(crate) fn end(&mut self, stream: Stream) {
        if let Some(journald) = &mut self.journald {
            journald.end(stream);
        }
    }

    /// Whether more can be written without a loss. If not there will be room in a few seconds at most, for a loss if not
    /// otherwise.
    pub(crate) fn has_room(&self) -> bool {
        self.journald.as_ref().is_none_or(Journald::has_room)
    }

    /// Makes room, with a loss if it takes longer than a moment.
    pub(crate) fn make_room(&mut self) {
        if let Some(journald) = &mut self.journald {
            journald.make_room();
        }
    }

    /// Has the loop tell when there may be room, if there is none now.
    pub(crate) fn watch(&mut self, event_loop: &EventLoop<Source>) {
        if let Some(journald) = &mut self.journald {
            journald.watch(event_loop);
        }
    }

    /// There may be room.
    pub(crate) fn handle_writable(&mut self) {
        if let Some(journald) = &mut self.journald {
            journald.handle_writable();
        }
    }

    /// `2 0 0` on the ctl fifo, SIGUSR1: a new file at the log's path, at once.
    pub(crate) fn reopen(&mut self) {
        if let Some(file) = &mut self.file {
            file.reopen();
        }
        if let Some(journald) = &mut self.journald {
            journald.reopen();
        }
    }

    /// Ends the log: with a whole record, and saying what is missing. Gives the file that is still to be made durable.
    pub(crate) fn close(self) -> Option<File> {
        if let Some(mut journald) = self.journald {
            journald.finish();
        }
        let mut file = self.file?;
        file.finish();
        file.into_regular_file()
    }

    /// What became of the output so far, in all logs together.
    pub(crate) fn totals(&self) -> Totals {
        let file = self.file.as_ref().map(K8sFile::totals).unwrap_or_default();
        let journald = self.journald.as_ref().map(Journald::totals).unwrap_or_default();
        file + journald
    }

    /// Whether, since the last time this was asked, there came to be memory to [`release`](Log::release).
    pub(crate) fn has_grown(&mut self) -> bool {
        let file = self.file.as_mut().is_some_and(K8sFile::has_grown);
        let journald = self.journald.as_mut().is_some_and(Journald::has_grown);
        file || journald
    }

    /// Gives memory back; called when there is nothing to log for now.
    pub(crate) fn release(&mut self) {
        if let Some(file) = &mut self.file {
            file.release();
        }
        if let Some(journald) = &mut self.journald {
            journald.release();
        }
    }

    /// When [`Log::handle_deadline`] is due. There is a time only while output waits, or was dropped and the log does
    /// not say so yet: then a container that falls silent must not keep it from saying so.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let file = self.file.as_ref().and_then(K8sFile::deadline);
        let journald = self.journald.as_ref().and_then(Journald::deadline);
        [file, journald].into_iter().flatten().min()
    }

    /// Tries to tell what was dropped.
    pub(crate) fn handle_deadline(&mut self) {
        if let Some(file) = &mut self.file {
            file.tell_loss();
        }
        if let Some(journald) = &mut self.journald {
            journald.handle_deadline();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::testing::{Records, Scratch};
    use super::*;
    use crate::cli::K8sFileOptions;

    fn logging(file: Option<PathBuf>, size_max: Option<u64>) -> Logging {
        let file = file.map(|path| K8sFileOptions { path, size_max, ..K8sFileOptions::default() });
        Logging { file, journald: None, passthrough: false, sync: true }
    }

    #[test]
    fn f02_every_kind_of_log_opens_and_logs_with_and_without_a_limit() {
        let dir = Scratch::new();
        mkfifo(&dir.path("fifo"), Mode::S_IRWXU).unwrap();
        for size_max in [None, Some(1), Some(u64::MAX)] {
            for file in [None, Some(dir.path("fifo")), Some(dir.path("log"))] {
                let mut log = Log::open(&logging(file, size_max)).unwrap();
                log.write(Stream::Stdout, b"a line\n");
                log.reopen();
                log.write(Stream::Stderr, b"a line\n");
                log.release();
                assert_eq!(log.deadline(), None);
                log.close();
            }
            assert_eq!(Records::of(dir.path("log")).plain(), [("stderr", 'F', "a line")]);
        }
    }

    #[test]
    fn a_log_that_cannot_be_opened_is_one_clear_line() {
        let dir = Scratch::new();
        fs::create_dir(dir.path("dir")).unwrap();
        for (name, reason) in [("missing/log", "No such file or directory"), ("dir", "Is a directory")] {
            let path = dir.path(name);
            let error = Log::open(&logging(Some(path.clone()), None)).err().unwrap().to_string();
            assert!(error.starts_with(&format!("cannot open log file {}: {reason}", path.display())), "{error}");
            assert!(!error.contains('\n'));
        }
        assert!(!dir.path("missing").exists());
    }
}
