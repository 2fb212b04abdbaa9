//! What an option is: its row in the table, from which both the parser and `--help` take what they need.

use std::ffi::OsString;
use std::time::Duration;

use super::given::Given;
use super::table::GROUPS;

/// An option.
#[derive(Clone, Copy)]
pub(super) struct Opt {
    /// The long name, without dashes.
    pub(super) name: &'static str,
    /// The short one.
    pub(super) short: Option<u8>,
    /// What it takes, and where that goes.
    pub(super) kind: Kind,
    /// What `--help` says; nothing: the option is hidden.
    pub(super) help: &'static str,
    /// It is read, but whoever uses it is told that it is not supported.
    pub(super) refused: bool,
    /// It means something for a service as well, which has no container.
    pub(super) for_services: bool,
}

/// What an option takes.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Nothing; it ends the parsing.
    Help,
    /// Nothing.
    Flag(fn(&mut Given)),
    /// A word as it is; `--help` calls it `value`.
    Word { value: &'static str, set: fn(&mut Given, OsString) },
    /// An integer of 32 bits.
    Int { value: &'static str, set: fn(&mut Given, i32) },
    /// An integer of 64 bits.
    Int64 { value: &'static str, set: fn(&mut Given, i64) },
    /// Seconds with a fraction, within [`SHORTEST`] and [`LONGEST`].
    Seconds { set: fn(&mut Given, Duration) },
}

/// The bounds of all durations that may have a fraction.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);
pub(super) const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Options that `--help` shows together.
pub(super) struct Group {
    pub(super) title: &'static str,
    pub(super) options: &'static [Opt],
}

pub(super) const fn option(name: &'static str, kind: Kind, help: &'static str) -> Opt {
    Opt { name, short: None, kind, help, refused: false, for_services: false }
}

pub(super) const fn flag(name: &'static str, set: fn(&mut Given), help: &'static str) -> Opt {
    option(name, Kind::Flag(set), help)
}

pub(super) const fn word(
    name: &'static str,
    value: &'static str,
    set: fn(&mut Given, OsString),
    help: &'static str,
) -> Opt {
    option(name, Kind::Word { value, set }, help)
}

pub(super) const fn int(name: &'static str, value: &'static str, set: fn(&mut Given, i32), help: &'static str) -> Opt {
    option(name, Kind::Int { value, set }, help)
}

pub(super) const fn int64(
    name: &'static str,
    value: &'static str,
    set: fn(&mut Given, i64),
    help: &'static str,
) -> Opt {
    option(name, Kind::Int64 { value, set }, help)
}

pub(super) const fn seconds(name: &'static str, set: fn(&mut Given, Duration), help: &'static str) -> Opt {
    option(name, Kind::Seconds { set }, help)
}

impl Opt {
    /// Adds a short name.
    pub(super) const fn short(self, short: u8) -> Self {
        Self { short: Some(short), ..self }
    }

    /// Marks what conmon does and dunnage does not.
    pub(super) const fn refused(self) -> Self {
        Self { refused: true, ..self }
    }

    /// Marks what means something without a container.
    pub(super) const fn for_services(self) -> Self {
        Self { for_services: true, ..self }
    }

    /// Whether the option takes no value.
    pub(super) fn is_bare(&self) -> bool {
        matches!(self.kind, Kind::Help | Kind::Flag(_))
    }

    /// The option with this long name.
    pub(super) fn long_named(name: &[u8]) -> Option<&'static Self> {
        Self::all().find(|option| option.name.as_bytes() == name)
    }

    /// The option with this short name.
    pub(super) fn short_named(short: u8) -> Option<&'static Self> {
        Self::all().find(|option| option.short == Some(short))
    }

    /// All of them.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        GROUPS.iter().flat_map(|group| group.options)
    }
}
