//! The text of `--help`.

use std::fmt::Write;

use super::options::{Kind, Opt};
use super::table::GROUPS;

/// Where the descriptions begin.
const COLUMN: usize = 32;

const INTRODUCTION: &str = "\
Usage: dunnage --cid ID --cuuid ID --runtime PATH --log-path PATH [OPTION]...

Creates or restores a container with an OCI runtime, or runs a process in one, and watches it until
it ends: keeps its streams, logs its output, serves attach clients and leaves its exit code behind.
Takes the place of conmon under Podman (podman --conmon PATH) and CRI-O (monitor_path in crio.conf).
";

const NOTES: &str = "
Options marked [refused] are conmon's, and not supported: dunnage says so and ends. SECONDS are
whole, but may have a fraction for --attach-stall-timeout and the bounds of processes, which go
from 0.001 to 604800 (a week). Whole numbers may be octal (010) or hexadecimal (0x10).

Environment:
  _OCI_STARTPIPE  a descriptor; nothing is started before a byte was read from it
  _OCI_SYNCPIPE   a descriptor; told the container's pid, or why there is none, as a line of JSON;
                  an exec's exit code follows
  _OCI_ATTACHPIPE a descriptor; with --exec-attach, told when clients can attach
  DUNNAGE_CONTROL_DIR
                  a directory; the control socket is DIR/ID, unless --control-socket names one

Exit status:
  0    the shim runs as a process of its own
  1    an option was refused or the shim failed; one line on stderr says why
  N    with --sync: the exit command's status if that is not 0, else the container's exit code
       (128 + N: killed by signal N; 255: not known)

Example, in the directory of an OCI bundle whose process needs no terminal:
  dunnage -c box -u box -r /usr/bin/runc -l box.log --full-attach --exit-dir /tmp
  runc start box
Then box.log gets what the container writes, and /tmp/box its exit code when it ends.
";

/// The whole text.
pub(crate) fn help() -> String {
    let mut text = INTRODUCTION.to_owned();
    for group in GROUPS {
        text.push('\n');
        text.push_str(group.title);
        text.push_str(":\n");
        for option in group.options.iter().filter(|option| !option.help.is_empty()) {
            describe(&mut text, option);
        }
    }
    text.push_str(NOTES);
    text
}

fn describe(text: &mut String, option: &Opt) {
    let start = text.len();
    match option.short {
        Some(short) => write!(text, "  -{}, --{}", char::from(short), option.name),
        None => write!(text, "      --{}", option.name),
    }
    .expect("a String takes all that is written to it");
    if let Some(value) = value_of(option) {
        text.push(' ');
        text.push_str(value);
    }
    let mut used = text.len() - start;
    for line in option.help.lines() {
        // One that does not fit beside its option begins on the next line.
        if used + 2 > COLUMN {
            text.push('\n');
            used = 0;
        }
        text.extend(std::iter::repeat_n(' ', COLUMN - used));
        text.push_str(line);
        used = COLUMN;
    }
    if option.refused {
        text.push_str(" [refused]");
    }
    text.push('\n');
}

/// What the option's value is called, if it takes one.
pub(super) fn value_of(option: &Opt) -> Option<&'static str> {
    match option.kind {
        Kind::Help | Kind::Flag(_) => None,
        Kind::Word { value, .. } | Kind::Int { value, .. } | Kind::Int64 { value, .. } => Some(value),
        Kind::Seconds { .. } => Some("SECONDS"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fits_a_terminal_of_100_columns() {
        for line in help().lines() {
            assert!(line.len() <= 100, "{} columns: {line}", line.len());
        }
    }

    #[test]
    fn it_shows_every_option_that_is_not_hidden() {
        let text = help();
        for option in GROUPS.iter().flat_map(|group| group.options) {
            let shown = text.lines().any(|line| {
                let mut words = line.split_ascii_whitespace();
                words.any(|word| word.strip_prefix("--") == Some(option.name)) && line.starts_with("  ")
            });
            assert_eq!(shown, !option.help.is_empty(), "--{}", option.name);
        }
    }
}
