//! Where output goes: colours only for people, and as wide as they can see.

use std::env;
use std::io::{self, IsTerminal, Write};

use dunnage_runtime::sys;
use serde_json::Value;

use crate::error::{Result, output};

/// What a word is shown in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Colour {
    /// As everything else.
    #[default]
    Plain,
    /// All is well.
    Green,
    /// Something is on its way.
    Yellow,
    /// Something has failed.
    Red,
    /// Of less interest.
    Faint,
    /// A heading.
    Bold,
}

impl Colour {
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Green => Some("32"),
            Self::Yellow => Some("33"),
            Self::Red => Some("31"),
            Self::Faint => Some("2"),
            Self::Bold => Some("1"),
        }
    }
}

/// What stdout is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Whether there are colours.
    pub(crate) coloured: bool,
    /// How many columns there are; none where nobody looks.
    pub(crate) width: Option<usize>,
}

impl Look {
    /// Of this process's stdout.
    pub(crate) fn of_stdout() -> Self {
        let is_terminal = io::stdout().is_terminal();
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let columns = || env::var("COLUMNS").ok()?.parse().ok().filter(|&columns: &usize| columns > 0);
        let of_terminal = || sys::window_size(&io::stdout()).map(|(_, columns)| usize::from(columns));
        Self {
            coloured: is_terminal && !is_dumb && !is_set("NO_COLOR"),
            width: columns().or_else(|| if is_terminal { of_terminal() } else { None }),
        }
    }

    /// The text in its colour.
    pub(crate) fn paint(self, text: &str, colour: Colour) -> String {
        match colour.code().filter(|_| self.coloured && !text.is_empty()) {
            Some(code) => format!("\x1b[{code}m{text}\x1b[0m"),
            None => text.to_owned(),
        }
    }
}

/// Prints text as it is.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| output(&error))
}

/// Says a line beside the output. Nothing can be done about an stderr that takes nothing.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "dunnagectl: {text}");
}

/// Prints an object for programs.
pub(crate) fn print_json(object: &Value) -> Result<()> {
    print(&format!("{object}\n"))
}

/// Text of others, as a word of a line: nothing in it moves a cursor.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Cut to so many columns.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// A number of bytes, as people say it.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut tenths, mut unit) = (bytes * 10 / 1024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_ends_with_a_mark() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer", 5), "long…");
        assert_eq!(cut("größer", 3), "gr…");
    }

    #[test]
    fn sizes_have_a_unit() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"), (10 << 30, "10.0 GiB")]
        {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn colours_are_only_where_they_are_wanted() {
        let plain = Look { coloured: false, width: None };
        assert_eq!(plain.paint("text", Colour::Red), "text");
        assert_eq!(Look { coloured: true, width: None }.paint("text", Colour::Red), "\x1b[31mtext\x1b[0m");
        assert_eq!(clean("a\x1b[2Jb\n"), "a [2Jb ");
    }
}
