//! Where the container's output comes from.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use dunnage_runtime::event_loop::{EventLoop, Interest};
use dunnage_runtime::sys;
use log::warn;
use nix::errno::Errno;
use nix::unistd::read;

use super::rearm;
use crate::buffer::Buffer;
use crate::source::{RelaySource, Source, Target};
use crate::stream::Stream;

/// The most that is read of a terminal at the container's end: more than the kernel buffers for one.
const TERMINAL_DRAIN: usize = 256 << 10;

/// A source of output.
#[derive(Debug)]
pub(super) struct Output {
    target: Target,
    stream: Stream,
    fd: Rc<OwnedFd>,
    kind: Kind,
    flow: Flow,
}

/// What a source of output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pipe,
    Terminal,
}

/// Whether output is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// At each event.
    Running,
    /// There was an event, but no room for what it announced.
    Paused,
    /// The container has ended.
    Stopped,
}

/// What a read found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// The first bytes of the buffer.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The end: nobody can write any more.
    End,
}

impl Output {
    /// Starts to watch a nonblocking descriptor.
    pub(super) fn watch(
        event_loop: &EventLoop<Source>,
        target: Target,
        stream: Stream,
        fd: Rc<OwnedFd>,
        kind: Kind,
    ) -> io::Result<Self> {
        let output = Self { target, stream, fd, kind, flow: Flow::Running };
        event_loop.watch(&output.fd, output.source(), output.interest())?;
        Ok(output)
    }

    fn source(&self) -> Source {
        Source::Relay(self.target, RelaySource::Output(self.stream))
    }

    fn interest(&self) -> Interest {
        match self.kind {
            Kind::Pipe => Interest::READABLE,
            // It takes the input as well.
            Kind::Terminal => Interest::READABLE | Interest::WRITABLE,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Reads once.
    pub(super) fn read(&self, buffer: &mut Buffer) -> Chunk {
        loop {
            match read(&self.fd, buffer) {
                // A terminal that nobody has open may be opened again, and is reported then.
                Err(Errno::EIO) if self.kind == Kind::Terminal => return Chunk::Nothing,
                Ok(0) => return Chunk::End,
                Ok(len) => {
                    buffer.filled(len);
                    return Chunk::Bytes(len);
                }
                Err(Errno::EAGAIN) => return Chunk::Nothing,
                Err(Errno::EINTR) => {}
                Err(error) => {
                    warn!("cannot read the container's {}: {error}", self.stream.name());
                    return Chunk::End;
                }
            }
        }
    }

    /// Has the kernel report again what is unread.
    pub(super) fn rearm(&self, event_loop: &EventLoop<Source>) {
        rearm(event_loop, &self.fd, self.source(), self.interest());
    }

    pub(super) fn is_running(&self) -> bool {
        self.flow == Flow::Running
    }

    pub(super) fn is_paused(&self) -> bool {
        self.flow == Flow::Paused
    }

    /// Leaves unread what was announced, for lack of room.
    pub(super) fn pause(&mut self) {
        self.flow = Flow::Paused;
    }

    /// There is room again.
    pub(super) fn resume(&mut self, event_loop: &EventLoop<Source>) {
        self.flow = Flow::Running;
        self.rearm(event_loop);
    }

    /// Reads no more of it. It stays open, so that whoever still writes is not killed by that.
    pub(super) fn stop(&mut self, event_loop: &EventLoop<Source>) {
        event_loop.unwatch(&self.fd);
        self.flow = Flow::Stopped;
    }

    /// How much there is to read at the container's end, at most: what others go on to write is not waited for.
    pub(super) fn left(&self) -> usize {
        match self.kind {
            Kind::Terminal => TERMINAL_DRAIN,
            Kind::Pipe => sys::unread_bytes(&self.fd).unwrap_or_else(|error| {
                warn!("cannot tell what is left of the container's {}: {error}", self.stream.name());
                0
            }),
        }
    }
}

/// The sources of output: each of them may be closed, or not be there yet.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    pub(super) stdout: Option<Output>,
    pub(super) stderr: Option<Output>,
}

impl Outputs {
    pub(super) fn slot(&mut self, stream: Stream) -> &mut Option<Output> {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Output> {
        self.stdout.iter().chain(&self.stderr)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Output> {
        self.stdout.iter_mut().chain(&mut self.stderr)
    }
}
