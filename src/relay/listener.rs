//! Accepts attach clients.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use dunnage_runtime::sys;
use log::warn;

/// How long to wait after an error that only time cures, such as a full descriptor table. The kernel reports nothing
/// when that is over.
const RETRY: Duration = Duration::from_secs(1);

/// The attach socket.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    retry: Option<Instant>,
}

impl Listener {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, retry: None }
    }

    /// The next connection; none if there is none, or if it has to wait until [`Listener::next_timeout`].
    pub(super) fn accept(&mut self, now: Instant) -> Option<OwnedFd> {
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
                        warn!("cannot accept attach clients for now: {error}");
                    }
                    self.retry = Some(now + RETRY);
                    return None;
                }
            }
        }
    }

    /// When to try again after an error.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.retry
    }
}
