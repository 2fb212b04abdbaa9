//! Holds the pages that list the options against the table of them.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use super::help::value_of;
use super::options::Opt;
use super::table::GROUPS;

fn page(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn every_option_has_its_row_in_the_compatibility_page() {
    let page = page("docs/compatibility.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `--")).collect();
    for option in Opt::all() {
        let short = option.short.map(|short| format!(", `-{}`", char::from(short))).unwrap_or_default();
        let cell = format!("| `--{}`{short} | ", option.name);
        let row: Vec<_> = rows.iter().filter(|row| row.starts_with(&cell)).collect();
        assert_eq!(row.len(), 1, "rows that begin with {cell}");
        assert_eq!(row[0].contains("refused]("), option.refused, "{}", row[0]);
    }
    assert_eq!(rows.len(), Opt::all().count(), "a row for an option that there is not");
}

/// The section of the manual page.
fn manual() -> String {
    let mut text = String::new();
    for group in GROUPS {
        let _ = writeln!(text, ".SS {}", group.title);
        for option in group.options.iter().filter(|option| !option.help.is_empty()) {
            let short = option.short.map(|short| format!("-{}, ", char::from(short))).unwrap_or_default();
            let value = value_of(option).map(|value| format!(" \\fI{}\\fR", roff(value))).unwrap_or_default();
            let _ = writeln!(text, ".TP\n\\fB{}\\fR{value}", roff(&format!("{short}--{}", option.name)));
            let help = option.help.replace('\n', " ");
            let (what, default) = help.rsplit_once(" (").unwrap_or((&help, ""));
            let _ = writeln!(text, "{}.", roff(&sentence(what)));
            match default.strip_suffix(')') {
                Some("required") => text.push_str("Required.\n"),
                Some(default) => {
                    let _ = writeln!(text, "{}.", roff(&sentence(default)));
                }
                None => {}
            }
            if option.refused {
                text.push_str("Not supported: refused.\n");
            }
        }
    }
    text
}

/// With a capital at its beginning.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Dashes as they are typed.
fn roff(text: &str) -> String {
    text.replace('-', "\\-")
}

/// `UPDATE_PAGES=1 cargo test manual` writes it anew.
#[test]
fn the_manual_lists_the_options_as_they_are() {
    const PATH: &str = "docs/man/dunnage.8";
    let page = page(PATH);
    let (before, rest) = page.split_once(".SH OPTIONS\n").unwrap();
    let (found, after) = rest.split_once(".SH ").unwrap();
    let wanted = manual();
    if found != wanted && env::var_os("UPDATE_PAGES").is_some() {
        let page = format!("{before}.SH OPTIONS\n{wanted}.SH {after}");
        return fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(PATH), page).unwrap();
    }
    assert!(found == wanted, "{PATH} is behind the options: UPDATE_PAGES=1 cargo test manual");
}
