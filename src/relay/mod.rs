//! Moves bytes between the container's standard streams, the log and attach clients.
//!
//! Output is read into one buffer and goes from there to the log and to each client ([`clients`]). Input goes from one
//! client at a time to the container ([`input`]). Whatever is full makes its sources wait, never the loop: each turn
//! does a bounded amount of work, and has the kernel report the rest again.

mod attach;
mod clients;
mod fifo;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod input;
mod output;
mod ring;
mod sink;
mod streams;
mod tail;

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use dunnage_runtime::event_loop::{Event, EventLoop, Interest};
use dunnage_runtime::sys;
use log::{error, warn};
use nix::sys::termios::{OutputFlags, SetArg, tcgetattr, tcsetattr};

pub(crate) use attach::AttachSocket;
pub(crate) use fifo::{ControlFifo, Fifo, Request};
pub(crate) use sink::Sink;
pub(crate) use streams::ChildStdio;

use self::clients::{Clients, MAX_CLIENTS};
use self::input::{Input, Received};
use self::output::{Chunk, Kind, Output, Outputs};
use self::streams::{Streams, set_nonblocking};
use self::tail::Tail;
use crate::buffer::Buffer;
use crate::cli::Stdio;
use crate::listener::Listener;
use crate::source::{RelaySource, Source, Target};
use crate::stream::Stream;

/// The most that is read of a stream at once: what a pipe holds, unless it was made larger.
const READ_SIZE: NonZeroUsize = NonZeroUsize::new(64 << 10).unwrap();

/// How many full reads a stream gets in one turn, before others have theirs.
const READS_PER_TURN: usize = 4;

/// How many packets of input are taken in one turn.
const INPUT_PER_TURN: usize = 16;

/// How long large buffers are kept for more of the same. Given back between two bursts, they would only be faulted in
/// again.
const IDLE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Relay {
    target: Target,
    outputs: Outputs,
    buffer: Buffer,
    input: Input,
    /// Clients that may have input, in the order in which they get to send a packet.
    waiting: VecDeque<u32>,
    /// A client that is gone ended the input, while some was pending.
    input_ended: bool,
    listener: Option<Listener>,
    clients: Clients,
    stall_timeout: Option<Duration>,
    /// When large buffers are given back.
    idle: Option<Instant>,
    /// The size that a terminal yet to come gets.
    size: Option<(u16, u16)>,
    stdio: Stdio,
    bytes_read: u64,
    stderr_tail: Option<Tail>,
}

impl Relay {
    /// Makes the standard streams of `target` and starts to watch our ends of them. With a terminal, which the runtime
    /// makes, that is only stderr. With passthrough they are this process's own, and nothing is left to do.
    ///
    /// A client may keep everything waiting for `stall_timeout`, if there is one.
    pub(crate) fn new(
        event_loop: &EventLoop<Source>,
        target: Target,
        stdio: Stdio,
        leave_stdin_open: bool,
        stall_timeout: Option<Duration>,
    ) -> io::Result<(Self, ChildStdio)> {
        let Streams { input, outputs, theirs } = Streams::make(event_loop, target, stdio, leave_stdin_open)?;
        let relay = Self {
            target,
            outputs,
            buffer: Buffer::new(READ_SIZE)?,
            input: Input::new(input)?,
            waiting: VecDeque::new(),
            input_ended: false,
            listener: None,
            clients: Clients::new(target),
            stall_timeout,
            idle: None,
            size: None,
            stdio,
            bytes_read: 0,
            stderr_tail: Some(Tail::default()),
        };
        Ok((relay, theirs))
    }

    /// Accepts attach clients on `socket`, a nonblocking one.
    pub(crate) fn listen(&mut self, event_loop: &EventLoop<Source>, socket: OwnedFd) -> io::Result<()> {
        event_loop.watch(&socket, Source::Relay(self.target, RelaySource::Listener), Interest::READABLE)?;
        self.listener = Some(Listener::new(socket, "attach clients"));
        Ok(())
    }

    /// Keeps all output for the first client, however late it comes: when there is no room left, the process waits.
    pub(crate) fn keep_for_the_first(&mut self) {
        self.clients.keep_for_the_first();
    }

    /// Whether output waits for room.
    pub(crate) fn is_held_up(&self) -> bool {
        self.outputs.iter().any(Output::is_paused)
    }

    /// Keeps nothing for a client yet to come.
    pub(crate) fn await_nobody(&mut self, event_loop: &EventLoop<Source>, log: &impl Sink) {
        self.clients.await_nobody(event_loop);
        self.resume(event_loop, log);
    }

    /// Closes the process's stdin, once what clients have sent is through. Whether there is one to close.
    pub(crate) fn close_stdin(&mut self, event_loop: &EventLoop<Source>) -> bool {
        if self.stdio != Stdio::PipesWithStdin {
            return false;
        }
        self.input.leave_open(false);
        self.input_ended = true;
        self.pass_input(event_loop);
        true
    }

    /// What the process has for standard streams.
    pub(crate) fn stdio(&self) -> Stdio {
        self.stdio
    }

    /// How much output was read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The runtime has sent the container's terminal. What was meant for it until now, it gets.
    pub(crate) fn connect_terminal(&mut self, event_loop: &EventLoop<Source>, master: OwnedFd) -> io::Result<()> {
        let mut attributes = tcgetattr(&master)?;
        attributes.output_flags.insert(OutputFlags::ONLCR);
        tcsetattr(&master, SetArg::TCSANOW, &attributes)?;
        set_nonblocking(&master)?;

        let master = Rc::new(master);
        let output = Output::watch(event_loop, self.target, Stream::Stdout, Rc::clone(&master), Kind::Terminal)?;
        self.outputs.stdout = Some(output);
        if let Some((height, width)) = self.size.take() {
            self.resize(height, width);
        }
        // Its first event has kept input written.
        self.input.connect(master);
        Ok(())
    }

    /// Sets the terminal's size, or keeps it until there is one. Without `--terminal` it means nothing.
    pub(crate) fn resize(&mut self, height: u16, width: u16) {
        match &self.outputs.stdout {
            Some(output) if output.kind() == Kind::Terminal => {
                if let Err(error) = sys::set_window_size(output.fd(), height, width) {
                    warn!("cannot resize the terminal to {height} rows and {width} columns: {error}");
                }
            }
            _ if self.stdio == Stdio::Terminal => self.size = Some((height, width)),
            _ => {}
        }
    }

    /// Does what an event asks for.
    pub(crate) fn handle(
        &mut self,
        event_loop: &EventLoop<Source>,
        log: &mut impl Sink,
        event: Event<RelaySource>,
        now: Instant,
    ) {
        match event.source {
            RelaySource::Output(stream) => {
                if event.readable {
                    self.pass_output(event_loop, log, stream, now);
                }
                if event.writable {
                    self.pass_input(event_loop);
                }
            }
            RelaySource::Stdin => self.pass_input(event_loop),
            RelaySource::Listener => self.accept(event_loop, now),
            RelaySource::Client(id) => {
                if event.writable {
                    self.clients.flush(event_loop, id, now);
                }
                if event.readable {
                    self.input_ended |= self.clients.notice_departure(event_loop, id);
                    if self.clients.input_of(id).is_some() && !self.waiting.contains(&id) {
                        self.waiting.push_back(id);
                    }
                    self.pass_input(event_loop);
                }
            }
        }
        self.after_turn(event_loop, log, now);
        if log.has_grown() {
            self.idle = Some(now + IDLE);
        }
    }

    /// When to call [`Relay::handle_timeout`].
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let retry = self.listener.as_ref().and_then(Listener::next_timeout);
        let stall = self.stall().map(|(_, when)| when);
        [self.idle, retry, stall].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, event_loop: &EventLoop<Source>, log: &impl Sink, now: Instant) {
        if self.listener.as_ref().and_then(Listener::next_timeout).is_some_and(|when| when <= now) {
            self.accept(event_loop, now);
        }
        while let Some((client, when)) = self.stall()
            && when <= now
        {
            self.clients.cut(event_loop, client, "it took no output for too long, and everything waits for it");
            self.after_turn(event_loop, log, now);
        }
        if self.idle.is_some_and(|when| when <= now) {
            self.idle = None;
            self.buffer.release();
            self.input.release();
            self.clients.release();
        }
    }

    /// The client that everything waits for, and when that ends.
    fn stall(&self) -> Option<(u32, Instant)> {
        let timeout = self.stall_timeout?;
        // Paused without need of theirs, it is for the log.
        if self.clients.have_room() || !self.outputs.iter().any(Output::is_paused) {
            return None;
        }
        self.clients.slowest().map(|(id, since)| (id, since + timeout))
    }

    /// The end of what the runtime said on stderr; nothing is kept from here on.
    pub(crate) fn take_stderr_tail(&mut self) -> Vec<u8> {
        self.stderr_tail.take().map(Tail::into_bytes).unwrap_or_default()
    }

    /// Whether everybody has closed the pipes that the runtime was given.
    pub(crate) fn output_closed(&self) -> bool {
        !self.outputs.iter().any(|output| output.kind() == Kind::Pipe)
    }

    /// The container has ended: reads what it wrote, and no more than that, whoever else may still write.
    pub(crate) fn drain(&mut self, event_loop: &EventLoop<Source>, log: &mut impl Sink, now: Instant) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let mut left = self.outputs.slot(stream).as_ref().map_or(0, Output::left);
            while left > 0 {
                log.make_room();
                let Some(len) = self.read_once(event_loop, log, stream, now) else { break };
                left = left.saturating_sub(len);
            }
        }
        for output in self.outputs.iter_mut() {
            output.stop(event_loop);
        }
        log.end(Stream::Stdout);
        log.end(Stream::Stderr);
        log.make_room();
    }

    /// Whether every client has got all that it should. To be asked after [`Relay::drain`].
    pub(crate) fn flushed(&self) -> bool {
        self.clients.have_everything()
    }

    /// Closes all, which to clients is the end of the output.
    pub(crate) fn close(&mut self, event_loop: &EventLoop<Source>) {
        if let Some(listener) = self.listener.take() {
            event_loop.unwatch(&listener.socket);
        }
        self.clients.close(event_loop);
        self.waiting = VecDeque::new();
        for mut output in [self.outputs.stdout.take(), self.outputs.stderr.take()].into_iter().flatten() {
            output.stop(event_loop);
        }
        self.input.close(event_loop);
        self.buffer.release();
        self.input.release();
        self.idle = None;
    }

    /// Reads a stream until it is empty, nobody has room for more, or its turn is over.
    fn pass_output(&mut self, event_loop: &EventLoop<Source>, log: &mut impl Sink, stream: Stream, now: Instant) {
        let mut left = READS_PER_TURN * READ_SIZE.get();
        // Until a read finds nothing: a short one does not mean that a pipe is empty if its writer asked for packets
        // (O_DIRECT), nor that an end which was reported with the bytes was seen.
        while left > 0 {
            let Some(output) = self.outputs.slot(stream) else { return };
            if !output.is_running() {
                return;
            }
            if !self.clients.have_room() || !log.has_room() {
                output.pause();
                return;
            }
            let Some(len) = self.read_once(event_loop, log, stream, now) else { return };
            left = left.saturating_sub(len);
        }
        if let Some(output) = self.outputs.slot(stream) {
            output.rearm(event_loop);
        }
    }

    /// Reads a piece of a stream and hands it out; how long it was, if there was one.
    fn read_once(
        &mut self,
        event_loop: &EventLoop<Source>,
        log: &mut impl Sink,
        stream: Stream,
        now: Instant,
    ) -> Option<usize> {
        let slot = self.outputs.slot(stream);
        match slot.as_ref()?.read(&mut self.buffer) {
            Chunk::Bytes(len) => {
                let output = &self.buffer[..len];
                self.bytes_read += len as u64;
                log.write(stream, output);
                if stream == Stream::Stderr
                    && let Some(tail) = &mut self.stderr_tail
                {
                    tail.push(output);
                }
                self.clients.deliver(event_loop, stream, output, now);
                Some(len)
            }
            Chunk::Nothing => None,
            Chunk::End => {
                if let Some(mut ended) = slot.take() {
                    ended.stop(event_loop);
                    log.end(stream);
                }
                None
            }
        }
    }

    /// Takes input from the clients in turn, as long as the container takes it.
    fn pass_input(&mut self, event_loop: &EventLoop<Source>) {
        if !self.input.flush(event_loop) {
            return;
        }
        if mem::take(&mut self.input_ended) {
            self.input.end(event_loop);
        }
        for _ in 0..INPUT_PER_TURN {
            let Some(id) = self.waiting.pop_front() else { return };
            let Some(client) = self.clients.input_of(id) else { continue };
            match self.input.receive(client) {
                Received::Packet => self.waiting.push_back(id),
                Received::Nothing => {}
                Received::End => {
                    self.clients.end_input(event_loop, id);
                    self.input.end(event_loop);
                }
            }
            if !self.input.flush(event_loop) {
                return;
            }
        }
        for id in self.waiting.drain(..) {
            self.clients.rearm(event_loop, id);
        }
    }

    fn accept(&mut self, event_loop: &EventLoop<Source>, now: Instant) {
        let Some(listener) = &mut self.listener else { return };
        for _ in 0..MAX_CLIENTS {
            let Some(client) = listener.accept(now) else { return };
            self.clients.add(event_loop, client, now);
            // Of those who had to make room.
            self.waiting.retain(|&id| self.clients.input_of(id).is_some());
        }
        rearm(event_loop, &listener.socket, Source::Relay(self.target, RelaySource::Listener), Interest::READABLE);
    }

    /// Goes on with what was paused, if there is room for it now. The log's may come at any time.
    pub(crate) fn resume(&mut self, event_loop: &EventLoop<Source>, log: &impl Sink) {
        if self.clients.have_room() && log.has_room() {
            for output in self.outputs.iter_mut().filter(|output| output.is_paused()) {
                output.resume(event_loop);
            }
        }
    }

    /// What a turn may have changed for others: there may be room for output, and buffers to give back.
    fn after_turn(&mut self, event_loop: &EventLoop<Source>, log: &impl Sink, now: Instant) {
        self.resume(event_loop, log);
        if self.buffer.has_grown() | self.input.has_grown() | self.clients.has_grown() {
            self.idle = Some(now + IDLE);
        }
    }
}

/// [`EventLoop::rearm`] where there is nobody to tell of an error, which a watched descriptor does not give.
fn rearm(event_loop: &EventLoop<Source>, fd: &impl AsFd, source: Source, interest: Interest) {
    if let Err(error) = event_loop.rearm(fd, source, interest) {
        error!("cannot watch {source:?} any more: {error}");
    }
}

#[cfg(test)]
mod tests;
