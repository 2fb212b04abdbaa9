//! Why a command line is refused.

use std::fmt;

use log::Level;

use crate::messages::{Line, OneLine};

/// Shown as one line, for stderr; the exit status is 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CliError {
    /// The words cannot be read as options. Callers know conmon's words for that, its name included.
    Syntax(String),
    /// The options do not describe a container that can be started.
    Invalid(String),
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(text) => write!(f, "conmon: option parsing failed: {}", OneLine(text)),
            Self::Invalid(text) => Line(Level::Error, text).fmt(f),
        }
    }
}

impl std::error::Error for CliError {}
