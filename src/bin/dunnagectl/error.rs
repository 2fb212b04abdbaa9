//! What went wrong, as the line that a person reads: what, where, what to do.

use std::fmt::Display;
use std::io;

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// In one line.
    Told(String),
    /// Who reads our output has gone (`dunnagectl logs box | head`): there is nobody to tell.
    ReaderGone,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// A failure with this text; what a container or a runtime said may have had more lines.
pub(crate) fn failure<T>(text: impl Display) -> Result<T> {
    Err(Failure::Told(one_line(&text.to_string())))
}

/// Says of what an error is.
pub(crate) trait Context<T> {
    /// `what: error`.
    fn context<D: Display>(self, what: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Display> Context<T> for std::result::Result<T, E> {
    fn context<D: Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.or_else(|error| failure(format_args!("{}: {error}", what())))
    }
}

/// A failed write to stdout.
pub(crate) fn output(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::ReaderGone,
        _ => Failure::Told(format!("cannot write the output: {error}")),
    }
}

/// Lines as one, without characters that mean something to a terminal.
pub(crate) fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ").chars().filter(|c| !c.is_control()).collect()
}
