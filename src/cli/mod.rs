//! The command line: conmon's options and a few of our own.
//!
//! [`words`] reads the words by the [`table`] of the options; [`validate`] makes a [`Config`] of what was given, or
//! [`service`] a [`ServiceConfig`].

mod config;
mod error;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod given;
mod help;
mod number;
mod options;
mod service;
mod table;
mod validate;
mod words;

use std::ffi::OsString;

pub(crate) use config::{
    Api, Attach, Config, Detach, Exit, ExitCommand, Job, JournaldOptions, K8sFileOptions, Logging, Runtime,
    ServiceConfig, Stdio,
};
pub(crate) use error::CliError;
pub(crate) use help::help;
use words::Words;

/// What `--version` shows. Callers take the first line for conmon's and parse it, so what it says is the conmon whose
/// options and manners these are.
pub(crate) const VERSION: &str =
    concat!("conmon version 2.2.1\ndunnage ", env!("CARGO_PKG_VERSION"), " (commit ", env!("DUNNAGE_COMMIT"), ")\n");

/// What to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Create a container and watch it.
    Run(Box<Config>),
    /// Serve staged generations.
    Serve(Box<ServiceConfig>),
    /// Print [`VERSION`].
    Version,
    /// Print [`help`].
    Help,
}

/// Understands the command line; the program's name is not part of it.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Command, CliError> {
    match words::read(words)? {
        Words::Help => Ok(Command::Help),
        Words::Given(given) if given.version => Ok(Command::Version),
        Words::Given(given) if given.service.is_some() => {
            service::validate(*given).map(|config| Command::Serve(Box::new(config)))
        }
        Words::Given(given) => validate::validate(*given).map(|config| Command::Run(Box::new(config))),
    }
}

#[cfg(test)]
mod pages;
#[cfg(test)]
mod tests;
