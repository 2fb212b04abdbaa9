//! The console socket: where the runtime hands over the container's terminal.

use std::env;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::task::Poll;

use dunnage_runtime::event_loop::{EventLoop, Interest};
use dunnage_runtime::{privileges, sys};
use log::{debug, warn};
use nix::errno::Errno;
use nix::sys::termios::tcgetattr;
use nix::unistd::mkdtemp;

use crate::error::{Context, Error, Result};
use crate::socket_file::MAX_SOCKET_PATH;
use crate::source::{Source, Target};

const DIRECTORY_TEMPLATE: &str = "dunnage-XXXXXX";
const SOCKET_NAME: &str = "console";

/// A listening socket in a directory of its own that only this user can enter. Both are removed with it.
#[derive(Debug)]
pub(crate) struct Console {
    target: Target,
    directory: PathBuf,
    listener: UnixListener,
    connection: Option<OwnedFd>,
}

/// What a connection brought.
#[derive(Debug)]
pub(crate) enum Handover {
    /// The terminal's master side.
    Terminal(OwnedFd),
    /// Nothing so far.
    Nothing,
}

impl Console {
    /// Makes the socket for the terminal of `target` and starts to watch it.
    pub(crate) fn listen(event_loop: &EventLoop<Source>, target: Target) -> Result<Self> {
        let directory = make_directory(&env::temp_dir())?;
        let path = directory.join(SOCKET_NAME);
        let bound = UnixListener::bind(&path).and_then(|listener| {
            listener.set_nonblocking(true)?;
            event_loop.watch(&listener, Source::ConsoleListener(target), Interest::READABLE)?;
            Ok(listener)
        });
        match bound {
            Ok(listener) => Ok(Self { target, directory, listener, connection: None }),
            Err(error) => {
                remove(&directory);
                Err(error).context(|| format!("cannot make the console socket {}", path.display()))
            }
        }
    }

    /// What the runtime is told to connect to.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(SOCKET_NAME)
    }

    /// Someone connected. The latest connection counts.
    pub(crate) fn accept(&mut self, event_loop: &EventLoop<Source>) -> io::Result<()> {
        loop {
            match sys::accept(&self.listener) {
                Ok(connection) => {
                    self.hang_up(event_loop);
                    event_loop.watch(&connection, Source::ConsoleConnection(self.target), Interest::READABLE)?;
                    self.connection = Some(connection);
                }
                Err(error) => match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
                    Errno::EAGAIN => return Ok(()),
                    Errno::ECONNABORTED | Errno::EINTR => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// The connection has something to say. One that brings no terminal is closed, and another one may come.
    pub(crate) fn receive(&mut self, event_loop: &EventLoop<Source>) -> Handover {
        let Some(connection) = &self.connection else { return Handover::Nothing };
        let Poll::Ready(terminal) = receive_from(connection) else { return Handover::Nothing };
        self.hang_up(event_loop);
        terminal.map_or(Handover::Nothing, Handover::Terminal)
    }

    /// Stops listening.
    pub(crate) fn close(mut self, event_loop: &EventLoop<Source>) {
        self.hang_up(event_loop);
        event_loop.unwatch(&self.listener);
    }

    fn hang_up(&mut self, event_loop: &EventLoop<Source>) {
        if let Some(connection) = self.connection.take() {
            event_loop.unwatch(&connection);
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        remove(&self.directory);
    }
}

/// What a connection brings: once it has something to say, a terminal or none.
pub(super) fn receive_from(connection: &OwnedFd) -> Poll<Option<OwnedFd>> {
    // The data is the name of the terminal, which is of no use here; nor is what does not fit.
    let mut data = [0; 128];
    match sys::receive_fds(connection, &mut data) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
        Err(error) => warn!("cannot receive from the console socket: {error}"),
        Ok((0, fds)) if fds.is_empty() => debug!("a connection to the console socket ended without a terminal"),
        Ok((_, fds)) => match fds.into_iter().next() {
            None => warn!("the runtime sent no descriptor over the console socket"),
            Some(fd) => match tcgetattr(fd.as_fd()) {
                Ok(_) => return Poll::Ready(Some(fd)),
                Err(errno) => warn!("the runtime sent a descriptor that is no terminal: {}", errno.desc()),
            },
        },
    }
    Poll::Ready(None)
}

/// The temporary directory if the socket's path fits there, else one that is always short.
fn make_directory(temporary: &Path) -> Result<PathBuf> {
    let mut last_error = Error::new("no temporary directory has a path short enough for the console socket");
    for base in [temporary, Path::new("/tmp"), Path::new("/run")] {
        let template = base.join(DIRECTORY_TEMPLATE);
        // Runtimes change to the bundle's directory before they look for it.
        if !template.is_absolute() || template.as_os_str().len() + 1 + SOCKET_NAME.len() > MAX_SOCKET_PATH {
            continue;
        }
        match mkdtemp(&template).context(|| format!("cannot make the console socket's directory in {}", base.display()))
        {
            Ok(directory) => return Ok(directory),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

fn remove(directory: &Path) {
    // It may be in a directory of another user's.
    let _raised = privileges::raise();
    // Nothing else is in there, and nobody else may enter.
    let _ = fs::remove_file(directory.join(SOCKET_NAME));
    let _ = fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_where_a_runtime_in_any_directory_finds_it() {
        let deep = format!("/tmp/{}", "x".repeat(MAX_SOCKET_PATH));
        for temporary in [Path::new("."), Path::new(""), Path::new("/no/such/directory"), Path::new(&deep)] {
            let directory = make_directory(temporary).unwrap();
            assert!(directory.is_absolute(), "{}", directory.display());
            remove(&directory);
            assert!(!directory.exists());
        }
    }
}
