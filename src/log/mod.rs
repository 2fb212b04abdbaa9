//! Where the container's output is logged.

mod append;
mod file;
mod k8s_file;
mod loss;
mod record;
mod stamp;
#[cfg(test)]
mod testing;

use std::io;
use std::time::Instant;

use crate::cli::Logging;
use crate::stream::Stream;
use k8s_file::K8sFile;

/// The container's log. Nothing here fails its caller once it is open: what could not be written is counted and
/// told in the log itself as soon as there is room again.
#[derive(Default)]
pub(crate) struct Log {
    drivers: Vec<Driver>,
}

/// One place that output goes to.
enum Driver {
    K8sFile(K8sFile),
}

impl Log {
    /// Opens the log file, appending to what it holds. Without one there is nothing to do from then on.
    pub(crate) fn open(config: &Logging) -> io::Result<Self> {
        let mut drivers = Vec::new();
        if let Some(path) = &config.file {
            let file = K8sFile::open(path, config.size_max).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot open log file {}: {error}", path.display()))
            })?;
            drivers.push(Driver::K8sFile(file));
        }
        Ok(Self { drivers })
    }

    /// Logs output that was read in one piece, stamped once.
    pub(crate) fn write(&mut self, stream: Stream, output: &[u8]) {
        for driver in &mut self.drivers {
            match driver {
                Driver::K8sFile(file) => file.write(stream, output),
            }
        }
    }

    /// `2 0 0` on the ctl fifo, SIGUSR1: a new file at the log's path, at once.
    pub(crate) fn reopen(&mut self) {
        for driver in &mut self.drivers {
            match driver {
                Driver::K8sFile(file) => file.reopen(),
            }
        }
    }

    /// Ends the log: with a whole record, and saying what is missing. Then makes it `durable`, if it is to be.
    pub(crate) fn close(self, durable: bool) {
        for driver in self.drivers {
            match driver {
                Driver::K8sFile(mut file) => file.finish(durable),
            }
        }
    }

    /// Whether, since the last time this was asked, there came to be memory to [`release`](Log::release).
    pub(crate) fn has_grown(&mut self) -> bool {
        self.drivers.iter_mut().fold(false, |grown, driver| match driver {
            Driver::K8sFile(file) => file.has_grown() | grown,
        })
    }

    /// Gives memory back; called when there is nothing to log for now.
    pub(crate) fn release(&mut self) {
        for driver in &mut self.drivers {
            match driver {
                Driver::K8sFile(file) => file.release(),
            }
        }
    }

    /// When [`Log::handle_deadline`] is due. There is a time only while output was dropped and the log does not say so
    /// yet: then a container that falls silent must not keep it from saying so.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadlines = self.drivers.iter().filter_map(|driver| match driver {
            Driver::K8sFile(file) => file.deadline(),
        });
        deadlines.min()
    }

    /// Tries to tell what was dropped.
    pub(crate) fn handle_deadline(&mut self) {
        for driver in &mut self.drivers {
            match driver {
                Driver::K8sFile(file) => file.tell_loss(),
            }
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

    fn logging(file: Option<PathBuf>, size_max: Option<u64>) -> Logging {
        Logging { file, size_max, sync: true }
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
                log.close(true);
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
