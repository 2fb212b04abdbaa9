//! The commands, by what they are for.

mod events;
mod generations;
mod logs;
mod ps;
mod service;
mod starts;
mod status;
mod streams;
mod tell;

use clap::{ArgMatches, Command};

use crate::error::Result;
use crate::shims::Place;

/// A command.
#[derive(Debug)]
pub(crate) struct Entry {
    /// What its command line is.
    pub(crate) define: fn() -> Command,
    /// Carries it out, and gives the exit status.
    pub(crate) run: fn(&Place, &ArgMatches) -> Result<u8>,
}

/// All of them, in the order in which help lists them.
pub(crate) static GROUPS: &[&[Entry]] = &[
    ps::COMMANDS,
    status::COMMANDS,
    streams::COMMANDS,
    logs::COMMANDS,
    events::COMMANDS,
    tell::COMMANDS,
    starts::COMMANDS,
    generations::COMMANDS,
];
