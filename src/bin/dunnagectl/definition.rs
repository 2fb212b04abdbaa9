//! The command line, as clap reads it, and what help, completions and the manual page are made from.

use clap::{Arg, ArgMatches, Command, value_parser};
use std::path::PathBuf;

use crate::commands::{self, Entry};
use crate::error::{Result, failure};
use crate::shims::Place;

/// Where monitors have their control sockets, unless told otherwise.
pub(crate) const DIRECTORY: &str = "/run/dunnage";

/// The variable that says where; monitors read it, too.
pub(crate) const DIRECTORY_VARIABLE: &str = "DUNNAGE_CONTROL_DIR";

/// The whole command line.
pub(crate) fn command() -> Command {
    let command = Command::new("dunnagectl")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Asks and tells the monitors of containers, and runs processes in them")
        .long_about(
            "Asks and tells the monitors of containers (dunnage), and runs processes in them, over their control \
             sockets. A container has one if its monitor was started with --control-socket, or with the directory of \
             all of them in DUNNAGE_CONTROL_DIR.\n\n\
             ID is a container's id, the beginning of one, or a name. It is left out where --socket is given.",
        )
        .after_help(
            "The exit status is 125 where dunnagectl itself fails. That of exec and attach is otherwise the \
             process's: 128 and a signal's number if one ended it, 124 if its --timeout was over.",
        )
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .global(true)
                .env(DIRECTORY_VARIABLE)
                .hide_env_values(true)
                .default_value(DIRECTORY)
                .value_parser(value_parser!(PathBuf))
                .help("Where the control sockets are, each named by its container's id"),
        )
        .arg(
            Arg::new("socket")
                .long("socket")
                .value_name("PATH")
                .global(true)
                .value_parser(value_parser!(PathBuf))
                .help("The control socket of the container that is meant, in place of its ID"),
        );
    entries().fold(command, |command, entry| command.subcommand((entry.define)()))
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    commands::GROUPS.iter().copied().flatten()
}

/// Carries out what was asked for, and gives the exit status.
pub(crate) fn run(matches: &ArgMatches) -> Result<u8> {
    let asked = matches.subcommand();
    let found = asked.and_then(|(name, matches)| {
        let entry = entries().find(|entry| (entry.define)().get_name() == name)?;
        Some((entry, matches))
    });
    match found {
        Some((entry, matches)) => (entry.run)(&Place::of(matches), matches),
        None => failure("which command? --help lists them"),
    }
}

/// The option for programs.
pub(crate) fn json() -> Arg {
    clap::arg!(--json "Print what the monitor answers, as JSON: one object a line")
}

/// The container that is meant.
pub(crate) fn id() -> Arg {
    Arg::new("id").value_name("ID").help("A container's id, the beginning of one, or a name")
}

/// The process that is meant.
pub(crate) fn target() -> Arg {
    Arg::new("target")
        .long("target")
        .value_name("TARGET")
        .default_value("container")
        .help("container, or the id of a process executed in it, such as exec-3: status lists them")
}
