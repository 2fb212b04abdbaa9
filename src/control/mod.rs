//! The control socket: a varlink service on the shim's own loop.
//!
//! Each connection has its calls answered one after the other. [`Control::next`] hands out what clients ask; the
//! monitor answers, at once or later. Reading ([`frames`], [`call`]) and writing ([`outbox`], [`reply`]) are pure, the
//! sockets are in [`connection`].

mod base64;
mod call;
mod connection;
mod frames;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod idl;
mod outbox;
mod refusal;
pub(crate) mod reply;
mod signallers;
mod socket;

use std::collections::VecDeque;
use std::path::Path;
use std::time::Instant;

use dunnage_runtime::event_loop::{Event, EventLoop, Interest};
use log::{debug, warn};
use serde::Serialize;

pub(crate) use call::{GateAnswer, GenerationRequest, Launch, Request, parse};
pub(crate) use refusal::Refusal;
pub(crate) use signallers::Signallers;

use crate::descriptors;
use crate::error::{Context, Result};
use crate::exec::Captured;
use crate::listener::Listener;
use crate::source::Source;
use connection::Connection;
use outbox::Part;
use refusal::encode_refusal;
use reply::{AtGate, Event as ShimEvent, Executed, Told, encode, encode_executed};
use socket::SocketFile;

/// The interface, described.
pub(crate) const DESCRIPTION: &str = include_str!("org.dunnage.shim.varlink");

/// Varlink's own, described.
const SERVICE_DESCRIPTION: &str = include_str!("org.varlink.service.varlink");

/// How many zombies a status names: of a flood the first will do.
pub(crate) const MAX_ZOMBIES: usize = 100;

/// How many connections there may be: the next one is closed at once.
const MAX_CONNECTIONS: usize = 64;

/// How many calls are handed out in one turn of the loop: the largest takes some milliseconds to read.
const CALLS_PER_TURN: usize = 2;

/// What an interface is, if it is served.
pub(crate) fn description_of(interface: String) -> Result<&'static str, Refusal> {
    match interface.as_str() {
        call::INTERFACE => Ok(DESCRIPTION),
        call::SERVICE => Ok(SERVICE_DESCRIPTION),
        _ => Err(Refusal::InterfaceNotFound { interface }),
    }
}

/// The number of a connection, not used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionId(u32);

/// What clients did.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// One sent a message, which [`parse`] reads. It is to be answered.
    Message(ConnectionId, Vec<u8>),
    /// One is gone, and waits for nothing any more.
    Gone(ConnectionId),
    /// One answers the gate of the start that its own connection waits for, which shuts it.
    AnsweredOwnGate(ConnectionId),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Control {
    file: SocketFile,
    listener: Listener,
    connections: Vec<Connection>,
    next_id: u32,
    gone: VecDeque<ConnectionId>,
    /// How many calls may still be handed out in this turn, and when that began.
    left: usize,
    turn: Instant,
}

impl Control {
    /// Makes the socket at `path` and starts to watch it.
    pub(crate) fn open(event_loop: &EventLoop<Source>, path: &Path, now: Instant) -> Result<Self> {
        let (file, socket) = SocketFile::create(path)?;
        event_loop
            .watch(&socket, Source::ControlListener, Interest::READABLE)
            .context(|| "cannot watch the control socket")?;
        Ok(Self {
            file,
            listener: Listener::new(socket, "control clients"),
            connections: Vec::new(),
            next_id: 0,
            gone: VecDeque::new(),
            left: CALLS_PER_TURN,
            turn: now,
        })
    }

    /// Does what an event asks for.
    // Not inlined into the loop: see `Monitor::serve`.
    #[inline(never)]
    pub(crate) fn handle(&mut self, event_loop: &EventLoop<Source>, event: Event<Source>, now: Instant) {
        match event.source {
            Source::ControlConnection(number) => {
                if let Some(connection) = self.connection(ConnectionId(number)) {
                    connection.handle(event_loop, event, now);
                }
            }
            _ => self.accept(event_loop, now),
        }
    }

    fn accept(&mut self, event_loop: &EventLoop<Source>, now: Instant) {
        for _ in 0..MAX_CONNECTIONS {
            let Some(socket) = self.listener.accept(now) else { return };
            if !socket::is_allowed(&socket) {
                warn!("a user who is neither root nor this shim's own was refused at the control socket");
                continue;
            }
            if self.connections.len() >= MAX_CONNECTIONS || descriptors::is_one_of_the_last(&socket) {
                debug!("{} control connections already: one is refused", self.connections.len());
                continue;
            }
            let connection = Connection::new(ConnectionId(self.next_id), socket);
            // Four billion connections later a number comes again, when nobody remembers the first.
            self.next_id = self.next_id.wrapping_add(1);
            match connection.watch(event_loop) {
                Ok(()) => self.connections.push(connection),
                Err(error) => warn!("cannot watch a control connection, which is closed: {error}"),
            }
        }
        if let Err(error) = event_loop.rearm(&self.listener.socket, Source::ControlListener, Interest::READABLE) {
            warn!("cannot watch the control socket any more: {error}");
        }
    }

    /// What a client did, until nothing is left for this turn.
    pub(crate) fn next(&mut self, event_loop: &EventLoop<Source>, now: Instant) -> Option<Incoming> {
        self.settle(event_loop);
        if let Some(gone) = self.gone.pop_front() {
            return Some(Incoming::Gone(gone));
        }
        if let Some(connection) = self.connections.iter_mut().find_map(|one| one.answers_own_gate().then_some(one.id)) {
            return Some(Incoming::AnsweredOwnGate(connection));
        }
        let ready = self.connections.iter().position(Connection::is_ready);
        let Some(ready) = ready.filter(|_| self.left > 0) else {
            self.left = CALLS_PER_TURN;
            self.turn = now;
            return None;
        };
        self.left -= 1;
        let connection = &mut self.connections[ready];
        let message = connection.take_message()?;
        let id = connection.id;
        // Others have their turn first.
        self.connections[ready..].rotate_left(1);
        Some(Incoming::Message(id, message))
    }

    /// Lets go of connections that are done with.
    fn settle(&mut self, event_loop: &EventLoop<Source>) {
        while let Some(position) = self.connections.iter().position(Connection::is_done) {
            let connection = self.connections.remove(position);
            connection.unwatch(event_loop);
            self.gone.push_back(connection.id);
        }
        if self.connections.is_empty() && self.connections.capacity() > 0 {
            self.connections = Vec::new();
        }
    }

    /// The call just taken from `to` wants no answer.
    pub(crate) fn expect_no_answer(&mut self, to: ConnectionId) {
        if let Some(connection) = self.connection(to) {
            connection.expect_no_answer();
        }
    }

    /// Answers a call.
    pub(crate) fn answer(&mut self, to: ConnectionId, parameters: &impl Serialize, now: Instant) {
        if let Some(connection) = self.connection(to) {
            connection.answer([Part::Text(encode(parameters, false))], now);
        }
    }

    /// Answers an `ExecSync`.
    pub(crate) fn answer_executed(&mut self, to: ConnectionId, executed: &Executed, output: Captured, now: Instant) {
        if let Some(connection) = self.connection(to) {
            connection.answer(encode_executed(executed, output), now);
        }
    }

    /// Answers a call, to be followed by another answer.
    pub(crate) fn go_on(&mut self, to: ConnectionId, parameters: &impl Serialize, now: Instant) {
        if let Some(connection) = self.connection(to) {
            connection.send([Part::Text(encode(parameters, true))], now);
        }
    }

    /// Answers a start's call with the question whether to go on.
    pub(crate) fn ask(&mut self, to: ConnectionId, gate: &AtGate, now: Instant) {
        if let Some(connection) = self.connection(to) {
            connection.ask([Part::Text(encode(gate, true))], now);
        }
    }

    /// Answers a call with an error.
    pub(crate) fn refuse(&mut self, to: ConnectionId, refusal: &Refusal, now: Instant) {
        if let Some(connection) = self.connection(to) {
            connection.answer([Part::Text(encode_refusal(refusal))], now);
        }
    }

    /// Answers a call with all events from now on.
    pub(crate) fn subscribe(&mut self, to: ConnectionId, now: Instant) {
        if let Some(connection) = self.connection(to) {
            connection.subscribe(now);
        }
    }

    /// Closes the connection of a client that does not speak the protocol.
    pub(crate) fn close_connection(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connection(id) {
            connection.close("what it sent is no call");
        }
    }

    /// Tells all subscribers.
    pub(crate) fn tell(&mut self, event: ShimEvent, now: Instant) {
        if self.connections.iter().any(Connection::is_subscribed) {
            let message = encode(&Told { event }, true);
            for connection in &mut self.connections {
                connection.tell(&message, now);
            }
        }
    }

    /// When to call [`Control::handle_timeout`].
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let connections = self.connections.iter().filter_map(Connection::next_timeout).min();
        // At once, for calls that were left and for those whose turn came with the answer to the last.
        let more = self.connections.iter().any(Connection::wants_a_turn);
        [connections, self.listener.next_timeout(), more.then_some(self.turn)].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, event_loop: &EventLoop<Source>, now: Instant) {
        if self.listener.next_timeout().is_some_and(|when| when <= now) {
            self.accept(event_loop, now);
        }
        for connection in &mut self.connections {
            connection.handle_timeout(now);
        }
    }

    /// Whether all answers given are with their clients.
    pub(crate) fn flushed(&self) -> bool {
        self.connections.iter().all(Connection::has_everything)
    }

    /// Removes the socket and closes all connections.
    pub(crate) fn close(mut self, event_loop: &EventLoop<Source>) {
        self.file.remove();
        event_loop.unwatch(&self.listener.socket);
        for connection in &self.connections {
            connection.unwatch(event_loop);
        }
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.id == id)
    }
}
