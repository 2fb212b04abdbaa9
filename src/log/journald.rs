//! The journald driver: one entry for each line.
//!
//! A journald that is behind makes the container wait, as a full pipe would, but not for ever and never the shim. One
//! that is gone, or takes nothing for too long, loses entries, and is told how much once it works again.

mod entry;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
mod kept;
mod socket;
mod text;

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use dunnage_runtime::event_loop::EventLoop;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::entry::Fields;
use self::kept::Kept;
use self::socket::Socket;
use self::text::{Text, default_priority};
use super::loss::{Loss, Totals};
use crate::cli::JournaldOptions;
use crate::source::Source;
use crate::stream::Stream;

/// Where journald listens.
const SOCKET: &str = "/run/systemd/journal/socket";

/// How long a journald that takes nothing makes the container wait, before what it says is dropped.
const STALL_MAX: Duration = Duration::from_secs(5);

/// How long it makes the container's end wait without taking anything, and in all.
const END_STALL_MAX: Duration = Duration::from_millis(500);
const END_WAIT_MAX: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Journald {
    fields: Fields,
    socket: Socket,
    streams: [Kept; 2],
    state: State,
    totals: Totals,
    /// After a loss was told to the shim's own log, it is not told again before a reopening.
    warned: bool,
    end_wait: Duration,
}

/// Whether journald takes what comes.
enum State {
    Open,
    /// Not now: the container waits, `until` then.
    Full {
        until: Instant,
    },
    /// No: what comes is dropped.
    Losing(Loss),
}

impl Journald {
    pub(super) fn open(options: &JournaldOptions) -> io::Result<Self> {
        Self::open_at(Path::new(SOCKET), options)
    }

    fn open_at(socket: &Path, options: &JournaldOptions) -> io::Result<Self> {
        Ok(Self {
            fields: Fields::new(options),
            socket: Socket::new(socket)?,
            streams: [Kept::new(Stream::Stdout)?, Kept::new(Stream::Stderr)?],
            state: State::Open,
            totals: Totals::default(),
            warned: false,
            end_wait: END_WAIT_MAX,
        })
    }

    /// Logs output. Beyond what there is room for, it is dropped.
    pub(super) fn write(&mut self, stream: Stream, output: &[u8]) {
        let mut rest = output;
        while !rest.is_empty() {
            rest = &rest[self.kept(stream).push(rest)..];
            self.pass_on();
            if !rest.is_empty() && !self.has_room() {
                self.lose(Errno::EAGAIN, Instant::now());
            }
        }
    }

    /// The stream has ended: the start of a line that is kept will not go on.
    pub(super) fn end(&mut self, stream: Stream) {
        self.kept(stream).end();
        self.pass_on();
    }

    /// Whether more output can be taken than one read.
    pub(super) fn has_room(&self) -> bool {
        !matches!(self.state, State::Full { .. })
    }

    /// Waits a moment for room, at the container's end: for longer where journald takes what comes, if slowly.
    pub(super) fn make_room(&mut self) {
        while let State::Full { .. } = self.state {
            let start = Instant::now();
            if self.end_wait.is_zero() || !self.wait(self.end_wait.min(END_STALL_MAX)) {
                return self.lose(Errno::EAGAIN, start);
            }
            self.pass_on();
            self.end_wait = self.end_wait.saturating_sub(start.elapsed());
        }
    }

    /// Whether journald took something within `bound`.
    fn wait(&self, bound: Duration) -> bool {
        let Some(connection) = self.socket.connection() else { return false };
        let mut ready = [PollFd::new(connection.as_fd(), PollFlags::POLLOUT)];
        // Rounded up, so that a little time left is not none.
        let bound = PollTimeout::try_from(bound + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
        poll(&mut ready, bound).is_ok_and(|count| count > 0)
    }

    /// Has the loop tell when there is room, as long as there is none.
    pub(super) fn watch(&mut self, event_loop: &EventLoop<Source>) {
        self.socket.watch(event_loop, !self.has_room());
    }

    /// There may be room again.
    pub(super) fn handle_writable(&mut self) {
        self.pass_on();
    }

    /// When [`Journald::handle_deadline`] is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Open => None,
            State::Full { until } => Some(*until),
            State::Losing(loss) => Some(loss.tell_at()),
        }
    }

    /// Waits no longer, or tries to tell what was dropped.
    pub(super) fn handle_deadline(&mut self) {
        let now = Instant::now();
        match self.state {
            State::Full { until } if until <= now => self.lose(Errno::EAGAIN, now),
            _ => self.pass_on(),
        }
    }

    /// Warns anew of the next loss.
    pub(super) fn reopen(&mut self) {
        self.warned = false;
        self.pass_on();
    }

    /// The end of the output, see [`Log::close`](super::Log::close).
    pub(super) fn finish(&mut self) {
        self.make_room();
        self.pass_on();
        if let State::Losing(loss) = &self.state {
            ::log::warn!("the journal: {loss}");
        }
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    pub(super) fn has_grown(&mut self) -> bool {
        self.streams.iter_mut().fold(false, |grown, kept| kept.has_grown() | grown)
    }

    pub(super) fn release(&mut self) {
        self.streams.iter_mut().for_each(Kept::release);
    }

    fn kept(&mut self, stream: Stream) -> &mut Kept {
        &mut self.streams[stream as usize]
    }

    /// Sends what is ready, or drops it.
    fn pass_on(&mut self) {
        if let State::Losing(loss) = &mut self.state {
            let start = Instant::now();
            if start >= loss.retry_at() {
                match tell(&self.fields, &mut self.socket, loss) {
                    Ok(()) => self.state = State::Open,
                    Err(reason) => loss.attempted(reason, start, Instant::now()),
                }
            }
        }
        if let State::Losing(loss) = &mut self.state {
            return self.streams.iter_mut().for_each(|kept| drop_into(loss, kept, &mut self.totals));
        }
        let mut progress = false;
        for kept in &mut self.streams {
            let sent = kept.take_while(|text| {
                self.fields.entry(text, |parts| self.socket.send(parts))?;
                progress = true;
                self.totals.lines_logged += u64::from(!text.partial);
                Ok(())
            });
            match sent {
                Ok(()) => {}
                // Its queue is full, or there is no memory for one more in it.
                Err(Errno::EAGAIN | Errno::ENOBUFS) => {
                    if progress || self.has_room() {
                        self.state = State::Full { until: Instant::now() + STALL_MAX };
                    }
                    return;
                }
                Err(reason) => return self.lose(reason, Instant::now()),
            }
        }
        self.state = State::Open;
    }

    fn lose(&mut self, reason: Errno, now: Instant) {
        if !self.warned {
            self.warned = true;
            ::log::warn!("cannot write to the journal: {}; output is dropped until it works again", reason.desc());
        }
        let mut loss = Loss::new(reason, now);
        self.streams.iter_mut().for_each(|kept| drop_into(&mut loss, kept, &mut self.totals));
        self.state = State::Losing(loss);
    }
}

/// Counts what is ready instead of sending it.
fn drop_into(loss: &mut Loss, kept: &mut Kept, totals: &mut Totals) {
    let _ = kept.take_while(|text| -> Result<(), Infallible> {
        loss.add(text.len, 1, totals);
        Ok(())
    });
}

/// Says in the journal what is missing there.
fn tell(fields: &Fields, socket: &mut Socket, loss: &Loss) -> nix::Result<()> {
    let note = format!("dunnage: {loss}\n");
    let priority = default_priority(Stream::Stderr);
    let text = Text { bytes: note.as_bytes(), priority, partial: false, len: note.len() };
    fields.entry(&text, |parts| socket.send(parts))
}

#[cfg(test)]
mod tests;
