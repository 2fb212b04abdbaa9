//! dunnagectl: asks and tells the monitors of containers, for people and for scripts.
//!
//! Every command is an entry of [`commands::GROUPS`]: its options, from which help, completions and the manual page are
//! made as well, and the function that carries it out.

#![forbid(unsafe_code)]

mod attach;
mod client;
mod commands;
mod definition;
mod error;
mod gate_command;
mod keys;
mod log_file;
mod output;
mod process;
mod raw_mode;
mod readiness;
mod refusal;
mod session;
mod shims;
mod signals;
mod socket;
mod table;
mod tier;
mod when;
mod words;

#[cfg(test)]
mod pages;

use std::process::ExitCode;

use error::Failure;

/// The status when dunnagectl itself fails, so that it is told apart from those of commands run in containers.
const FAILED: u8 = 125;

fn main() -> ExitCode {
    let matches = match definition::command().try_get_matches() {
        Ok(matches) => matches,
        Err(mistake) => {
            // Help that nobody reads is no failure.
            let _ = mistake.print();
            return ExitCode::from(if mistake.use_stderr() { FAILED } else { 0 });
        }
    };
    match definition::run(&matches) {
        Ok(status) => ExitCode::from(status),
        Err(Failure::ReaderGone) => ExitCode::from(FAILED),
        Err(Failure::Told(text)) => {
            output::note(&text);
            ExitCode::from(FAILED)
        }
    }
}
