//! The record: where it is, who may write it, and how (G29).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use dunnage_runtime::generation::{Role, Serial};
use dunnage_runtime::sys::{Answer, Task};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

use super::Shim;
use crate::directory::Directory;
use crate::error::{Context, Error, Result};
use crate::generations::{Kept, Particulars, record_file};

/// Names in the persist directory.
const RECORD: &str = "generations.json";
const NEXT: &str = ".generations.json.next";
const LOCK: &str = "generations.lock";

/// How long the last write of a shim that was killed may hold the lock.
const LOCK_WAIT: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The record's file, with the right to write it.
#[derive(Debug)]
pub(super) struct RecordFile {
    path: PathBuf,
    directory: Directory,
    /// Never unlocked, only closed: that it would be for the other side of the fork, and for tasks, as well.
    lock: ManuallyDrop<Flock<File>>,
    write: Option<Writing>,
}

/// A write on its way.
#[derive(Debug)]
struct Writing {
    key: u32,
    serial: Serial,
    task: Task,
}

impl RecordFile {
    /// Takes the lock: there is one shim for each record.
    pub(super) fn lock(persist_dir: &Path) -> Result<Self> {
        let path = persist_dir.join(LOCK);
        let cannot = || format!("cannot lock {}", path.display());
        let directory = Directory::open(persist_dir).context(cannot)?;
        let open = || {
            let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(flags.bits())
                .open(&path)
        };
        let mut file = open().context(cannot)?;
        let until = Instant::now() + LOCK_WAIT;
        loop {
            file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => {
                    let lock = ManuallyDrop::new(lock);
                    return Ok(Self { path: persist_dir.join(RECORD), directory, lock, write: None });
                }
                Err((file, Errno::EAGAIN)) if Instant::now() < until => file,
                Err((_, Errno::EAGAIN)) => {
                    let why =
                        "another process serves from this record. End that one first, or use another --persist-dir";
                    return Err(Error::new(format!("{}: {why}", cannot())));
                }
                Err((_, error)) => return Err(error).context(cannot),
            };
            thread::sleep(LOCK_PAUSE);
        }
    }

    /// What is in it; nothing of a new service.
    pub(super) fn read(&self, service: &str) -> Result<Kept> {
        let what = || format!("cannot use the record {}", self.path.display());
        match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kept::default()),
            Err(error) => Err(error).context(what),
            Ok(text) => record_file::decode(service, &text).context(what),
        }
    }

    pub(super) fn is_written_by(&self, key: u32) -> bool {
        self.write.as_ref().is_some_and(|write| write.key == key)
    }
}

impl Shim {
    /// Begins to write what is to be kept now. The task holds the lock as well: no other shim reads before it has ended.
    pub(super) fn write_record(&mut self, serial: Serial, now: Instant) {
        let record = self.generations.record();
        let particulars: BTreeMap<Role, Particulars> =
            self.runs.iter().map(|(&role, run)| (role, run.particulars.clone())).collect();
        let text = record_file::encode(&self.config.name, record, &particulars);
        let key = self.take_key();
        let directory = &self.record.directory;
        let kept = [directory.as_fd(), self.record.lock.as_fd()];
        let work = || put_into_place(directory, &text).map(|()| Answer::default()).map_err(|error| error.to_string());
        let task = self.driver.start_task(&self.event_loop, &kept, work);
        match task.and_then(|task| self.watch_task(task, key)) {
            Ok(task) => self.record.write = Some(Writing { key, serial, task }),
            Err(error) => self.generations.handle_recorded(now, serial, &Err(error.to_string())),
        }
    }

    /// The write may be over.
    pub(super) fn handle_written(&mut self, now: Instant) {
        let Some(write) = &mut self.record.write else { return };
        let Some(answer) = write.task.advance() else { return };
        self.event_loop.unwatch(&write.task);
        let serial = write.serial;
        self.record.write = None;
        let path = self.record.path.display();
        let result = answer.map(drop).map_err(|error| format!("{path}: {error}"));
        if let Err(error) = &result {
            log::warn!("cannot write the record: {error}");
        }
        self.generations.handle_recorded(now, serial, &result);
    }
}

/// Replaces the record, durably.
fn put_into_place(directory: &Directory, text: &[u8]) -> io::Result<()> {
    let (next, record): (&OsStr, &OsStr) = (NEXT.as_ref(), RECORD.as_ref());
    // Of a write that was cut short.
    match directory.remove(next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = directory.create_file(next)?;
    file.write_all(text)?;
    file.sync_all()?;
    directory.rename(next, record)?;
    directory.sync()
}
