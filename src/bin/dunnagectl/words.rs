//! Commands of words: ID, which `--socket` takes the place of, and those that follow.

use clap::{Arg, ArgMatches, Command};

use crate::definition::id;
use crate::error::{Result, failure};
use crate::shims::{Place, Shim};

/// What a command's line looks like.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) name: &'static str,
    /// What follows ID.
    pub(crate) words: &'static [Word],
}

/// A word of it.
#[derive(Debug)]
pub(crate) struct Word {
    /// What it is called, in capitals.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// Only the last may be left out.
    pub(crate) optional: bool,
}

impl Word {
    /// One that must be there.
    pub(crate) const fn new(name: &'static str, help: &'static str) -> Self {
        Self { name, help, optional: false }
    }
}

impl Form {
    /// Its definition, still without words on what it does.
    pub(crate) fn command(&self) -> Command {
        let word = |word: &Word| Arg::new(word.name).value_name(word.name).help(word.help);
        Command::new(self.name)
            .override_usage(self.usage())
            .arg(id().help("The service's name, or the beginning of it; left out with --socket"))
            .args(self.words.iter().map(word))
    }

    fn usage(&self) -> String {
        let word = |word: &Word| if word.optional { format!(" [{}]", word.name) } else { format!(" {}", word.name) };
        let words: String = self.words.iter().map(word).collect();
        format!("dunnagectl {} [OPTIONS] ID{words}", self.name)
    }

    /// Whom it is for, and the words that were given after ID.
    pub(crate) fn read<'a>(&self, place: &Place, matches: &'a ArgMatches) -> Result<(Shim, Vec<&'a str>)> {
        let names = ["id"].into_iter().chain(self.words.iter().map(|word| word.name));
        let given: Vec<&'a String> = names.filter_map(|name| matches.get_one(name)).collect();
        let (id, given) = match given.split_first() {
            // Then the first word is what would follow ID, unless all are there.
            Some((&id, rest)) if !place.names_socket() || rest.len() == self.words.len() => (Some(id), rest),
            _ => (None, &given[..]),
        };
        let shim = place.find(id)?;
        match self.words.get(given.len()) {
            Some(missing) if !missing.optional => {
                failure(format_args!("{} is missing: {}", missing.name, self.usage()))
            }
            _ => Ok((shim, given.iter().map(|word| word.as_str()).collect())),
        }
    }
}
