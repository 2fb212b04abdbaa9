//! Errors as the one line that a user reads.

use std::fmt::{self, Display};

/// What went wrong, where, and where it helps, what to do.
#[derive(Debug)]
pub(crate) struct Error(String);

/// The result of what can fail with such a line.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error that says `message`.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Says what was tried when something failed.
pub(crate) trait Context<T> {
    /// The error becomes `what: error`.
    fn context<D: Display>(self, what: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Display> Context<T> for std::result::Result<T, E> {
    fn context<D: Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| Error(format!("{}: {error}", what())))
    }
}
