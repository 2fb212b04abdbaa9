//! Moves bytes between the container's standard streams, the log and attach clients.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use dunnage_runtime::event_loop::{Event, EventLoop};

use crate::cli::{Config, Stdio};
use crate::log::Log;
use crate::source::{RelaySource, Source};

/// The runtime's ends of the streams; closed once it was started.
pub(crate) struct ChildStdio {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// See the module.
pub(crate) struct Relay {}

impl Relay {
    pub(crate) fn new(event_loop: &EventLoop<Source>, config: &Config) -> io::Result<(Self, ChildStdio)> {
        let _ = (event_loop, config);
        todo!()
    }
}
