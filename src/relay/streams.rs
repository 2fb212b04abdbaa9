//! The standard streams of a process, as they are made for it.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use dunnage_runtime::event_loop::{EventLoop, Interest};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::pipe2;

use super::input::Destination;
use super::output::{Kind, Output, Outputs};
use crate::cli::Stdio;
use crate::source::{RelaySource, Source, Target};
use crate::stream::Stream;

/// The runtime's ends of the streams; closed once it was started.
#[derive(Debug)]
pub(crate) struct ChildStdio {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// Both ends of the streams; ours are watched.
pub(super) struct Streams {
    pub(super) input: Destination,
    pub(super) outputs: Outputs,
    pub(super) theirs: ChildStdio,
}

impl Streams {
    /// Makes what is `wanted`. Of a terminal, which the runtime makes, that is only stderr.
    pub(super) fn make(
        event_loop: &EventLoop<Source>,
        target: Target,
        wanted: Stdio,
        leave_stdin_open: bool,
    ) -> io::Result<Self> {
        let (input, stdin) = match wanted {
            Stdio::PipesWithStdin => {
                let (theirs, ours) = stream_pipe()?;
                set_nonblocking(&ours)?;
                event_loop.watch(&ours, Source::Relay(target, RelaySource::Stdin), Interest::WRITABLE)?;
                (Destination::Pipe { pipe: ours, leave_open: leave_stdin_open }, theirs)
            }
            Stdio::Pipes => (Destination::Nowhere, null(OpenOptions::new().read(true))?),
            Stdio::Terminal => (Destination::Terminal(None), null(OpenOptions::new().read(true))?),
            Stdio::Passthrough => (Destination::Nowhere, io::stdin().as_fd().try_clone_to_owned()?),
        };
        let mut outputs = Outputs::default();
        let stdout = match wanted {
            Stdio::Terminal => null(OpenOptions::new().write(true))?,
            Stdio::Pipes | Stdio::PipesWithStdin => output_pipe(event_loop, target, Stream::Stdout, &mut outputs)?,
            Stdio::Passthrough => io::stdout().as_fd().try_clone_to_owned()?,
        };
        let stderr = match wanted {
            Stdio::Passthrough => io::stderr().as_fd().try_clone_to_owned()?,
            _ => output_pipe(event_loop, target, Stream::Stderr, &mut outputs)?,
        };
        Ok(Self { input, outputs, theirs: ChildStdio { stdin, stdout, stderr } })
    }
}

/// Makes an output pipe, and gives the runtime's end back.
fn output_pipe(
    event_loop: &EventLoop<Source>,
    target: Target,
    stream: Stream,
    outputs: &mut Outputs,
) -> io::Result<OwnedFd> {
    let (ours, theirs) = stream_pipe()?;
    set_nonblocking(&ours)?;
    *outputs.slot(stream) = Some(Output::watch(event_loop, target, stream, Rc::new(ours), Kind::Pipe)?);
    Ok(theirs)
}

/// A pipe that a container's user who is not root can open again as `/dev/stdout`: (read end, write end).
fn stream_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
    fchmod(&reader, Mode::S_IRWXU | Mode::S_IRWXG | Mode::S_IRWXO)?;
    Ok((reader, writer))
}

pub(super) fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// What a stream is where there is nothing to move.
fn null(options: &mut OpenOptions) -> io::Result<OwnedFd> {
    Ok(options.open("/dev/null")?.into())
}
