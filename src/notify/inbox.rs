//! A socket that processes notify: what arrives there, and what of it may pass.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use dunnage_runtime::{privileges, sys};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, UnixAddr, sendto};

use super::filter::filter;

/// The longest message that systemd takes.
pub(crate) const MAX_MESSAGE: usize = 4096;

/// Room for one message, and for a byte more, which tells that it was cut.
pub(crate) type Buffer = [u8; MAX_MESSAGE + 1];

/// The socket, bound and nonblocking.
#[derive(Debug)]
pub(crate) struct Inbox(pub(crate) OwnedFd);

/// What arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived<'a> {
    /// These lines may pass.
    Message(&'a [u8]),
    /// It is too long for systemd.
    TooLong,
    /// No line may pass.
    Nothing,
}

impl Inbox {
    /// The next message; nothing for now is `WouldBlock`.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut Buffer) -> io::Result<Arrived<'a>> {
        // Descriptors are closed at once: the closing tells systemd-notify that its message has arrived.
        let (length, _) = sys::receive_fds(&self.0, buffer)?;
        if length > MAX_MESSAGE {
            return Ok(Arrived::TooLong);
        }
        Ok(match filter(&mut buffer[..length]) {
            b"" => Arrived::Nothing,
            message => Arrived::Message(message),
        })
    }

    /// Passes a message on to the host.
    pub(crate) fn send(&self, message: &[u8], host: &UnixAddr) -> Result<(), Errno> {
        // It may be another user's socket.
        let _raised = privileges::raise();
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        sendto(self.0.as_raw_fd(), message, host, flags).map(drop)
    }
}
