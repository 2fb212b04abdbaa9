//! The double fork: the short side ends for its caller to go on, the long side stays.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use dunnage_runtime::sys;
use log::debug;
use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, pipe2, setsid};

use crate::cli::{Detach, Stdio};
use crate::error::{Context, Result};
use crate::whole_file::WholeFile;

/// Which process [`detach`] returned into.
#[derive(Debug)]
pub(crate) enum Side {
    /// The one that the caller started and waits for. It has nothing left to do.
    Short,
    /// The one that stays.
    Long(GoAhead),
}

/// The short side's word that the long side's pid is in its file: if it cannot be written, there is no long side.
#[derive(Debug, Default)]
pub(crate) struct GoAhead(Option<File>);

impl GoAhead {
    /// Waits for it. The long side makes what it needs meanwhile, and starts nothing before.
    pub(crate) fn wait(self) -> bool {
        self.0.is_none_or(|mut pipe| matches!(pipe.read(&mut [0]), Ok(1)))
    }
}

/// Makes the process that stays: in a session of its own, without the caller's standard streams, and parent of what
/// its descendants leave (`PR_SET_CHILD_SUBREAPER`). With passthrough the streams stay until the runtime has them.
pub(crate) fn detach(how: &Detach, stdio: Stdio) -> Result<Side> {
    // Before the fork, as the caller still sees then what goes wrong.
    let null = open_null()?;
    let go_ahead = match how {
        Detach::Fork { pid_file } => match fork(pid_file.as_deref())? {
            Side::Short => return Ok(Side::Short),
            Side::Long(go_ahead) => go_ahead,
        },
        Detach::Sync => GoAhead::default(),
    };
    // While there still is an stderr to say so.
    prctl::set_child_subreaper(true).context(|| "cannot become a subreaper")?;
    // Fails for the leader of a group, as a --sync shim may be one: nothing depends on it.
    if let Err(errno) = setsid() {
        debug!("no session of its own: {}", errno.desc());
    }
    if stdio != Stdio::Passthrough {
        replace_stdio(&null)?;
    }
    Ok(Side::Long(go_ahead))
}

fn fork(pid_file: Option<&Path>) -> Result<Side> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC).context(|| "cannot make a pipe")?;
    match sys::detach().context(|| "cannot fork")? {
        sys::Side::Parent(child) => {
            drop(read);
            if let Some(path) = pid_file {
                WholeFile::create(path)
                    .and_then(|file| file.commit(child.to_string().as_bytes()))
                    .context(|| format!("cannot write the conmon pid file {}", path.display()))?;
            }
            // A long side that is gone is noticed by its silence on the sync pipe.
            let _ = File::from(write).write_all(b"\0");
            Ok(Side::Short)
        }
        sys::Side::Child => {
            drop(write);
            Ok(Side::Long(GoAhead(Some(read.into()))))
        }
    }
}

/// Gives up the caller's standard streams.
pub(crate) fn let_go_of_stdio() -> Result<()> {
    replace_stdio(&open_null()?)
}

fn open_null() -> Result<File> {
    File::options().read(true).write(true).open("/dev/null").context(|| "cannot open /dev/null")
}

fn replace_stdio(null: &File) -> Result<()> {
    let what = || "cannot let go of the standard streams";
    dup2_stdin(null.as_fd()).context(what)?;
    dup2_stdout(null.as_fd()).context(what)?;
    dup2_stderr(null.as_fd()).context(what)
}
