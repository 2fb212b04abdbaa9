//! The way to the journal.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use dunnage_runtime::event_loop::{EventLoop, Interest};
use dunnage_runtime::privileges;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, sendmsg, socket};

use crate::source::Source;

/// A socket for datagrams, connected when there is something to send, so that the kernel can say when a full one has
/// room again.
pub(super) struct Socket {
    address: UnixAddr,
    connection: Option<OwnedFd>,
    /// The loop tells when the connection has room.
    watched: bool,
}

impl Socket {
    /// Sends to what listens at `path`, if anything does by then.
    pub(super) fn new(path: &Path) -> nix::Result<Self> {
        Ok(Self { address: UnixAddr::new(path)?, connection: None, watched: false })
    }

    pub(super) fn connection(&self) -> Option<&OwnedFd> {
        self.connection.as_ref()
    }

    /// Sends one datagram or none, at once. A journald that was restarted is found again.
    pub(super) fn send(&mut self, parts: &[IoSlice<'_>]) -> nix::Result<()> {
        if let Some(connection) = &self.connection {
            match send(connection, parts) {
                // Whoever listened there does not any more.
                Err(Errno::ECONNREFUSED | Errno::ECONNRESET | Errno::ENOTCONN | Errno::EPIPE) => {}
                result => return result,
            }
        }
        (self.connection, self.watched) = (None, false);
        send(self.connection.insert(self.connect()?), parts)
    }

    /// Has the loop tell when there is room, or not any more.
    pub(super) fn watch(&mut self, event_loop: &EventLoop<Source>, watch: bool) {
        let Some(connection) = self.connection.as_ref().filter(|_| watch != self.watched) else { return };
        if !watch {
            event_loop.unwatch(connection);
        } else if let Err(error) = event_loop.watch(connection, Source::Journal, Interest::WRITABLE) {
            // The deadline is left.
            log::warn!("cannot watch the journal's socket: {error}");
        }
        self.watched = watch;
    }

    fn connect(&self) -> nix::Result<OwnedFd> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
        let _raised = privileges::raise();
        connect(socket.as_raw_fd(), &self.address)?;
        Ok(socket)
    }
}

fn send(connection: &OwnedFd, parts: &[IoSlice<'_>]) -> nix::Result<()> {
    loop {
        match sendmsg::<()>(connection.as_raw_fd(), parts, &[], MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            result => return result.map(drop),
        }
    }
}
