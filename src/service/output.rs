//! The output of all that runs, in one log.
//!
//! A line that one begins and another interrupts is ended there, so that no line is of two. Nothing is held back for
//! that: what was read is with the log before anything else happens.

use std::io;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use dunnage_runtime::event_loop::{EventLoop, Interest};
use dunnage_runtime::generation::Role;
use dunnage_runtime::sys;
use log::{error, warn};
use nix::errno::Errno;
use nix::unistd::read;

use super::Shim;
use super::runs::{Pipe, STREAMS};
use crate::buffer::Buffer;
use crate::log::Log;
use crate::source::{ServiceSource, Source};
use crate::stream::Stream;

/// As much as a fifo holds.
const BUFFER_SIZE: NonZeroUsize = NonZeroUsize::new(64 * 1024).unwrap();

/// How often one output is read in a turn.
const READS_PER_TURN: u32 = 4;

/// How long nothing comes before memory is given back.
const IDLE: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Output {
    pub(super) log: Log,
    buffer: Buffer,
    /// Whose line of each stream is not ended.
    unended: [Option<u32>; 2],
    pub(super) bytes_read: u64,
    release_at: Option<Instant>,
}

impl Output {
    pub(super) fn new(log: Log) -> io::Result<Self> {
        Ok(Self { log, buffer: Buffer::new(BUFFER_SIZE)?, unended: [None; 2], bytes_read: 0, release_at: None })
    }

    /// Logs the first `length` bytes of the buffer.
    fn write(&mut self, key: u32, stream: Stream, length: usize) {
        let bytes = &self.buffer[..length];
        let unended = &mut self.unended[stream as usize];
        if unended.is_some_and(|other| other != key) {
            self.log.write(stream, b"\n");
        }
        self.log.write(stream, bytes);
        *unended = (bytes.last() != Some(&b'\n')).then_some(key);
        self.bytes_read += length as u64;
    }

    /// Nothing more comes from that one.
    fn end(&mut self, key: u32, stream: Stream) {
        if self.unended[stream as usize].take_if(|its| *its == key).is_some() {
            self.log.write(stream, b"\n");
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        [self.log.deadline(), self.release_at].into_iter().flatten().min()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.log.deadline().is_some_and(|at| at <= now) {
            self.log.handle_deadline();
        }
        if self.release_at.is_some_and(|at| at <= now) {
            self.release_at = None;
            self.log.release();
            self.buffer.release();
            sys::give_back_memory();
        }
    }

    fn note_growth(&mut self, now: Instant) {
        if self.buffer.has_grown() | self.log.has_grown() {
            self.release_at = Some(now + IDLE);
        }
    }
}

/// What a read came to.
enum Chunk {
    Bytes(usize),
    Nothing,
    End,
}

impl Shim {
    /// Something was written.
    pub(super) fn read_output(&mut self, key: u32, stream: Stream, now: Instant) {
        for _ in 0..READS_PER_TURN {
            let Some((role, run)) = self.runs.iter_mut().find(|(_, run)| run.key == key) else { return };
            let Some(pipe) = &mut run.outputs[stream as usize] else { return };
            if !self.output.log.has_room() {
                pipe.paused = true;
                return;
            }
            match read_once(&pipe.reader, &mut self.output.buffer, *role) {
                Chunk::Bytes(length) => self.output.write(key, stream, length),
                Chunk::Nothing => return self.output.note_growth(now),
                Chunk::End => return self.end_output(key, stream),
            }
        }
        self.output.note_growth(now);
        if let Some(pipe) =
            self.runs.values().find(|run| run.key == key).and_then(|run| run.outputs[stream as usize].as_ref())
        {
            rearm(&self.event_loop, pipe, key, stream);
        }
    }

    fn end_output(&mut self, key: u32, stream: Stream) {
        let Some((_, run)) = self.runs.iter_mut().find(|(_, run)| run.key == key) else { return };
        if let Some(pipe) = run.outputs[stream as usize].take() {
            self.event_loop.unwatch(&pipe.reader);
            self.output.end(key, stream);
        }
    }

    /// Reads on where there was no room before.
    pub(super) fn resume_output(&mut self) {
        // Anything may have given the log room, or taken it.
        self.output.log.watch(&self.event_loop);
        if !self.output.log.has_room() {
            return;
        }
        for run in self.runs.values_mut() {
            for (pipe, stream) in run.outputs.iter_mut().zip(STREAMS) {
                if let Some(pipe) = pipe.as_mut().filter(|pipe| pipe.paused) {
                    pipe.paused = false;
                    rearm(&self.event_loop, pipe, run.key, stream);
                }
            }
        }
    }

    /// Logs what is in the outputs of what is gone, and no more than that, whoever else may still write.
    pub(super) fn drain_output(&mut self, role: Role, now: Instant) {
        let Some(run) = self.runs.get(&role) else { return };
        let key = run.key;
        for stream in STREAMS {
            let Some(pipe) = self.runs.get(&role).and_then(|run| run.outputs[stream as usize].as_ref()) else {
                continue;
            };
            let mut left = sys::unread_bytes(&pipe.reader).unwrap_or(0);
            while left > 0 {
                if !self.output.log.has_room() {
                    self.output.log.make_room();
                }
                match read_once(&pipe.reader, &mut self.output.buffer, role) {
                    Chunk::Bytes(length) => {
                        self.output.write(key, stream, length);
                        left = left.saturating_sub(length);
                    }
                    Chunk::Nothing | Chunk::End => break,
                }
            }
            self.end_output(key, stream);
        }
        self.output.note_growth(now);
    }
}

/// Has the kernel report again what is unread.
fn rearm(event_loop: &EventLoop<Source>, pipe: &Pipe, key: u32, stream: Stream) {
    let source = Source::Service(ServiceSource::Output(key, stream));
    if let Err(error) = event_loop.rearm(&pipe.reader, source, Interest::READABLE) {
        error!("cannot watch an output any more: {error}");
    }
}

fn read_once(pipe: &std::fs::File, buffer: &mut Buffer, role: Role) -> Chunk {
    loop {
        match read(pipe, buffer) {
            Ok(0) => return Chunk::End,
            Ok(length) => {
                buffer.filled(length);
                return Chunk::Bytes(length);
            }
            Err(Errno::EAGAIN) => return Chunk::Nothing,
            Err(Errno::EINTR) => {}
            Err(error) => {
                warn!("cannot read the output of {role}: {error}");
                return Chunk::End;
            }
        }
    }
}
