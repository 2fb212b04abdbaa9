//! The pipes that the caller hands over, named in the environment.

use std::env;
use std::io;
use std::os::fd::OwnedFd;

use dunnage_runtime::sys::InheritedFds;
use nix::errno::Errno;
use nix::unistd::read;

use crate::error::{Context, Error, Result};

/// One message of the caller's is one read of at most this many bytes.
const MESSAGE_MAX: usize = 8192;

/// What the caller talks through.
#[derive(Debug)]
pub(crate) struct CallerPipes {
    /// `_OCI_SYNCPIPE`: takes the pid or the error.
    pub(crate) sync: Option<OwnedFd>,
    /// `_OCI_STARTPIPE`: tells when to start.
    start: Option<OwnedFd>,
}

impl CallerPipes {
    /// Takes the pipes out of what was inherited. The runtime and the container never get them.
    pub(crate) fn take(inherited: &mut InheritedFds) -> Result<Self> {
        // Only exec uses the attach pipe, but it is never for the runtime.
        take_named(inherited, "_OCI_ATTACHPIPE")?;
        Ok(Self { sync: take_named(inherited, "_OCI_SYNCPIPE")?, start: take_named(inherited, "_OCI_STARTPIPE")? })
    }

    /// Waits until the caller says that the shim may go on, which is before anything is forked: the caller moves this
    /// process into its cgroup first. A caller that ends the pipe instead has given up.
    pub(crate) fn wait_for_start(&mut self) -> Result<()> {
        let Some(start) = self.start.take() else { return Ok(()) };
        // Not on the stack, where its pages would stay for the shim's life.
        let mut message = vec![0; MESSAGE_MAX];
        loop {
            match read(&start, &mut message) {
                Ok(0) => {
                    return Err(Error::new("the caller closed the start pipe (_OCI_STARTPIPE): nothing is started"));
                }
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => {
                    return Err(io::Error::from(errno)).context(|| "cannot read the start pipe (_OCI_STARTPIPE)");
                }
            }
        }
    }
}

fn take_named(inherited: &mut InheritedFds, variable: &str) -> Result<Option<OwnedFd>> {
    let Some(value) = env::var_os(variable) else { return Ok(None) };
    let number = value.to_str().and_then(|text| text.parse().ok());
    let number =
        number.ok_or_else(|| Error::new(format!("{variable} is no number of a descriptor: {}", value.display())))?;
    match inherited.claim(number) {
        Some(fd) => Ok(Some(fd)),
        None => Err(Error::new(format!("{variable} names descriptor {number}, which is not open"))),
    }
}
