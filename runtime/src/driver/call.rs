//! What a runtime is called with, and the file that tells of its process.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use log::debug;
use nix::fcntl::OFlag;
use nix::unistd::Pid;

use super::kinship;
use crate::reaper::{CallId, CallSpec, Kinship, PidFile};
use crate::sys::{Pidfd, Program};

/// The most that is read of a PID file: a PID has at most ten digits.
const MAX_PID_FILE: usize = 32;

/// An OCI runtime's run.
#[derive(Debug)]
pub struct RuntimeCall<'a> {
    /// The runtime.
    pub program: Program<'a>,
    /// Where it writes the PID of the process it starts.
    pub pid_file: PathBuf,
    /// Its bounds.
    pub spec: CallSpec,
}

/// Why a call was not started. Nothing ran.
#[derive(Debug)]
pub enum StartError {
    /// A shutdown has begun (R19).
    ShuttingDown,
    /// The runtime could not be started.
    Spawn(io::Error),
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Spawn(error)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShuttingDown => f.write_str("this monitor is shutting down"),
            Self::Spawn(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

/// What is kept of a call in progress.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: CallId,
    /// Where the runtime writes the PID of its process.
    pub(super) pid_file: PathBuf,
    /// That process, from its examination until the reaper said what becomes of it.
    pub(super) examined: Option<(Pid, Pidfd)>,
}

impl Call {
    pub(super) fn read_pid_file(&self) -> PidFile {
        // Whatever is there is not waited for: it may be a fifo.
        let open = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&self.pid_file);
        let mut text = Vec::with_capacity(MAX_PID_FILE);
        match open.and_then(|file| file.take(MAX_PID_FILE as u64).read_to_end(&mut text)) {
            Ok(_) => kinship::parse_pid_file(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => PidFile::Absent,
            Err(error) => PidFile::Invalid(error.to_string()),
        }
    }

    /// What the process is, which is held if it is one of this process's.
    pub(super) fn examine(&mut self, pid: Pid) -> Kinship {
        match Pidfd::open(pid) {
            Ok(pidfd) => {
                let kinship = kinship::examine(pid, &pidfd);
                self.examined = (kinship != Kinship::None).then_some((pid, pidfd));
                kinship
            }
            Err(error) => {
                debug!("cannot open process {pid}: {error}");
                Kinship::None
            }
        }
    }
}
