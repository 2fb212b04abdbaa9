//! The pipes that the caller hands over, named in the environment.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use dunnage_runtime::event_loop::{EventLoop, Interest};
use dunnage_runtime::sys::InheritedFds;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::read;

use crate::cli::Config;
use crate::error::{Context, Error, Result};
use crate::source::Source;

/// One message of the caller's is one read of at most this many bytes.
const MESSAGE_MAX: usize = 8192;

/// What the caller talks through.
#[derive(Debug, Default)]
pub(crate) struct CallerPipes {
    /// `_OCI_SYNCPIPE`: takes the pid or the error.
    pub(crate) sync: Option<OwnedFd>,
    /// `_OCI_ATTACHPIPE`: with `--exec-attach`, is told that clients may attach.
    pub(crate) attach: Option<OwnedFd>,
    /// Tells when to start.
    pub(crate) start: StartPipe,
}

impl CallerPipes {
    /// Takes the pipes out of what was inherited. The runtime and the container never get them.
    pub(crate) fn take(inherited: &mut InheritedFds, config: &Config) -> Result<Self> {
        let sync = take_named(inherited, "_OCI_SYNCPIPE")?;
        let start = StartPipe(take_named(inherited, "_OCI_STARTPIPE")?);
        let attach = take_named(inherited, "_OCI_ATTACHPIPE")?;
        if config.waits_for_clients() && attach.is_none() {
            return Err(Error::new("--attach specified but _OCI_ATTACHPIPE was not"));
        }
        Ok(Self { sync, attach: attach.filter(|_| config.waits_for_clients()), start })
    }
}

/// `_OCI_STARTPIPE`: the caller says when to go on.
#[derive(Debug, Default)]
pub(crate) struct StartPipe(Option<OwnedFd>);

impl StartPipe {
    /// Waits until the caller says so: before anything is forked, as it moves this process into its cgroup first, and
    /// for an exec with clients once more before the runtime is started. A caller that ends the pipe instead has given
    /// up. Without a pipe nobody is waited for.
    pub(crate) fn wait(&self) -> Result<()> {
        let Some(pipe) = &self.0 else { return Ok(()) };
        // Not on the stack, where its pages would stay for the shim's life.
        let mut message = vec![0; MESSAGE_MAX];
        loop {
            match read(pipe, &mut message) {
                Ok(0) => {
                    return Err(Error::new("the caller closed the start pipe (_OCI_STARTPIPE): nothing is started"));
                }
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                // A caller may have made it nonblocking for itself.
                Err(Errno::EAGAIN) => {
                    let _ = poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
                }
                Err(errno) => {
                    return Err(io::Error::from(errno)).context(|| "cannot read the start pipe (_OCI_STARTPIPE)");
                }
            }
        }
    }

    /// Has the loop tell when there is something to read. Says whether there is a pipe at all.
    pub(crate) fn watch(&self, event_loop: &EventLoop<Source>) -> Result<bool> {
        let Some(pipe) = &self.0 else { return Ok(false) };
        event_loop
            .watch(pipe, Source::StartPipe, Interest::READABLE)
            .context(|| "cannot watch the start pipe (_OCI_STARTPIPE)")?;
        Ok(true)
    }

    /// Is done with it.
    pub(crate) fn close(self, event_loop: &EventLoop<Source>) {
        if let Some(pipe) = self.0 {
            event_loop.unwatch(&pipe);
        }
    }
}

fn take_named(inherited: &mut InheritedFds, variable: &str) -> Result<Option<OwnedFd>> {
    let Some(value) = env::var_os(variable) else { return Ok(None) };
    let number = number_of(variable, &value)?;
    match inherited.claim(number) {
        Some(fd) => Ok(Some(fd)),
        None => Err(Error::new(format!("{variable} names descriptor {number}, which is not open"))),
    }
}

/// The descriptor that a variable names.
pub(super) fn number_of(variable: &str, value: &OsStr) -> Result<RawFd> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::new(format!("{variable} is no number of a descriptor: {}", value.display())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc;
    use std::thread;

    use nix::fcntl::OFlag;
    use nix::unistd::{gettid, pipe2, write};

    use super::*;

    #[test]
    fn a_start_pipe_may_be_nonblocking() {
        let (receiver, caller) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
        let (tell, told) = mpsc::channel();
        let waiter = thread::spawn(move || {
            tell.send(gettid()).unwrap();
            StartPipe(Some(receiver)).wait().map_err(|error| error.to_string())
        });
        let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap());
        // Until it found the pipe empty and sleeps, or has ended.
        while fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") S ")) {
            thread::yield_now();
        }
        let _ = write(&caller, b"x");
        assert_eq!(waiter.join().unwrap(), Ok(()));
    }
}
