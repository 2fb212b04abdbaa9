//! From the caller's process to the shim that stays. The caller learns whether it serves: the process that it started
//! ends once clients are answered, or with what went wrong.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use dunnage_runtime::sys::{InheritedFds, Signals};
use log::Level;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, umask};
use nix::unistd::pipe2;

use super::record::RecordFile;
use super::{Handed, Shim};
use crate::cli::{Detach, ServiceConfig, Stdio};
use crate::error::{Context, Error, Result};
use crate::log::Log;
use crate::messages::Line;
use crate::rounds::SIGNALS;
use crate::start::{self, OomScore, Side};

/// Everything before the loop. The process that the caller started gets nothing: its work is done.
// Not a part of main's frame, which lasts as long as the loop.
#[inline(never)]
pub(crate) fn start(config: Box<ServiceConfig>, inherited: InheritedFds) -> Result<Option<Box<Shim>>> {
    umask(Mode::from_bits_truncate(0o022));
    // Nothing of the caller's is passed on to anybody.
    drop(inherited);
    let record = RecordFile::lock(&config.persist_dir)?;
    let kept = record.read(&config.name)?;
    let log = Log::open(&config.log).map_err(|error| Error::new(error.to_string()))?;
    let signals = Signals::catch(&SIGNALS).context(|| "cannot catch signals")?;
    let oom_score = OomScore::protect();
    let (words, teller) = Teller::new(&config.detach).context(|| "cannot make a pipe")?;
    match start::detach(&config.detach, Stdio::Pipes)? {
        Side::Short => {
            drop(teller);
            listen(words).map(|()| None)
        }
        Side::Long(go_ahead) => {
            drop(words);
            if !go_ahead.wait() {
                // The short side has said why.
                return Ok(None);
            }
            let prepared = Shim::prepare(Handed { config, log, record, kept, signals, oom_score });
            teller.tell(prepared.as_ref().err());
            prepared.map(Some)
        }
    }
}

/// Where the caller hears how it went.
enum Teller {
    /// At the process that it started.
    Pipe(File),
    /// On its stderr, where no other process stays.
    Stderr(File),
}

/// What the long side says when it serves.
const SERVES: &[u8] = b"\0";

impl Teller {
    fn new(detach: &Detach) -> io::Result<(Option<File>, Self)> {
        match detach {
            Detach::Fork { .. } => {
                let (words, teller) = pipe2(OFlag::O_CLOEXEC)?;
                Ok((Some(words.into()), Self::Pipe(teller.into())))
            }
            Detach::Sync => Ok((None, Self::Stderr(io::stderr().as_fd().try_clone_to_owned()?.into()))),
        }
    }

    // Nobody is left to hear of it if that fails.
    fn tell(self, failure: Option<&Error>) {
        let _ = match (self, failure) {
            (Self::Pipe(mut pipe), None) => pipe.write_all(SERVES),
            (Self::Pipe(mut pipe), Some(failure)) => write!(pipe, "{failure}"),
            (Self::Stderr(_), None) => Ok(()),
            (Self::Stderr(mut stderr), Some(failure)) => writeln!(stderr, "{}", Line(Level::Error, failure)),
        };
    }
}

/// The short side's last work.
fn listen(words: Option<File>) -> Result<()> {
    let mut said = Vec::new();
    if let Some(mut words) = words {
        words.read_to_end(&mut said).context(|| "cannot learn whether the service's process serves")?;
    }
    match &*said {
        SERVES => Ok(()),
        b"" => Err(Error::new("the service's process ended before it served")),
        text => Err(Error::new(String::from_utf8_lossy(text))),
    }
}
