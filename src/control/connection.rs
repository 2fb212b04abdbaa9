//! One client of the control socket: what it asks, one call after the other, and what it has still to get.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use dunnage_runtime::event_loop::{Event, EventLoop, Interest};
use log::{debug, error};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};

use super::ConnectionId;
use super::call::{GenerationRequest, Request, parse};
use super::frames::Frames;
use super::outbox::{Outbox, Part};
use super::reply::{Event as ShimEvent, EventKind, Told, encode};
use crate::source::Source;

/// How much is read at once, and how often in one turn.
const READ_SIZE: usize = 4 << 10;
const READS_PER_TURN: usize = 32;

/// How much is sent in one turn, before others have theirs.
const SENT_PER_TURN: usize = 256 << 10;

/// What may wait for a subscriber. What happens while there is no room it misses.
const EVENTS_MAX: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    socket: OwnedFd,
    frames: Frames,
    outbox: Outbox,
    ongoing: Ongoing,
    client: Client,
    /// A start waits for its gate's answer, and no message has come since.
    at_gate: bool,
    /// There is more to send than one turn takes.
    sends_more: bool,
    /// It is to be closed.
    closed: bool,
}

/// What can come from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// Calls.
    Sends,
    /// Nothing more, but it may wait for answers.
    Listens,
    /// It has closed its socket. Calls that it had sent are carried out.
    Departed,
}

/// The call that is being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ongoing {
    /// None is.
    Nothing,
    /// One is, which may want no answer.
    Call { oneway: bool },
    /// Events are told, but for so many that there was no room for.
    Events { missed: u64 },
}

impl Connection {
    pub(super) fn new(id: ConnectionId, socket: OwnedFd) -> Self {
        Self {
            id,
            socket,
            frames: Frames::default(),
            outbox: Outbox::default(),
            ongoing: Ongoing::Nothing,
            client: Client::Sends,
            at_gate: false,
            sends_more: false,
            closed: false,
        }
    }

    /// Starts to watch it.
    pub(super) fn watch(&self, event_loop: &EventLoop<Source>) -> std::io::Result<()> {
        event_loop.watch(&self.socket, self.source(), Interest::READABLE | Interest::WRITABLE)
    }

    fn source(&self) -> Source {
        Source::ControlConnection(self.id.0)
    }

    /// Does what an event asks for.
    pub(super) fn handle(&mut self, event_loop: &EventLoop<Source>, event: Event<Source>, now: Instant) {
        if event.writable {
            self.flush(now);
        }
        if event.readable {
            self.read(event_loop, now);
        }
    }

    fn read(&mut self, event_loop: &EventLoop<Source>, now: Instant) {
        let mut bytes = [0; READ_SIZE];
        for _ in 0..READS_PER_TURN {
            if self.closed {
                return;
            }
            match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => {
                    self.client = if self.peer_is_gone() { Client::Departed } else { Client::Listens };
                    return;
                }
                Ok(len) => {
                    if let Err(violation) = self.frames.push(&bytes[..len], now) {
                        self.close(&format!("{violation:?}"));
                    }
                }
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => {}
                Err(error) => self.close(error.desc()),
            }
        }
        if let Err(error) = event_loop.rearm(&self.socket, self.source(), Interest::READABLE | Interest::WRITABLE) {
            error!("cannot watch a control connection any more: {error}");
            self.closed = true;
        }
    }

    /// Whether the client has closed its socket, and not only ended its half.
    fn peer_is_gone(&self) -> bool {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO).unwrap_or(0) > 0
    }

    /// Sends what the client takes now.
    fn flush(&mut self, now: Instant) {
        let mut left = SENT_PER_TURN;
        self.sends_more = false;
        while !self.outbox.is_empty() && !self.closed {
            if left == 0 {
                self.sends_more = true;
                return;
            }
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            match send(self.socket.as_raw_fd(), self.outbox.unsent(), flags) {
                Ok(len) => {
                    self.outbox.advance(len);
                    left = left.saturating_sub(len);
                }
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => {
                    self.outbox.stall(now);
                    return;
                }
                Err(Errno::EINTR) => {}
                Err(error) => self.close(error.desc()),
            }
        }
        if let Ongoing::Events { missed: 1.. } = self.ongoing {
            self.tell_missed(now);
        }
    }

    /// The next call, once the last was answered and the client has the answer.
    pub(super) fn take_message(&mut self) -> Option<Vec<u8>> {
        if !self.is_ready() {
            return None;
        }
        self.ongoing = Ongoing::Call { oneway: false };
        self.frames.take()
    }

    /// Whether there is a call to be answered now.
    pub(super) fn is_ready(&self) -> bool {
        self.ongoing == Ongoing::Nothing && self.outbox.is_empty() && !self.closed && self.frames.have_message()
    }

    /// The call that was taken wants no answer.
    pub(super) fn expect_no_answer(&mut self) {
        self.ongoing = Ongoing::Call { oneway: true };
    }

    /// Answers the call.
    pub(super) fn answer(&mut self, message: impl IntoIterator<Item = Part>, now: Instant) {
        self.send(message, now);
        self.ongoing = Ongoing::Nothing;
    }

    /// Answers the call, to be followed by another answer.
    pub(super) fn send(&mut self, message: impl IntoIterator<Item = Part>, now: Instant) {
        self.at_gate = false;
        if self.ongoing == (Ongoing::Call { oneway: false }) {
            self.outbox.push(message);
            self.flush(now);
        }
    }

    /// Answers the call with the question whether to go on.
    pub(super) fn ask(&mut self, message: impl IntoIterator<Item = Part>, now: Instant) {
        self.send(message, now);
        self.at_gate = true;
    }

    /// Whether its own next call, which waits for the start to be over, is the gate's answer. Looked at once: calls are
    /// in order, so that what is next stays next.
    pub(super) fn answers_own_gate(&mut self) -> bool {
        if !self.at_gate {
            return false;
        }
        let Some(message) = self.frames.peek() else { return false };
        self.at_gate = false;
        let request = parse(message).and_then(|call| call.request.ok());
        matches!(request, Some(Request::Generations(GenerationRequest::AnswerGate { .. })))
    }

    /// From now on the call is answered with events.
    pub(super) fn subscribe(&mut self, now: Instant) {
        match self.ongoing {
            Ongoing::Call { oneway: false } => {
                self.ongoing = Ongoing::Events { missed: 0 };
                self.tell(&encode(&Told { event: ShimEvent::now(EventKind::Subscribed) }, true), now);
            }
            // Events that nobody is to hear.
            _ => self.ongoing = Ongoing::Nothing,
        }
    }

    /// Tells a subscriber of an event, or remembers that it missed one.
    pub(super) fn tell(&mut self, message: &[u8], now: Instant) {
        if let Ongoing::Events { missed: 1.. } = self.ongoing {
            self.tell_missed(now);
        }
        let Ongoing::Events { missed } = &mut self.ongoing else { return };
        if *missed == 0 && self.outbox.len() + message.len() < EVENTS_MAX {
            self.outbox.push([Part::Text(message.to_vec())]);
            self.flush(now);
        } else {
            *missed += 1;
        }
    }

    /// Tells a subscriber that it missed something, once it has got all that it did not miss.
    fn tell_missed(&mut self, now: Instant) {
        let Ongoing::Events { missed } = self.ongoing else { return };
        if !self.outbox.is_empty() {
            return;
        }
        self.ongoing = Ongoing::Events { missed: 0 };
        let event = ShimEvent { count: Some(missed), ..ShimEvent::now(EventKind::Missed) };
        self.outbox.push([Part::Text(encode(&Told { event }, true))]);
        self.flush(now);
    }

    pub(super) fn is_subscribed(&self) -> bool {
        matches!(self.ongoing, Ongoing::Events { .. })
    }

    /// When [`Connection::handle_timeout`] is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        // A subscriber that does not read misses events, and that is all.
        let stall = self.outbox.deadline().filter(|_| !self.is_subscribed());
        [self.frames.deadline(), stall].into_iter().flatten().min()
    }

    /// Whether it has work that waits for no event.
    pub(super) fn wants_a_turn(&self) -> bool {
        self.is_ready() || self.is_done() || self.sends_more || (self.at_gate && self.frames.have_message())
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.sends_more {
            self.flush(now);
        }
        if self.next_timeout().is_some_and(|when| when <= now) {
            self.close("it took too long to send a call or to take an answer");
        }
    }

    /// Closes it for a reason that is not the client's wish.
    pub(super) fn close(&mut self, reason: &str) {
        debug!("control connection {} is closed: {reason}", self.id.0);
        self.closed = true;
    }

    /// Whether nothing is left to do with it.
    pub(super) fn is_done(&self) -> bool {
        let answered = self.ongoing == Ongoing::Nothing && self.outbox.is_empty() && !self.frames.have_message();
        match self.client {
            _ if self.closed => true,
            Client::Sends => false,
            Client::Listens => answered,
            Client::Departed => answered || self.ongoing != Ongoing::Nothing,
        }
    }

    /// Whether the client has all that it should get: an answer is not on its way.
    pub(super) fn has_everything(&self) -> bool {
        self.outbox.is_empty()
    }

    pub(super) fn unwatch(&self, event_loop: &EventLoop<Source>) {
        event_loop.unwatch(&self.socket);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use serde_json::{Value, json};

    use super::*;
    use crate::control::frames::MESSAGE_TIME;
    use crate::control::outbox::STALL_TIME;
    use crate::control::reply::Done;

    struct Pair {
        event_loop: EventLoop<Source>,
        connection: Connection,
        client: UnixStream,
        now: Instant,
    }

    impl Pair {
        fn new() -> Self {
            let event_loop = EventLoop::new().expect("an event loop");
            let (ours, client) = UnixStream::pair().expect("a pair of sockets");
            client.set_nonblocking(true).expect("nonblocking");
            let connection = Connection::new(ConnectionId(3), ours.into());
            connection.watch(&event_loop).expect("watch");
            Self { event_loop, connection, client, now: Instant::now() }
        }

        fn turn(&mut self) {
            let event = Event { source: self.connection.source(), readable: true, writable: true };
            self.connection.handle(&self.event_loop, event, self.now);
        }

        fn received(&mut self) -> Vec<Value> {
            let mut bytes = Vec::new();
            // Ends with an error where there is nothing for now.
            let _ = self.client.read_to_end(&mut bytes);
            let messages = bytes.split(|&byte| byte == 0).filter(|message| !message.is_empty());
            messages.map(|message| serde_json::from_slice(message).expect("JSON")).collect()
        }
    }

    #[test]
    fn calls_are_answered_one_after_the_other() {
        let mut pair = Pair::new();
        pair.client.write_all(b"1\x002\0").expect("write");
        pair.turn();
        assert_eq!(pair.connection.take_message(), Some(b"1".to_vec()));
        assert_eq!(pair.connection.take_message(), None);
        pair.connection.answer([Part::Text(encode(&Done {}, false))], pair.now);
        assert_eq!(pair.received(), [json!({"parameters": {}})]);
        assert_eq!(pair.connection.take_message(), Some(b"2".to_vec()));
        pair.connection.expect_no_answer();
        pair.connection.answer([Part::Text(encode(&Done {}, false))], pair.now);
        assert!(pair.received().is_empty());
        assert!(!pair.connection.is_done());
        drop(pair.client);
        let event = Event { source: pair.connection.source(), readable: true, writable: true };
        pair.connection.handle(&pair.event_loop, event, pair.now);
        assert!(pair.connection.is_done());
    }

    #[test]
    fn g6_a_gates_answer_on_the_starts_own_connection_is_seen_though_its_turn_has_not_come() {
        let answer = br#"{"method": "org.dunnage.shim.AnswerGate", "parameters": {"token": "t", "proceed": true}}"#;
        let other = br#"{"method": "org.dunnage.shim.Status"}"#;
        for (queued, own) in [(answer.as_slice(), true), (other.as_slice(), false), (b"{", false)] {
            let mut pair = Pair::new();
            pair.client.write_all(&[b"1\0", queued, b"\0"].concat()).expect("write");
            pair.turn();
            pair.connection.take_message();
            assert!(!pair.connection.answers_own_gate(), "nobody has asked");
            pair.connection.ask([Part::Text(encode(&Done {}, true))], pair.now);
            assert!(pair.connection.wants_a_turn());
            assert_eq!(pair.connection.answers_own_gate(), own);
            assert!(!pair.connection.answers_own_gate() && !pair.connection.wants_a_turn(), "once");
            // What was asked next is answered next.
            pair.connection.answer([Part::Text(encode(&Done {}, false))], pair.now);
            assert_eq!(pair.received().len(), 2);
            assert_eq!(pair.connection.take_message().as_deref(), Some(queued));
        }
    }

    #[test]
    fn g6_a_start_that_goes_on_is_at_no_gate() {
        let mut pair = Pair::new();
        pair.client.write_all(b"1\0").expect("write");
        pair.turn();
        pair.connection.take_message();
        pair.connection.ask([Part::Text(encode(&Done {}, true))], pair.now);
        pair.connection.send([Part::Text(encode(&Done {}, true))], pair.now);
        let late = br#"{"method": "org.dunnage.shim.AnswerGate", "parameters": {"token": "t", "proceed": false}}"#;
        pair.client.write_all(&[late.as_slice(), b"\0"].concat()).expect("write");
        pair.turn();
        assert!(!pair.connection.answers_own_gate());
    }

    #[test]
    fn k2_a_subscriber_that_does_not_read_misses_events_and_is_told_how_many() {
        let mut pair = Pair::new();
        pair.client.write_all(b"1\0").expect("write");
        pair.turn();
        pair.connection.take_message();
        pair.connection.subscribe(pair.now);
        let event = Told { event: ShimEvent::now(EventKind::OrphanSwept) };
        let message = encode(&event, true);
        let count = 100_000;
        for _ in 0..count {
            pair.connection.tell(&message, pair.now);
        }
        assert!(pair.connection.outbox.len() <= EVENTS_MAX);
        assert_eq!(pair.connection.next_timeout(), None);

        let mut heard = Vec::new();
        loop {
            let received = pair.received();
            if received.is_empty() {
                break;
            }
            heard.extend(received);
            pair.turn();
        }
        let missed = heard.pop().expect("messages");
        assert_eq!(missed["parameters"]["event"]["kind"], "missed");
        let told = heard.len() as u64 - 1;
        assert_eq!(missed["parameters"]["event"]["count"], count - told, "of {count}, {told} were told");
        // From there on it hears of everything again.
        pair.connection.tell(&message, pair.now);
        assert_eq!(pair.received()[0]["parameters"]["event"]["kind"], "orphan_swept");
    }

    #[test]
    fn k2_a_client_that_takes_no_answer_is_closed_in_time() {
        let mut pair = Pair::new();
        pair.client.write_all(b"1\0").expect("write");
        pair.turn();
        pair.connection.take_message();
        pair.connection.answer([Part::base64(vec![0; 8 << 20])], pair.now);
        // One turn sends what one turn may.
        while pair.connection.sends_more {
            pair.connection.handle_timeout(pair.now);
        }
        assert_eq!(pair.connection.next_timeout(), Some(pair.now + STALL_TIME));
        pair.connection.handle_timeout(pair.now + STALL_TIME / 2);
        assert!(!pair.connection.is_done());
        pair.connection.handle_timeout(pair.now + STALL_TIME);
        assert!(pair.connection.is_done());
    }

    #[test]
    fn k2_a_message_that_does_not_end_closes_its_connection() {
        let mut pair = Pair::new();
        pair.client.write_all(b"{").expect("write");
        pair.turn();
        pair.connection.handle_timeout(pair.now + MESSAGE_TIME);
        assert!(pair.connection.is_done());
    }
}
