//! dunnage, the program: parse, start, run, end. A library so that what reads from outside can be fuzzed, and no interface
//! for anybody else.

#![forbid(unsafe_code)]

mod buffer;
mod cgroup;
mod cli;
mod control;
mod descriptors;
mod directory;
mod error;
mod exec;
mod exit;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod generations;
mod json;
mod limits;
mod listener;
mod log;
mod messages;
mod monitor;
mod notify;
mod oom;
mod relay;
mod rounds;
mod service;
mod socket_file;
mod source;
mod staged;
mod start;
mod stream;
mod whole_file;

use std::env;
use std::io::{self, Write};
use std::process::{self, ExitCode};

use dunnage_runtime::sys::{InheritedFds, Signals};
use nix::sys::stat::{Mode, umask};

use cli::{Command, Config};
use error::{Context, Error, Result};
use monitor::{Handed, Monitor};
use rounds::SIGNALS;
use service::Shim;
use start::{CallerPipes, Dialect, OomScore, Side, SyncPipe};

/// Exit status of a shim that failed itself.
const FAILED: u8 = 1;

/// What the program does.
#[must_use]
pub fn main() -> ExitCode {
    // First of all: what is open now is the caller's, what is opened later is not.
    let inherited = InheritedFds::take().context(|| "cannot list the open descriptors");
    match cli::parse(env::args_os().skip(1)) {
        Ok(Command::Version) => print(cli::VERSION),
        Ok(Command::Help) => print(&cli::help()),
        Ok(Command::Run(config)) => {
            messages::init(&config.messages());
            let started = inherited.and_then(|inherited| start(config, inherited));
            exit_code(started.map(|monitor| monitor.map_or(0, Monitor::run)))
        }
        Ok(Command::Serve(config)) => {
            messages::init(&config.messages());
            let started = inherited.and_then(|inherited| service::start(config, inherited));
            exit_code(started.map(|shim| shim.map_or(0, Shim::run)))
        }
        Err(mistake) => {
            // Nothing can be done about an stderr that takes nothing.
            let _ = writeln!(io::stderr(), "{mistake}");
            ExitCode::from(FAILED)
        }
    }
}

fn exit_code(ended: Result<u8>) -> ExitCode {
    ExitCode::from(ended.unwrap_or_else(|failure| {
        ::log::error!("{failure}");
        FAILED
    }))
}

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FAILED),
    }
}

/// Everything before the loop: up to the fork, where the caller still sees what goes wrong, and what the process that
/// stays needs. The one that the caller started gets nothing: its work is done.
// Not a part of main's frame, which lasts as long as the loop.
#[inline(never)]
fn start(config: Box<Config>, mut inherited: InheritedFds) -> Result<Option<Box<Monitor>>> {
    // The runtime inherits it, and the modes of all files that are made here count on it.
    umask(Mode::from_bits_truncate(0o022));
    let pipes = CallerPipes::take(&mut inherited, &config)?;
    let log = log::Log::open(&config.log).map_err(|error| Error::new(error.to_string()))?;
    if let Err(gave_up) = pipes.start.wait() {
        // An exec's caller is answered in any case.
        if config.is_exec() {
            SyncPipe::new(pipes.sync, Dialect::of(&config)).failed(gave_up.to_string().as_bytes());
        }
        return Err(gave_up);
    }
    // From here on there is somebody to pass them on to.
    let signals = Signals::catch(&SIGNALS).context(|| "cannot catch signals")?;
    let oom_score = OomScore::protect();
    let short_side = process::id();
    match start::detach(&config.detach, config.stdio)? {
        Side::Short => Ok(None),
        Side::Long(go_ahead) => {
            monitor::start(Handed { config, log, pipes, inherited, oom_score, signals, short_side, go_ahead })
        }
    }
}
