//! Commands that tell a monitor to do something, and are done when it says so.

use std::io;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use dunnage_runtime::sys;
use serde_json::{Value, json};

use super::Entry;
use crate::client::{Connection, PATIENCE};
use crate::definition::{id, json as json_option, target};
use crate::error::{Result, failure};
use crate::output::print_json;
use crate::shims::Place;
use crate::when;

pub(super) static COMMANDS: &[Entry] = &[
    Entry { define: define_signal, run: signal },
    Entry { define: define_resize, run: resize },
    Entry { define: define_close_stdin, run: close_stdin },
    Entry { define: define_reopen_logs, run: reopen_logs },
    Entry { define: define_shutdown, run: shutdown },
];

/// Calls a method of the container that is meant.
fn tell(place: &Place, matches: &ArgMatches, method: &str, parameters: &Value, bound: Duration) -> Result<u8> {
    let shim = place.find(matches.get_one("id"))?;
    let answer = Connection::open(&shim)?.call_within(method, parameters, bound)?;
    if matches.get_flag("json") {
        print_json(&answer)?;
    }
    Ok(0)
}

/// The target that is meant.
fn target_of(matches: &ArgMatches) -> Option<&String> {
    matches.get_one("target")
}

fn define_signal() -> Command {
    Command::new("signal")
        .about("Send a signal to the container's process, or to one executed in it")
        .arg(
            Arg::new("signal")
                .short('s')
                .long("signal")
                .value_name("SIGNAL")
                .default_value("TERM")
                .help("As a word or number: TERM, SIGTERM or 15"),
        )
        .arg(
            Arg::new("all")
                .short('a')
                .long("all")
                .action(ArgAction::SetTrue)
                .help("To all processes of the target; each gets it once, whatever it forks meanwhile"),
        )
        .args([target(), json_option(), id()])
}

fn signal(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let signal: Option<&String> = matches.get_one("signal");
    let parameters = json!({"target": target_of(matches), "signal": signal, "all": matches.get_flag("all")});
    tell(place, matches, "Signal", &parameters, PATIENCE)
}

fn define_resize() -> Command {
    let size = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("N").value_parser(value_parser!(u16).range(0..=1000)).help(help)
    };
    Command::new("resize")
        .about("Set the size of a container's terminal")
        .arg(size("height", "Rows, 0 to 1000 [default: those of this terminal]"))
        .arg(size("width", "Columns, 0 to 1000 [default: those of this terminal]"))
        .args([target(), json_option(), id()])
}

fn resize(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let ours = sys::window_size(&io::stdout()).or_else(|| sys::window_size(&io::stdin()));
    let given = |name| matches.get_one::<u16>(name).copied();
    let height = given("height").or(ours.map(|(height, _)| height));
    let width = given("width").or(ours.map(|(_, width)| width));
    if height.is_none() || width.is_none() {
        return failure("which size? This is no terminal to take it from: give --height and --width");
    }
    let parameters = json!({"target": target_of(matches), "height": height, "width": width});
    tell(place, matches, "Resize", &parameters, PATIENCE)
}

fn define_close_stdin() -> Command {
    Command::new("close-stdin")
        .about("Close the stdin of a container's process, once what clients have sent is through")
        .args([target(), json_option(), id()])
}

fn close_stdin(place: &Place, matches: &ArgMatches) -> Result<u8> {
    tell(place, matches, "CloseStdin", &json!({"target": target_of(matches)}), PATIENCE)
}

fn define_reopen_logs() -> Command {
    Command::new("reopen-logs")
        .about("Make new files at the paths of a container's logs, after they were moved away")
        .args([json_option(), id()])
}

fn reopen_logs(place: &Place, matches: &ArgMatches) -> Result<u8> {
    tell(place, matches, "ReopenLogs", &json!({}), PATIENCE)
}

fn define_shutdown() -> Command {
    Command::new("shutdown")
        .about("End a container within a time: SIGTERM now, SIGKILL when it must be")
        .long_about(
            "End a container within a time: SIGTERM now, SIGKILL when it must be. Done when all its processes are \
             reaped and the exit code is written; fails, naming them, if some could not be killed.",
        )
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("TIME")
                .default_value("10s")
                .value_parser(when::duration)
                .help("All must be over by then: 500ms, 10s, 2m, or seconds; above the monitor's --stop-budget (2 s)"),
        )
        .args([json_option(), id()])
}

fn shutdown(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let timeout = matches.get_one::<Duration>("timeout").copied().unwrap_or_default();
    tell(place, matches, "Shutdown", &json!({"timeout_ms": timeout.as_millis()}), timeout + PATIENCE)
}
