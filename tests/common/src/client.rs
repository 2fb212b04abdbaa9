//! An attach client.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr, connect, recv, send, shutdown, socket,
};

use crate::script::Out;
use crate::wait::{self, Deadline};

/// What a client can receive in one packet.
const PACKET: usize = 8193;

/// A client of the attach socket.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    /// What it has received so far.
    pub output: Output,
}

/// What a client received.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Of stream 2.
    pub stdout: Vec<u8>,
    /// Of stream 3.
    pub stderr: Vec<u8>,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stdout \"{}\", stderr \"{}\"", self.stdout.escape_ascii(), self.stderr.escape_ascii())
    }
}

impl Output {
    /// One of the streams.
    pub fn of(&self, stream: Out) -> &[u8] {
        match stream {
            Out::Stdout => &self.stdout,
            Out::Stderr => &self.stderr,
        }
    }
}

impl Client {
    /// Connects; the path may have any length.
    pub fn connect(path: &Path) -> nix::Result<Self> {
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        let dir = File::open(path.parent().expect("a socket is in a directory")).map_err(|_| nix::Error::ENOENT)?;
        let name = path.file_name().expect("a socket has a name").to_string_lossy().into_owned();
        connect(socket.as_raw_fd(), &UnixAddr::new(&*format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))?)?;
        Ok(Self { socket, output: Output::default() })
    }

    /// Sends input in one packet.
    pub fn send(&self, bytes: &[u8]) {
        let deadline = Deadline::usual();
        while !self.try_send(bytes) {
            wait::writable(&self.socket, deadline, "the monitor to take a client's input");
        }
    }

    /// Sends input in one packet, if the monitor takes it now.
    pub fn try_send(&self, bytes: &[u8]) -> bool {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        match send(self.socket.as_raw_fd(), bytes, flags) {
            // A packet is sent whole.
            Ok(_) => true,
            Err(nix::Error::EAGAIN) => false,
            Err(error) => panic!("a client cannot send: {error}"),
        }
    }

    /// Sends input in packets of 32 KiB.
    pub fn send_all(&self, bytes: &[u8]) {
        bytes.chunks(32 * 1024).for_each(|packet| self.send(packet));
    }

    /// Ends the input.
    pub fn half_close(&self) {
        shutdown(self.socket.as_raw_fd(), Shutdown::Write).expect("a client can end its input");
    }

    /// Receives one packet into the output; false at the end.
    pub fn receive(&mut self) -> bool {
        let mut packet = [0; PACKET];
        wait::readable(&self.socket, Deadline::usual(), "a packet from the monitor, or the end");
        let length = recv(self.socket.as_raw_fd(), &mut packet, MsgFlags::MSG_TRUNC).expect("a client is not reset");
        assert!(length <= PACKET, "a packet of {length} bytes");
        match packet[..length] {
            [] => return false,
            [2, ref bytes @ ..] => self.output.stdout.extend_from_slice(bytes),
            [3, ref bytes @ ..] => self.output.stderr.extend_from_slice(bytes),
            [stream, ..] => panic!("a packet of the stream {stream}"),
        }
        true
    }

    /// Receives until a stream's output so far is as wanted.
    pub fn receive_until(&mut self, stream: Out, what: &str, wanted: impl Fn(&[u8]) -> bool) {
        while !wanted(self.output.of(stream)) {
            let open = self.receive();
            assert!(open, "the client was closed before it had {what}; it had {:?}", self.output);
        }
    }

    /// Receives until this text is in stdout.
    pub fn expect(&mut self, text: &str) {
        let wanted = |output: &[u8]| output.windows(text.len()).any(|window| window == text.as_bytes());
        self.receive_until(Out::Stdout, text, wanted);
    }

    /// Receives to the end, and gives all that came.
    pub fn receive_all(mut self) -> Output {
        while self.receive() {}
        self.output
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
