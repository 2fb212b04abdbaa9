//! dunnage: a container monitor for Podman and CRI-O.
#![forbid(unsafe_code)]

mod cli;
mod log;
mod messages;
mod relay;
mod source;
mod stream;

use std::io::{self, Write};
use std::process::ExitCode;

use cli::Command;

fn main() -> ExitCode {
    let printed = match cli::parse(std::env::args_os().skip(1)) {
        Ok(Command::Version) => io::stdout().write_all(cli::VERSION.as_bytes()),
        Ok(Command::Help) => io::stdout().write_all(cli::help().as_bytes()),
        Ok(Command::Run(config)) => {
            messages::init(&config);
            ::log::debug!("{config:?}");
            Ok(())
        }
        Err(error) => {
            // Nothing can be done about an stderr that takes nothing.
            let _ = io::stderr().write_all(format!("{error}\n").as_bytes());
            return ExitCode::FAILURE;
        }
    };
    if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
