//! The one loop of a shim: mio's poll, and sources that are named rather than numbered.
//!
//! Everything is edge-triggered (mio knows nothing else). A handler reads or writes until the descriptor would block, or
//! until a read came back short; one that stops before that calls [`EventLoop::rearm`], which makes the kernel report
//! again what is still ready.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use mio::unix::SourceFd;
use mio::{Poll, Token};

pub use mio::Interest;

/// The name of a watched descriptor, which events carry back.
///
/// The kernel may report a descriptor that was given up a moment ago. So a name is never used for a second thing:
/// where things come and go, it holds a sequence number.
pub trait Source: Copy {
    /// The name as mio's token.
    fn into_token(self) -> Token;
    /// The name that [`Source::into_token`] made `token` of.
    fn from_token(token: Token) -> Self;
}

/// What the kernel said of one source.
#[derive(Clone, Copy, Debug)]
pub struct Event<S> {
    /// Which one.
    pub source: S,
    /// There is something to read, or the end, or an error.
    pub readable: bool,
    /// There is room to write, or an error.
    pub writable: bool,
}

/// The poll and its buffer of events.
#[derive(Debug)]
pub struct EventLoop<S> {
    poll: Poll,
    sources: PhantomData<S>,
}

/// A buffer for one round of events.
#[derive(Debug)]
pub struct Events(mio::Events);

impl Events {
    /// Room for `capacity` events a round; what does not fit comes in the next one.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self(mio::Events::with_capacity(capacity))
    }

    /// The events of the last round.
    pub fn iter<S: Source>(&self) -> impl Iterator<Item = Event<S>> + '_ {
        self.0.iter().map(|event| Event {
            source: S::from_token(event.token()),
            readable: event.is_readable() || event.is_read_closed() || event.is_error(),
            writable: event.is_writable() || event.is_write_closed() || event.is_error(),
        })
    }
}

impl<S: Source> EventLoop<S> {
    /// A loop that watches nothing yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self { poll: Poll::new()?, sources: PhantomData })
    }

    /// Starts to watch `fd` under the name `source`. What is ready already is reported as well.
    pub fn watch(&self, fd: &impl AsFd, source: S, interest: Interest) -> io::Result<()> {
        let raw = fd.as_fd().as_raw_fd();
        self.poll.registry().register(&mut SourceFd(&raw), source.into_token(), interest)
    }

    /// Has the kernel report again what is ready, and changes the interest.
    pub fn rearm(&self, fd: &impl AsFd, source: S, interest: Interest) -> io::Result<()> {
        let raw = fd.as_fd().as_raw_fd();
        self.poll.registry().reregister(&mut SourceFd(&raw), source.into_token(), interest)
    }

    /// Stops watching `fd`; called before it is closed, as a forked child may hold a copy for a moment.
    pub fn unwatch(&self, fd: &impl AsFd) {
        let raw = fd.as_fd().as_raw_fd();
        // Fails only where it was not watched, which is what is wanted.
        let _ = self.poll.registry().deregister(&mut SourceFd(&raw));
    }

    /// Waits for events, until `deadline` at most. A signal ends the wait early, without events.
    pub fn wait(&mut self, events: &mut Events, deadline: Option<Instant>) -> io::Result<()> {
        let timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        match self.poll.poll(&mut events.0, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                events.0.clear();
                Ok(())
            }
            result => result,
        }
    }
}
