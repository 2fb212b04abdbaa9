//! Reads the words of the command line as `GOption` (of glib) does, on which conmon is built.
//!
//! lexopt, made for this, reads a group of short options in another way: it takes what follows one with a value for
//! that value, where `GOption` reads on and takes the next word.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::CliError;
use super::given::Given;
use super::number::{self, IntegerError};
use super::options::{Kind, LONGEST, Opt, SHORTEST};

/// What the words come to.
#[derive(Debug)]
pub(super) enum Words {
    /// Somebody wants to read the help.
    Help,
    /// They are read to their end.
    Given(Box<Given>),
}

/// Whether to read on.
enum Then {
    Go,
    Help,
}

/// Reads all `words`; the program's name is not among them.
pub(super) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Words, CliError> {
    let mut words = words.into_iter();
    let mut given = Box::<Given>::default();
    while let Some(word) = words.next() {
        let then = match word.as_bytes() {
            b"--" => break,
            [b'-', b'-', long @ ..] => read_long(&mut given, &word, long, &mut words)?,
            [b'-', group @ ..] if !group.is_empty() => read_group(&mut given, &word, group, &mut words)?,
            // A positional: callers write `--api-version 1`.
            _ => Then::Go,
        };
        if let Then::Help = then {
            return Ok(Words::Help);
        }
    }
    Ok(Words::Given(given))
}

/// Reads `word`, which is `--NAME` or `--NAME=VALUE`.
fn read_long(
    given: &mut Given,
    word: &OsStr,
    long: &[u8],
    words: &mut impl Iterator<Item = OsString>,
) -> Result<Then, CliError> {
    let mut parts = long.splitn(2, |&byte| byte == b'=');
    let name = parts.next().unwrap_or_default();
    let option = Opt::long_named(name).ok_or_else(|| unknown(word))?;
    let value = match parts.next() {
        Some(value) => Some(OsStr::from_bytes(value).to_owned()),
        None if option.is_bare() => None,
        None => words.next(),
    };
    take(given, option, &format_args!("--{}", option.name), value)
}

/// Reads `word`, which is `-GROUP`: short options, of which one may take a value.
fn read_group(
    given: &mut Given,
    word: &OsStr,
    mut group: &[u8],
    words: &mut impl Iterator<Item = OsString>,
) -> Result<Then, CliError> {
    while let [short, rest @ ..] = group {
        let option = Opt::short_named(*short).ok_or_else(|| unknown(word))?;
        group = rest;
        let value = if option.is_bare() {
            None
        } else if rest.iter().all(|&short| Opt::short_named(short).is_some_and(Opt::is_bare)) {
            words.next()
        } else if rest[0] == b'=' {
            return Err(unknown(word));
        } else {
            // GOption gives up here, so the rest can be the value, as everywhere else: `-cID`.
            group = &[];
            Some(OsString::from_vec(rest.to_vec()))
        };
        if let Then::Help = take(given, option, &format_args!("-{}", char::from(*short)), value)? {
            return Ok(Then::Help);
        }
    }
    Ok(Then::Go)
}

/// Enters `option`, spelled `spelling` on the command line, with the value that was found for it.
fn take(
    given: &mut Given,
    option: &Opt,
    spelling: &dyn fmt::Display,
    value: Option<OsString>,
) -> Result<Then, CliError> {
    let value = || value.ok_or_else(|| CliError::Syntax(format!("Missing argument for {spelling}")));
    match option.kind {
        Kind::Help => return Ok(Then::Help),
        Kind::Flag(set) => set(given),
        Kind::Word { set, .. } => set(given, value()?),
        Kind::Int { set, .. } => {
            let number = integer(&value()?, spelling)?;
            set(given, number);
        }
        Kind::Int64 { set, .. } => {
            let number = integer(&value()?, spelling)?;
            set(given, number);
        }
        Kind::Seconds { set } => set(given, seconds(&value()?, spelling)?),
    }
    if option.refused {
        given.refused.get_or_insert(option.name);
    }
    if !option.for_services {
        given.of_containers.get_or_insert(option.name);
    }
    Ok(Then::Go)
}

fn integer<T: TryFrom<i64>>(value: &OsStr, spelling: &dyn fmt::Display) -> Result<T, CliError> {
    let number =
        number::integer(value.as_bytes()).and_then(|number| T::try_from(number).map_err(|_| IntegerError::OutOfRange));
    number.map_err(|error| {
        let value = value.display();
        CliError::Syntax(match error {
            IntegerError::Malformed => format!("Cannot parse integer value “{value}” for {spelling}"),
            IntegerError::OutOfRange => format!("Integer value “{value}” for {spelling} out of range"),
        })
    })
}

fn seconds(value: &OsStr, spelling: &dyn fmt::Display) -> Result<std::time::Duration, CliError> {
    number::seconds(value.as_bytes()).filter(|duration| (SHORTEST..=LONGEST).contains(duration)).ok_or_else(|| {
        CliError::Invalid(format!(
            "{spelling} must be a number of seconds from 0.001 to 604800, such as 2 or 0.5, not “{value}”",
            value = value.display(),
        ))
    })
}

fn unknown(word: &OsStr) -> CliError {
    CliError::Syntax(format!("Unknown option {}", word.display()))
}
