//! `status`: what a container's monitor knows.

use std::fs;
use std::time::SystemTime;

use clap::{ArgMatches, Command};
use serde_json::Value;

use super::{Entry, events, service};
use crate::definition::{id, json as json_option};
use crate::error::Result;
use crate::output::{Colour, Look, clean, print, print_json, size};
use crate::shims::Place;
use crate::table::{Cell, Table};
use crate::when;

pub(super) static COMMANDS: &[Entry] = &[Entry { define, run }];

fn define() -> Command {
    Command::new("status")
        .about("Show what a monitor knows: processes, runtimes that run, generations, counters")
        .args([json_option(), id()])
}

fn run(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let status = place.find(matches.get_one("id"))?.status()?;
    if matches.get_flag("json") {
        print_json(&status)?;
    } else {
        print(&describe(&status, Look::of_stdout(), SystemTime::now()))?;
    }
    Ok(0)
}

/// All of it for people: first what it is, then tables of what there is.
fn describe(status: &Value, look: Look, now: SystemTime) -> String {
    let fact = |(name, value)| format!("{}  {value}\n", look.paint(&format!("{name:<8}"), Colour::Bold));
    let facts: String = facts(status, look, now).into_iter().map(fact).collect();
    let started = |row: &Value| Cell::from(ago(&row["started"], now));
    let tables = [
        table(&status["processes"], &["PROCESS", "PID", "STARTED", "COMMAND"], |process| {
            let command = process["pid"].as_i64().map(command_of).unwrap_or_default();
            vec![word(&process["target"]), number(&process["pid"]), started(process), command.into()]
        }),
        table(&status["calls"], &["RUNTIME FOR", "PID", "ITS PROCESS", "STARTED"], |call| {
            vec![word(&call["target"]), number(&call["runtime_pid"]), number(&call["process_pid"]), started(call)]
        }),
        table(&status["zombies"], &["ZOMBIE", "SEEN"], |zombie| {
            vec![number(&zombie["pid"]), ago(&zombie["first_seen"], now).into()]
        }),
    ];
    let tables = tables.into_iter().chain(service::tables(&status["service"], now));
    let tables = tables.flatten().map(|table| format!("\n{}", table.render(look)));
    facts + &tables.collect::<String>()
}

/// Names and values.
fn facts(status: &Value, look: Look, now: SystemTime) -> Vec<(&'static str, String)> {
    let text = |name: &str| status[name].as_str().map(clean);
    let (state, colour) = state(status);
    let state = match container_of(status) {
        _ if status["state"] == "ended" && !status["service"].is_object() => {
            look.paint(&format!("exited {}", events::exit(status["exit_code"].as_i64())), colour)
        }
        Some(process) => format!("{}, started {}", look.paint(&state, colour), ago(&process["started"], now)),
        None => look.paint(&state, colour),
    };
    let monitor = format!("pid {}, dunnage {}", status["shim_pid"], text("version").unwrap_or_default());
    let service = service::facts(&status["service"]);
    let logs = status["logs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let facts = [
        ("id", text("id")),
        ("name", text("name")),
        ("state", Some(state)),
        ("monitor", Some(monitor)),
        ("bundle", text("bundle").filter(|bundle| !bundle.is_empty())),
    ];
    let facts = facts.into_iter().chain(service).chain(logs.map(|log| ("log", Some(clean(log)))));
    let numbers = [("limits", limits(&status["limits"])), ("counters", numbers(&status["counters"]))];
    facts.chain(numbers).filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A table of what a list has, if it has anything.
pub(super) fn table(list: &Value, headings: &[&str], row: impl Fn(&Value) -> Vec<Cell>) -> Option<Table> {
    let rows = list.as_array().filter(|rows| !rows.is_empty())?;
    let mut table = Table::new(headings);
    for entry in rows {
        table.add(row(entry));
    }
    Some(table)
}

pub(super) fn word(word: &Value) -> Cell {
    word.as_str().unwrap_or("-").into()
}

pub(super) fn number(number: &Value) -> Cell {
    number.as_i64().map_or_else(|| "-".to_owned(), |number| number.to_string()).into()
}

pub(super) fn ago(time: &Value, now: SystemTime) -> String {
    time.as_str().and_then(|time| when::ago(time, now)).unwrap_or_default()
}

/// An object's fields in words, also those of later versions: `output_bytes` as a size.
fn numbers(object: &Value) -> Option<String> {
    let fields = object.as_object()?.iter().filter(|(_, value)| !value.is_null());
    let words = fields.map(|(name, value)| match (name.strip_suffix("_bytes"), value.as_u64()) {
        (Some(name), Some(bytes)) => format!("{} {}", size(bytes), name.replace('_', " ")),
        _ => format!("{} {}", clean(&value.to_string()).replace('"', ""), name.replace('_', " ")),
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// What is limited, by the kernel's names.
fn limits(limits: &Value) -> Option<String> {
    let values = limits.as_object()?.iter().filter_map(|(name, value)| Some((name, value.as_str()?)));
    let set = values.filter(|(_, value)| !value.starts_with("max"));
    let words: Vec<String> = set.map(|(name, value)| format!("{} {}", clean(name), clean(value))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// The processes that run, the container's and those of execs.
pub(super) fn processes(status: &Value) -> &[Value] {
    status["processes"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The container's own process, while it runs.
pub(super) fn container_of(status: &Value) -> Option<&Value> {
    processes(status).iter().find(|process| process["target"] == "container")
}

/// How far a container is, in a word.
pub(super) fn state(status: &Value) -> (String, Colour) {
    let state = status["state"].as_str().unwrap_or_default();
    match (state, status["exit_code"].as_i64()) {
        ("ended", None) if status["service"].is_object() => (state.to_owned(), Colour::Plain),
        ("ended", Some(-1) | None) => ("exited (?)".to_owned(), Colour::Red),
        ("ended", Some(0)) => ("exited (0)".to_owned(), Colour::Plain),
        ("ended", Some(code)) => (format!("exited ({code})"), Colour::Red),
        _ if status["shutting_down"] == true => ("stopping".to_owned(), Colour::Yellow),
        ("running", _) => (state.to_owned(), Colour::Green),
        _ => (clean(state), Colour::Yellow),
    }
}

/// What a process runs as, by the kernel.
pub(super) fn command_of(pid: i64) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = words.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
    clean(words.join(" ").trim_end())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn status_of(state: &str) -> Value {
        json!({
            "id": "0123456789abcdef0123", "name": "a\u{1b}[2Jb", "state": state, "exit_code": null,
            "shutting_down": false, "shim_pid": 7, "version": "0.1.0", "bundle": "/b", "attach": null,
            "logs": ["k8s-file:/l"], "terminal": false, "calls": [], "zombies": [],
            "processes": [{"target": "container", "pid": 0, "started": "1970-01-01T00:00:00.0+00:00"}],
            "limits": {"cpu_max": "max 100000", "memory_high": null, "memory_max": "67108864", "pids_max": "2048"},
            "counters": {"output_bytes": 1536, "orphans_swept": 2}
        })
    }

    #[test]
    fn a_status_is_told_in_words() {
        let look = Look { coloured: false, width: Some(80) };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(200);
        let text = describe(&status_of("running"), look, now);
        for part in [
            "state     running, started 3 min ago\n",
            "limits    memory_max 67108864, pids_max 2048\n",
            "2 orphans swept, 1.5 KiB output\n",
            "\nPROCESS    PID  STARTED",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        assert!(!text.contains('\u{1b}') && !text.contains("ZOMBIE"), "{text}");
        let mut ended = status_of("ended");
        ended["exit_code"] = json!(137);
        assert!(describe(&ended, look, now).contains("exited with status 137 (SIGKILL)"));
    }

    #[test]
    fn states_are_words() {
        let mut status = status_of("running");
        assert_eq!(state(&status), ("running".to_owned(), Colour::Green));
        status["shutting_down"] = json!(true);
        assert_eq!(state(&status), ("stopping".to_owned(), Colour::Yellow));
        status = status_of("ended");
        assert_eq!(state(&status).0, "exited (?)");
        status["exit_code"] = json!(0);
        assert_eq!(state(&status), ("exited (0)".to_owned(), Colour::Plain));
    }
}
