//! A client of an attach socket: packets of output that begin with their stream, and input as it is.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, SockType, recv, send, shutdown};

use crate::error::{Result, failure};
use crate::socket;

/// The largest packet of output: a byte for the stream, and what is read at once.
const PACKET: usize = 64 << 10;

/// A connection.
#[derive(Debug)]
pub(crate) struct Attach {
    socket: OwnedFd,
    packet: Vec<u8>,
}

/// What came.
#[derive(Debug)]
pub(crate) enum Output<'a> {
    /// Of the process's stdout, or its terminal.
    Stdout(&'a [u8]),
    /// Of its stderr.
    Stderr(&'a [u8]),
    /// Nothing for now.
    Nothing,
    /// Nothing any more.
    End,
}

impl Attach {
    /// Connects.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let socket = socket::connect(path, SockType::SeqPacket).or_else(|error| {
            let at = path.display();
            match error.kind() {
                ErrorKind::NotFound => {
                    failure(format_args!("cannot attach at {at}: the process has ended, more than a second ago"))
                }
                _ => failure(format_args!("cannot attach at {at}: {error}")),
            }
        })?;
        Ok(Self { socket, packet: vec![0; PACKET] })
    }

    /// The next packet, if there is one.
    pub(crate) fn receive(&mut self) -> Result<Output<'_>> {
        loop {
            return match recv(self.socket.as_raw_fd(), &mut self.packet, MsgFlags::empty()) {
                Ok(0) | Err(Errno::ECONNRESET) => Ok(Output::End),
                Ok(length) => match &self.packet[..length] {
                    [2, output @ ..] => Ok(Output::Stdout(output)),
                    [3, output @ ..] => Ok(Output::Stderr(output)),
                    _ => failure("the attach socket sends what is no output"),
                },
                Err(Errno::EAGAIN) => Ok(Output::Nothing),
                Err(Errno::EINTR) => continue,
                Err(error) => failure(format_args!("cannot read the output: {}", error.desc())),
            };
        }
    }

    /// Sends input in one packet; whether it was taken, which it is whole or not at all.
    pub(crate) fn send(&self, input: &[u8]) -> Result<bool> {
        loop {
            return match send(self.socket.as_raw_fd(), input, MsgFlags::MSG_NOSIGNAL) {
                // Once nobody takes input it goes nowhere, as in a terminal that nobody reads.
                Ok(_) | Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(true),
                Err(Errno::EAGAIN) => Ok(false),
                Err(Errno::EINTR) => continue,
                Err(error) => failure(format_args!("cannot send the input: {}", error.desc())),
            };
        }
    }

    /// Ends the input, after all that was sent.
    pub(crate) fn end_input(&self) {
        // Fails only where the other side has closed already.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Write);
    }
}

impl AsFd for Attach {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
