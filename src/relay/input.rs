//! Attach clients' input on its way to the container.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use dunnage_runtime::event_loop::EventLoop;
use log::{debug, warn};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::write;

use crate::buffer::Buffer;
use crate::source::Source;

/// The largest packet that clients send.
pub(super) const MAX_PACKET: NonZeroUsize = NonZeroUsize::new(32 << 10).unwrap();

/// Where input goes.
#[derive(Debug)]
pub(super) enum Destination {
    /// The container's stdin.
    Pipe {
        /// Our end of it.
        pipe: OwnedFd,
        /// Whether it stays when a client's input ends.
        leave_open: bool,
    },
    /// The container's terminal, once the runtime has sent it.
    Terminal(Option<Rc<OwnedFd>>),
    /// Nowhere: input is read and dropped.
    Nowhere,
}

/// The way of the input, with room for one packet. A second one is not read before the first is gone, so a container
/// that does not read makes its clients wait.
#[derive(Debug)]
pub(super) struct Input {
    destination: Destination,
    buffer: Buffer,
    pending: Range<usize>,
}

/// What a client had.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A packet.
    Packet,
    /// Nothing for now.
    Nothing,
    /// The end of its input.
    End,
}

impl Input {
    pub(super) fn new(destination: Destination) -> io::Result<Self> {
        Ok(Self { destination, buffer: Buffer::new(MAX_PACKET)?, pending: 0..0 })
    }

    /// The terminal is there.
    pub(super) fn connect(&mut self, terminal: Rc<OwnedFd>) {
        self.destination = Destination::Terminal(Some(terminal));
    }

    /// Receives a packet. Only for when nothing is pending.
    pub(super) fn receive(&mut self, client: &OwnedFd) -> Received {
        debug_assert!(self.pending.is_empty(), "pending input would be overwritten");
        let dropped = matches!(self.destination, Destination::Nowhere);
        loop {
            // The answer is the packet's true length, whatever the buffer has room for.
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
            let received = if dropped {
                recv(client.as_raw_fd(), &mut [0], flags)
            } else {
                recv(client.as_raw_fd(), &mut self.buffer, flags)
            };
            return match received {
                Ok(0) => Received::End,
                Ok(_) if dropped => Received::Packet,
                Ok(whole) => {
                    if whole > MAX_PACKET.get() {
                        warn!("an attach client's packet of {whole} bytes was cut: {MAX_PACKET} are the most");
                    }
                    let len = whole.min(MAX_PACKET.get());
                    self.buffer.filled(len);
                    self.pending = 0..len;
                    Received::Packet
                }
                Err(Errno::EAGAIN) => Received::Nothing,
                // The client is gone with output unread. That is told once; what it sent before can still be read.
                Err(Errno::EINTR | Errno::ECONNRESET) => continue,
                Err(error) => {
                    debug!("cannot read an attach client's input: {error}");
                    Received::End
                }
            };
        }
    }

    /// Writes what is pending; whether all of it is gone.
    pub(super) fn flush(&mut self, event_loop: &EventLoop<Source>) -> bool {
        while !self.pending.is_empty() {
            let fd = match &self.destination {
                Destination::Pipe { pipe, .. } => pipe,
                Destination::Terminal(Some(terminal)) => terminal.as_ref(),
                Destination::Terminal(None) => return false,
                Destination::Nowhere => {
                    self.pending = 0..0;
                    return true;
                }
            };
            match write(fd, &self.buffer[self.pending.clone()]) {
                Ok(0) | Err(Errno::EAGAIN) => return false,
                Ok(len) => self.pending.start += len,
                Err(Errno::EINTR) => {}
                Err(error) => {
                    debug!("the container takes no more input: {error}");
                    self.close(event_loop);
                }
            }
        }
        true
    }

    /// Whether the container's stdin stays when a client's input ends.
    pub(super) fn leave_open(&mut self, leave: bool) {
        if let Destination::Pipe { leave_open, .. } = &mut self.destination {
            *leave_open = leave;
        }
    }

    /// A client's input has ended. All of it was written before, as its end came last.
    pub(super) fn end(&mut self, event_loop: &EventLoop<Source>) {
        if let Destination::Pipe { leave_open: false, .. } = self.destination {
            self.close(event_loop);
        }
    }

    /// Closes the container's stdin for good, and lets go of the terminal.
    pub(super) fn close(&mut self, event_loop: &EventLoop<Source>) {
        if let Destination::Pipe { pipe, .. } = &self.destination {
            event_loop.unwatch(pipe);
        }
        self.destination = Destination::Nowhere;
    }

    /// Whether there is memory to give back soon, see [`Buffer::has_grown`]. Not while input is pending, which may be
    /// for ever.
    pub(super) fn has_grown(&mut self) -> bool {
        self.pending.is_empty() && self.buffer.has_grown()
    }

    /// Gives memory back, or has it given back once nothing is pending.
    pub(super) fn release(&mut self) {
        if self.pending.is_empty() {
            self.buffer.release();
        } else {
            self.buffer.keep();
        }
    }
}
