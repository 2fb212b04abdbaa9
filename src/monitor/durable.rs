//! Making the end durable: by a process of its own, as a disk may take its time, or never answer (R22).

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Instant;

use dunnage_runtime::event_loop::Interest;
use dunnage_runtime::privileges;
use dunnage_runtime::sys::{Answer, Task};
use log::warn;

use super::Monitor;
use super::ending::{End, Ending};
use crate::exit::ExitFiles;
use crate::source::Source;

/// What is not known to be on the disk yet.
#[derive(Debug)]
struct Unsynced {
    log: Option<File>,
    exit_files: ExitFiles,
}

impl Unsynced {
    fn sync(&self) -> Result<Answer, String> {
        let log = self.log.as_ref().map_or(Ok(()), File::sync_data).map_err(|error| format!("the log: {error}"));
        // One does not keep the other from it.
        let exit_files = self.exit_files.sync().map_err(|error| format!("an exit file: {error}"));
        log.and(exit_files).map(|()| Answer::default())
    }
}

impl Monitor {
    /// Makes them durable, and goes on with the end when that is done.
    pub(super) fn make_durable(&mut self, log: Option<File>, exit_files: ExitFiles, end: End, now: Instant) {
        let unsynced = Unsynced { log, exit_files };
        let log = unsynced.log.iter().map(AsFd::as_fd);
        let kept: Vec<_> = log.chain(unsynced.exit_files.descriptors()).collect();
        if kept.is_empty() {
            return self.go_on_to_command(&end, now);
        }
        let started = self.driver.start_task(&self.event_loop, &kept, || unsynced.sync()).and_then(|task| {
            self.event_loop.watch(&task, Source::Durable, Interest::READABLE)?;
            Ok(task)
        });
        if let Ok(task) = started {
            let until = end.hastened.then(|| now + self.config.timing.runtime_grace);
            self.end_with(Ending::Syncing { task, until, end });
        } else {
            // No descriptor or no process is to be had for it.
            let _raised = privileges::raise();
            report(unsynced.sync().map(drop));
            self.go_on_to_command(&end, now);
        }
    }

    /// The task may be done.
    pub(super) fn handle_durable(&mut self, now: Instant) {
        match self.take_ending() {
            Some(Ending::Syncing { mut task, until, end }) => match task.advance() {
                None => self.end_with(Ending::Syncing { task, until, end }),
                Some(result) => {
                    self.event_loop.unwatch(&task);
                    report(result.map(drop));
                    self.go_on_to_command(&end, now);
                }
            },
            Some(other) => self.end_with(other),
            None => {}
        }
    }

    /// It is not waited for any longer.
    pub(super) fn give_up_durable(&mut self, task: &Task, end: &End, now: Instant) {
        self.event_loop.unwatch(task);
        report(Err("the disk did not answer in time"));
        self.go_on_to_command(end, now);
    }
}

fn report(result: Result<(), impl std::fmt::Display>) {
    if let Err(error) = result {
        warn!("the log and the exit files are not known to be on the disk: {error}");
    }
}
