//! Accepts clients, of the attach sockets and of the control socket.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use dunnage_runtime::sys;
use log::warn;

/// How long to wait after an error that only time cures, such as a full descriptor table. The kernel reports nothing
/// when that is over.
const RETRY: Duration = Duration::from_secs(1);

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    /// What messages call those who connect.
    clients: &'static str,
    retry: Option<Instant>,
}

impl Listener {
    /// Takes a nonblocking socket.
    pub(crate) fn new(socket: OwnedFd, clients: &'static str) -> Self {
        Self { socket, clients, retry: None }
    }

    /// The next connection; none if there is none, or if it has to wait until [`Listener::next_timeout`].
    pub(crate) fn accept(&mut self, now: Instant) -> Option<OwnedFd> {
        loop {
            match sys::accept(&self.socket) {
                Ok(connection) => {
                    self.retry = None;
                    return Some(connection);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.retry = None;
                    return None;
                }
                // The client went away again; the next one may be good.
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                }
                Err(error) => {
                    if self.retry.is_none() {
                        warn!("cannot accept {} for now: {error}", self.clients);
                    }
                    self.retry = Some(now + RETRY);
                    return None;
                }
            }
        }
    }

    /// When to try again after an error.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.retry
    }
}
