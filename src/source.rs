//! The names of all that the shim's loop watches.

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
    /// Something that the relay moves bytes for.
    Relay(RelaySource),
    /// The caller says that an exec with clients may start.
    StartPipe,
    /// The socket on which the runtime hands over the terminal.
    ConsoleListener,
    /// The runtime's connection on that socket.
    ConsoleConnection,
    /// The `ctl` fifo of the bundle.
    Ctl,
    /// The `winsz` fifo of the bundle.
    Winsz,
    /// The counters of the container's memory.
    Oom,
    /// The container's sd_notify socket.
    Notify,
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
        let (kind, number) = match self {
            Self::Signals => (0, 0),
            Self::Process(watched) => (1, watched.0),
            Self::Relay(RelaySource::Output(Stream::Stdout)) => (2, 0),
            Self::Relay(RelaySource::Output(Stream::Stderr)) => (3, 0),
            Self::Relay(RelaySource::Stdin) => (4, 0),
            Self::Relay(RelaySource::Listener) => (5, 0),
            Self::Relay(RelaySource::Client(number)) => (6, number),
            Self::ConsoleListener => (7, 0),
            Self::ConsoleConnection => (8, 0),
            Self::Ctl => (9, 0),
            Self::Winsz => (10, 0),
            Self::StartPipe => (11, 0),
            Self::Oom => (12, 0),
            Self::Notify => (13, 0),
        };
        Token(kind << 32 | number as usize)
    }

    fn from_token(token: Token) -> Self {
        // The low half is the number.
        #[expect(clippy::cast_possible_truncation)]
        let number = token.0 as u32;
        match token.0 >> 32 {
            0 => Self::Signals,
            1 => Self::Process(Watched(number)),
            2 => Self::Relay(RelaySource::Output(Stream::Stdout)),
            3 => Self::Relay(RelaySource::Output(Stream::Stderr)),
            4 => Self::Relay(RelaySource::Stdin),
            5 => Self::Relay(RelaySource::Listener),
            6 => Self::Relay(RelaySource::Client(number)),
            7 => Self::ConsoleListener,
            8 => Self::ConsoleConnection,
            9 => Self::Ctl,
            10 => Self::Winsz,
            11 => Self::StartPipe,
            12 => Self::Oom,
            13 => Self::Notify,
            kind => unreachable!("token kind {kind} is none of into_token's"),
        }
    }
}
