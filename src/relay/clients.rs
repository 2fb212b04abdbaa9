//! Attach clients: who gets which output, and what those that are slow have still to get.
//!
//! A client that has all there is gets new output straight from the buffer it was read into. One whose socket is full
//! falls behind: it has a position in a [`Ring`] that all such clients share, and gets the rest from there, packet by
//! packet, as it takes it.

use std::io::IoSlice;
use std::mem;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use dunnage_runtime::event_loop::{EventLoop, Interest};
use log::{debug, warn};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, recv, sendmsg, shutdown};

use super::rearm;
use super::ring::{self, Position, Ring};
use crate::descriptors;
use crate::source::{RelaySource, Source, Target};
use crate::stream::Stream;

/// How many clients there can be: fewer where descriptors are few.
pub(super) const MAX_CLIENTS: usize = 128;

/// All that slow clients together may have still to get.
const RING_CAPACITY: NonZeroUsize = NonZeroUsize::new(4 << 20).unwrap();

/// What is kept free for the container's end, when its output is read whatever the clients do: two pipes of the
/// largest size that a user can give them (`/proc/sys/fs/pipe-max-size`), and the packets' headers.
const RESERVE: usize = 2 * (1 << 20) + (64 << 10);

/// How many packets a client gets in one turn, before others have theirs.
const PACKETS_PER_TURN: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Clients {
    target: Target,
    list: Vec<Client>,
    next_id: u32,
    /// There since a client was behind; see [`Clients::release`].
    ring: Option<Ring>,
    /// The ring keeps all output for the first client, which has not come yet.
    first_awaited: bool,
    /// Refusals are told once, until there is room again.
    refusing: bool,
}

#[derive(Debug)]
struct Client {
    target: Target,
    id: u32,
    socket: OwnedFd,
    sends_input: bool,
    reception: Reception,
}

/// How far a client is with the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reception {
    /// It has all there is.
    CaughtUp,
    /// It gets its next packet from the ring.
    Behind {
        at: Position,
        /// When it last took a packet, or fell behind.
        since: Instant,
    },
    /// It takes no output any more.
    Gone,
}

/// What became of a packet.
enum Sent {
    Whole,
    SocketFull,
    NobodyThere,
}

impl Clients {
    /// Nobody, so far, who takes the output of `target`.
    pub(super) fn new(target: Target) -> Self {
        Self { target, list: Vec::new(), next_id: 0, ring: None, first_awaited: false, refusing: false }
    }

    /// Keeps all output, from the first on, until there is a client.
    pub(super) fn keep_for_the_first(&mut self) {
        self.first_awaited = true;
    }

    /// Keeps nothing any longer for a client yet to come.
    pub(super) fn await_nobody(&mut self, event_loop: &EventLoop<Source>) {
        self.first_awaited = false;
        self.settle(event_loop);
        self.release();
    }

    /// Where a client begins that comes now.
    fn next_reception(&mut self, now: Instant) -> Reception {
        if mem::take(&mut self.first_awaited) && self.ring.is_some() {
            Reception::Behind { at: Position::default(), since: now }
        } else {
            Reception::CaughtUp
        }
    }

    /// Takes a client in. It gets what is read from now on, or what was kept for it; one too many is closed at once.
    pub(super) fn add(&mut self, event_loop: &EventLoop<Source>, socket: OwnedFd, now: Instant) {
        if !self.has_place_for(&socket) {
            self.make_room(event_loop);
        }
        if !self.has_place_for(&socket) {
            if !mem::replace(&mut self.refusing, true) {
                warn!("{} attach clients already: more are refused", self.list.len());
            }
            return;
        }
        self.refusing = false;
        // Four billion clients later a number comes again, when nobody remembers the first.
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let reception = self.next_reception(now);
        let client = Client { target: self.target, id, socket, sends_input: true, reception };
        match event_loop.watch(&client.socket, client.source(), client.interest()) {
            Ok(()) => self.list.push(client),
            Err(error) => warn!("cannot watch an attach client, which is closed: {error}"),
        }
    }

    /// Whether the ring has room for one more read of each stream, with the reserve untouched.
    pub(super) fn have_room(&self) -> bool {
        self.ring.as_ref().is_none_or(|ring| ring.room() > RESERVE + 2 * super::READ_SIZE.get())
    }

    /// Sends output that was read just now, or keeps it for those that cannot take it yet.
    pub(super) fn deliver(&mut self, event_loop: &EventLoop<Source>, stream: Stream, output: &[u8], now: Instant) {
        if self.list.is_empty() && !self.first_awaited {
            return;
        }
        let start = self.ring.as_ref().map_or_else(Position::default, Ring::end);
        for client in &mut self.list {
            client.send_fresh(event_loop, stream, output, start, now);
        }
        if self.first_awaited || self.list.iter().any(Client::is_behind) {
            self.keep(event_loop, stream, output);
        }
        self.settle(event_loop);
    }

    /// Puts output into the ring. Live output always has room there (see [`Clients::have_room`]); at the container's
    /// end, where nothing waits, clients that are too far behind for it are given up.
    fn keep(&mut self, event_loop: &EventLoop<Source>, stream: Stream, output: &[u8]) {
        if self.ring.is_none() {
            self.ring =
                Ring::new(RING_CAPACITY).map_err(|error| warn!("no memory for slow attach clients: {error}")).ok();
        }
        while !self.ring.as_mut().is_some_and(|ring| ring.push(stream, output)) {
            let Some((slowest, _)) = self.slowest() else {
                self.first_awaited = false;
                return;
            };
            self.cut(event_loop, slowest, "there is no room for the output it has still to get");
        }
    }

    /// Sends a client what its socket has room for now.
    pub(super) fn flush(&mut self, event_loop: &EventLoop<Source>, id: u32, now: Instant) {
        if let (Some(client), Some(ring)) = (self.list.iter_mut().find(|client| client.id == id), &self.ring) {
            client.catch_up(event_loop, ring, now);
            self.settle(event_loop);
        }
    }

    /// Whether nobody has anything still to get. Who is awaited finds at least the end: it cannot know, where nobody
    /// listens, that there was no output.
    pub(super) fn have_everything(&self) -> bool {
        self.list.iter().all(|client| !client.is_behind()) && !self.first_awaited
    }

    /// The client that holds up the others: which one, and since when it took nothing.
    pub(super) fn slowest(&self) -> Option<(u32, Instant)> {
        let behind = self.list.iter().filter_map(|client| match client.reception {
            Reception::Behind { at, since } => Some((at, since, client.id)),
            Reception::CaughtUp | Reception::Gone => None,
        });
        behind.min().map(|(_, since, id)| (id, since))
    }

    /// Gives a client up, for a reason that its user may want to know.
    pub(super) fn cut(&mut self, event_loop: &EventLoop<Source>, id: u32, reason: &str) {
        warn!("attach client {id} is closed: {reason}");
        if let Some(client) = self.list.iter_mut().find(|client| client.id == id) {
            client.sends_input = false;
            client.reception = Reception::Gone;
        }
        self.settle(event_loop);
    }

    /// The socket to read a client's input from, unless that has ended.
    pub(super) fn input_of(&self, id: u32) -> Option<&OwnedFd> {
        self.list.iter().find(|client| client.id == id && client.sends_input).map(|client| &client.socket)
    }

    /// A client's input has ended; it goes on to get output.
    pub(super) fn end_input(&mut self, event_loop: &EventLoop<Source>, id: u32) {
        if let Some(client) = self.list.iter_mut().find(|client| client.id == id) {
            client.sends_input = false;
            // An empty packet looks like an end: who sent one by mistake is told at the next.
            let _ = shutdown(client.socket.as_raw_fd(), Shutdown::Read);
        }
        let _ = self.notice_departure(event_loop, id);
    }

    /// Closes a client that is not there any more, unless it left input behind. Whether that ends its input.
    pub(super) fn notice_departure(&mut self, event_loop: &EventLoop<Source>, id: u32) -> bool {
        let Some(client) = self.list.iter_mut().find(|client| client.id == id) else { return false };
        if !client.is_departed() || client.sends_input && client.has_input() {
            return false;
        }
        let ends_input = mem::take(&mut client.sends_input);
        client.reception = Reception::Gone;
        self.settle(event_loop);
        ends_input
    }

    /// Gives up a client that is not there any more, with the input it left behind, which the container does not take:
    /// so that one who is there gets its place.
    fn make_room(&mut self, event_loop: &EventLoop<Source>) {
        if let Some(client) = self.list.iter().find(|client| client.is_departed()) {
            self.cut(event_loop, client.id, "it is gone, and the container did not take its input");
        }
    }

    fn has_place_for(&self, socket: &OwnedFd) -> bool {
        self.list.len() < MAX_CLIENTS && !descriptors::is_one_of_the_last(socket)
    }

    /// Has the kernel report a client again if it sent more.
    pub(super) fn rearm(&self, event_loop: &EventLoop<Source>, id: u32) {
        if let Some(client) = self.list.iter().find(|client| client.id == id) {
            client.rearm(event_loop);
        }
    }

    /// Whether there is memory to give back soon. A client that falls behind does so again and again: each time a new ring
    /// would have to be faulted in.
    pub(super) fn has_grown(&self) -> bool {
        self.ring.as_ref().is_some_and(Ring::is_empty)
    }

    /// Gives it back.
    pub(super) fn release(&mut self) {
        self.ring.take_if(|ring| ring.is_empty());
    }

    /// Closes all.
    pub(super) fn close(&mut self, event_loop: &EventLoop<Source>) {
        for client in mem::take(&mut self.list) {
            client.close(event_loop);
        }
        self.ring = None;
    }

    /// Lets go of clients that are done with, and of output that all have.
    fn settle(&mut self, event_loop: &EventLoop<Source>) {
        while let Some(index) = self.list.iter().position(Client::is_done) {
            self.list.swap_remove(index).close(event_loop);
        }
        let first_needed = self.list.iter().filter_map(|client| match client.reception {
            Reception::Behind { at, .. } => Some(at),
            Reception::CaughtUp | Reception::Gone => None,
        });
        let first_needed = first_needed.chain(self.first_awaited.then(Position::default)).min();
        match (first_needed, &mut self.ring) {
            (Some(at), Some(ring)) => ring.forget_before(at),
            (None, Some(ring)) => ring.clear(),
            (_, None) => {}
        }
    }
}

impl Client {
    fn source(&self) -> Source {
        Source::Relay(self.target, RelaySource::Client(self.id))
    }

    fn interest(&self) -> Interest {
        // Room in the socket is news only to a client that waits for it; to others it would be an event per packet.
        if self.is_behind() { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE }
    }

    fn rearm(&self, event_loop: &EventLoop<Source>) {
        rearm(event_loop, &self.socket, self.source(), self.interest());
    }

    fn is_behind(&self) -> bool {
        matches!(self.reception, Reception::Behind { .. })
    }

    fn is_done(&self) -> bool {
        !self.sends_input && self.reception == Reception::Gone
    }

    /// Sends output that is not in the ring, where it would begin at `at`.
    fn send_fresh(
        &mut self,
        event_loop: &EventLoop<Source>,
        stream: Stream,
        output: &[u8],
        mut at: Position,
        now: Instant,
    ) {
        if self.reception != Reception::CaughtUp {
            return;
        }
        for payload in ring::payloads(output) {
            match self.send(stream, (payload, &[])) {
                Sent::Whole => at = at.after(payload),
                Sent::SocketFull => {
                    self.reception = Reception::Behind { at, since: now };
                    self.rearm(event_loop);
                    return;
                }
                Sent::NobodyThere => {
                    self.reception = Reception::Gone;
                    return;
                }
            }
        }
    }

    /// Sends from the ring.
    fn catch_up(&mut self, event_loop: &EventLoop<Source>, ring: &Ring, now: Instant) {
        for _ in 0..PACKETS_PER_TURN {
            let Reception::Behind { at, .. } = self.reception else { return };
            let Some(packet) = ring.packet(at) else {
                self.reception = Reception::CaughtUp;
                self.rearm(event_loop);
                return;
            };
            match self.send(packet.stream, packet.payload) {
                Sent::Whole => self.reception = Reception::Behind { at: packet.next, since: now },
                Sent::SocketFull => return,
                Sent::NobodyThere => self.reception = Reception::Gone,
            }
        }
        self.rearm(event_loop);
    }

    fn send(&self, stream: Stream, (head, tail): (&[u8], &[u8])) -> Sent {
        let tag = [stream.packet_tag()];
        let packet = [IoSlice::new(&tag), IoSlice::new(head), IoSlice::new(tail)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        loop {
            match sendmsg::<()>(self.socket.as_raw_fd(), &packet, &[], flags, None) {
                Ok(_) => return Sent::Whole,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => return Sent::SocketFull,
                Err(error) => {
                    debug!("attach client {} takes no more output: {error}", self.id);
                    return Sent::NobodyThere;
                }
            }
        }
    }

    /// Whether the client closed its socket: one that only ended its half still waits for output.
    fn is_departed(&self) -> bool {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::empty())];
        let ready = poll(&mut fds, PollTimeout::ZERO).unwrap_or(0);
        ready > 0 && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
    }

    /// Whether there is a packet to read.
    fn has_input(&self) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
        loop {
            match recv(self.socket.as_raw_fd(), &mut [0], flags) {
                // The client is gone with output unread, which is told once.
                Err(Errno::EINTR | Errno::ECONNRESET) => {}
                result => return result.is_ok_and(|len| len > 0),
            }
        }
    }

    fn close(self, event_loop: &EventLoop<Source>) {
        event_loop.unwatch(&self.socket);
        // To a client whose input lies unread a close is an error (ECONNRESET), which it would see before the last of
        // the output. So its input is thrown away first; what it sends from now on is refused.
        let socket = self.socket.as_raw_fd();
        let _ = shutdown(socket, Shutdown::Read);
        while recv(socket, &mut [0], MsgFlags::MSG_DONTWAIT).is_ok_and(|len| len > 0) {}
    }
}

#[cfg(test)]
impl Clients {
    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    pub(super) fn accepted(&self) -> u32 {
        self.next_id
    }

    pub(super) fn have_ring(&self) -> bool {
        self.ring.is_some()
    }

    pub(super) fn keep_output(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| !ring.is_empty())
    }
}
