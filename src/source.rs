//! The names of all that the shim's loop watches.

use std::fmt;

use dunnage_runtime::driver::Watched;
use dunnage_runtime::event_loop;
use mio::Token;

use crate::stream::Stream;

/// What an event of the loop is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A signal arrived.
    Signals,
    /// A process of the driver's: a runtime, a container, the exit command.
    Process(Watched),
    /// Something that a process's relay moves bytes for.
    Relay(Target, RelaySource),
    /// The caller says that an exec with clients may start.
    StartPipe,
    /// The socket on which the runtime hands over a process's terminal.
    ConsoleListener(Target),
    /// The runtime's connection on that socket.
    ConsoleConnection(Target),
    /// The journal's socket.
    Journal,
    /// The `ctl` fifo of the bundle.
    Ctl,
    /// The `winsz` fifo of the bundle.
    Winsz,
    /// The counters of the container's memory.
    Oom,
    /// The container's sd_notify socket.
    Notify,
    /// What makes the end durable.
    Durable,
    /// The control socket.
    ControlListener,
    /// A connection on it; numbers are never used twice.
    ControlConnection(u32),
    /// Something of a service's; none of a container's shim.
    Service(ServiceSource),
}

/// What the shim of a service watches beside what all do. Numbers are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceSource {
    /// A task that may have its answer.
    Task(u32),
    /// A process that is to execute its program.
    Birth(u32),
    /// The events of a cgroup.
    Cgroup(u32),
    /// An output of what runs.
    Output(u32, Stream),
    /// The sd_notify socket of a generation.
    Notify(u32),
}

/// A process that a shim is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The container, or with `--exec` the process in it.
    Container,
    /// A process that was asked for over the control socket.
    Exec(ExecId),
}

/// The number of an exec: from 1 on, and not used again while anybody remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExecId(u32);

impl ExecId {
    /// The first one.
    pub(crate) const FIRST: Self = Self(1);

    /// The one after this. Sixteen million later a number comes again.
    pub(crate) fn next(self) -> Self {
        if self.0 == TARGET_MAX { Self::FIRST } else { Self(self.0 + 1) }
    }
}

impl fmt::Display for ExecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exec-{}", self.0)
    }
}

/// A token is kind (8 bits), target (24 bits) and number (32 bits).
const TARGET_SHIFT: u32 = 32;
const KIND_SHIFT: u32 = 56;
const TARGET_MAX: u32 = (1 << (KIND_SHIFT - TARGET_SHIFT)) - 1;

impl Target {
    fn into_bits(self) -> u32 {
        match self {
            Self::Container => 0,
            Self::Exec(ExecId(number)) => number,
        }
    }

    fn from_bits(bits: u32) -> Self {
        match bits {
            0 => Self::Container,
            number => Self::Exec(ExecId(number)),
        }
    }
}

/// The descriptors of the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelaySource {
    /// An output pipe of the container, or its terminal (`Stdout`), which is written to as well.
    Output(Stream),
    /// The container's stdin pipe.
    Stdin,
    /// The attach socket.
    Listener,
    /// An attach client; numbers are never used twice.
    Client(u32),
}

impl From<Watched> for Source {
    fn from(watched: Watched) -> Self {
        Self::Process(watched)
    }
}

impl event_loop::Source for Source {
    fn into_token(self) -> Token {
        const NONE: Target = Target::Container;
        let (kind, target, number) = match self {
            Self::Signals => (0, NONE, 0),
            Self::Process(watched) => (1, NONE, watched.0),
            Self::Relay(target, RelaySource::Output(Stream::Stdout)) => (2, target, 0),
            Self::Relay(target, RelaySource::Output(Stream::Stderr)) => (3, target, 0),
            Self::Relay(target, RelaySource::Stdin) => (4, target, 0),
            Self::Relay(target, RelaySource::Listener) => (5, target, 0),
            Self::Relay(target, RelaySource::Client(number)) => (6, target, number),
            Self::ConsoleListener(target) => (7, target, 0),
            Self::ConsoleConnection(target) => (8, target, 0),
            Self::Ctl => (9, NONE, 0),
            Self::Winsz => (10, NONE, 0),
            Self::StartPipe => (11, NONE, 0),
            Self::Oom => (12, NONE, 0),
            Self::Notify => (13, NONE, 0),
            Self::Journal => (14, NONE, 0),
            Self::Durable => (15, NONE, 0),
            Self::ControlListener => (16, NONE, 0),
            Self::ControlConnection(number) => (17, NONE, number),
            Self::Service(ServiceSource::Task(number)) => (18, NONE, number),
            Self::Service(ServiceSource::Birth(number)) => (19, NONE, number),
            Self::Service(ServiceSource::Cgroup(number)) => (20, NONE, number),
            Self::Service(ServiceSource::Output(number, Stream::Stdout)) => (21, NONE, number),
            Self::Service(ServiceSource::Output(number, Stream::Stderr)) => (22, NONE, number),
            Self::Service(ServiceSource::Notify(number)) => (23, NONE, number),
        };
        Token(kind << KIND_SHIFT | (target.into_bits() as usize) << TARGET_SHIFT | number as usize)
    }

    fn from_token(token: Token) -> Self {
        // The low half is the number.
        #[expect(clippy::cast_possible_truncation)]
        let number = token.0 as u32;
        // What the mask leaves fits.
        #[expect(clippy::cast_possible_truncation)]
        let target = Target::from_bits((token.0 >> TARGET_SHIFT) as u32 & TARGET_MAX);
        match token.0 >> KIND_SHIFT {
            0 => Self::Signals,
            1 => Self::Process(Watched(number)),
            2 => Self::Relay(target, RelaySource::Output(Stream::Stdout)),
            3 => Self::Relay(target, RelaySource::Output(Stream::Stderr)),
            4 => Self::Relay(target, RelaySource::Stdin),
            5 => Self::Relay(target, RelaySource::Listener),
            6 => Self::Relay(target, RelaySource::Client(number)),
            7 => Self::ConsoleListener(target),
            8 => Self::ConsoleConnection(target),
            9 => Self::Ctl,
            10 => Self::Winsz,
            11 => Self::StartPipe,
            12 => Self::Oom,
            13 => Self::Notify,
            14 => Self::Journal,
            15 => Self::Durable,
            16 => Self::ControlListener,
            17 => Self::ControlConnection(number),
            18 => Self::Service(ServiceSource::Task(number)),
            19 => Self::Service(ServiceSource::Birth(number)),
            20 => Self::Service(ServiceSource::Cgroup(number)),
            21 => Self::Service(ServiceSource::Output(number, Stream::Stdout)),
            22 => Self::Service(ServiceSource::Output(number, Stream::Stderr)),
            23 => Self::Service(ServiceSource::Notify(number)),
            kind => unreachable!("token kind {kind} is none of into_token's"),
        }
    }
}

#[cfg(test)]
mod tests {
    use dunnage_runtime::event_loop::Source as _;

    use super::*;

    #[test]
    fn names_survive_the_kernel() {
        let last = ExecId(TARGET_MAX);
        for target in [Target::Container, Target::Exec(ExecId::FIRST), Target::Exec(last)] {
            for source in [
                Source::Relay(target, RelaySource::Output(Stream::Stderr)),
                Source::Relay(target, RelaySource::Client(u32::MAX)),
                Source::ConsoleListener(target),
                Source::ConsoleConnection(target),
                Source::Process(Watched(u32::MAX)),
                Source::ControlConnection(u32::MAX),
                Source::Service(ServiceSource::Output(u32::MAX, Stream::Stderr)),
                Source::Service(ServiceSource::Cgroup(u32::MAX)),
            ] {
                assert_eq!(Source::from_token(source.into_token()), source);
            }
        }
        assert_eq!(last.next(), ExecId::FIRST);
    }
}
