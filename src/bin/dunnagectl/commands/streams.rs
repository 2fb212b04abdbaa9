//! Commands at a process's streams: `exec` and `attach`.

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use super::Entry;
use crate::attach::Attach;
use crate::client::Connection;
use crate::definition::id;
use crate::error::{Context, Failure, Result, failure};
use crate::keys::DetachKeys;
use crate::output::note;
use crate::process::{self, Wanted};
use crate::session::{self, End, Outcome, Terms};
use crate::shims::Place;
use crate::when;

pub(super) static COMMANDS: &[Entry] =
    &[Entry { define: define_exec, run: exec }, Entry { define: define_attach, run: attach }];

/// The status of a process that was killed at its timeout, as timeout(1) has it.
const TIMED_OUT: u8 = 124;

fn detach_keys() -> Arg {
    Arg::new("detach-keys")
        .long("detach-keys")
        .value_name("KEYS")
        .default_value("ctrl-p,ctrl-q")
        .help("Keys that leave a process with a terminal, which goes on; none if empty")
}

fn keys_of(matches: &ArgMatches) -> Result<DetachKeys> {
    let keys: Option<&String> = matches.get_one("detach-keys");
    DetachKeys::parse(keys.map_or("", String::as_str)).context(|| "--detach-keys")
}

fn flag(name: &'static str, short: char, help: &'static str) -> Arg {
    Arg::new(name).long(name).short(short).action(ArgAction::SetTrue).help(help)
}

fn define_exec() -> Command {
    Command::new("exec")
        .about("Run a command in a container, and end with its exit status")
        .long_about(
            "Run a command in a container, and end with its exit status. Environment, directory, user, capabilities \
             and limits are those of the container's own process, unless said otherwise.\n\n\
             With -i and -t, what is typed goes to the command, ctrl-c too, and it has the size of this terminal. \
             Otherwise SIGINT, SIGTERM and SIGHUP are passed on to it, and SIGQUIT (ctrl-\\) leaves it: it goes on.",
        )
        .override_usage("dunnagectl exec [OPTIONS] ID [--] COMMAND [ARG]...")
        .arg(flag("interactive", 'i', "Pass on stdin (otherwise it is /dev/null)"))
        .arg(flag("tty", 't', "Give the command a terminal"))
        .arg(
            Arg::new("env")
                .long("env")
                .short('e')
                .value_name("NAME[=VALUE]")
                .action(ArgAction::Append)
                .help("Set a variable, or pass on our own of that name; repeatable"),
        )
        .arg(
            Arg::new("cwd")
                .long("cwd")
                .short('w')
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Where in the container the command starts"),
        )
        .arg(
            Arg::new("user")
                .long("user")
                .short('u')
                .value_name("UID[:GID]")
                .value_parser(process::user)
                .help("Whom it runs as, by numbers (GID is 0 unless given); another than 0 has no capabilities"),
        )
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("TIME")
                .value_parser(when::duration)
                .help("Kill it with all that it started after this time: 500ms, 10s, 2m, or seconds"),
        )
        .arg(detach_keys())
        .arg(id().required(true).help("A container's id, the beginning of one, or a name; left out with --socket"))
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .num_args(0..)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .help("The command and its arguments"),
        )
}

fn exec(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let mut id: Option<&String> = matches.get_one("id");
    let mut command: Vec<&String> = matches.get_many("command").into_iter().flatten().collect();
    if place.names_socket() {
        // Then the first word is the command already.
        command.splice(0..0, id.take());
    }
    if command.is_empty() {
        return failure("which command? dunnagectl exec ID COMMAND [ARG]...");
    }
    let shim = place.find(id)?;
    let terminal = matches.get_flag("tty");
    let input = matches.get_flag("interactive");
    let keys = keys_of(matches)?;
    let status = shim.status()?;
    let bundle = Path::new(status["bundle"].as_str().unwrap_or_default());
    let wanted = Wanted {
        args: command.iter().map(ToString::to_string).collect(),
        terminal,
        env: variables(matches, terminal),
        cwd: matches.get_one("cwd").cloned(),
        user: matches.get_one("user").copied(),
    };
    let mut parameters = json!({"process": process::describe(bundle, wanted)?, "terminal": terminal, "stdin": input});
    if let Some(timeout) = matches.get_one::<Duration>("timeout") {
        parameters["timeout_ms"] = json!(timeout.as_millis());
    }
    let mut news = Connection::open(&shim)?;
    news.ask_for_more("Exec", &parameters)?;
    let started = news.answer_some_day()?["started"].take();
    let target = started["exec_id"].as_str().unwrap_or_default().to_owned();
    let attach = Attach::open(Path::new(started["socket"].as_str().unwrap_or_default()))?;
    let read_end = |answer: &Value| End::read(&answer["exited"]);
    let passes_signals = true;
    let outcome = session::run(Terms {
        shim: &shim,
        target: target.clone(),
        attach,
        input,
        terminal,
        keys,
        passes_signals,
        news,
        read_end,
    })?;
    finish(&outcome, &target, shim.label())
}

/// The variables that were given. A command on a terminal is told of which kind it is.
fn variables(matches: &ArgMatches, terminal: bool) -> Vec<String> {
    let own = |name: &str| env::var(name).ok().map(|value| format!("{name}={value}"));
    let term = if terminal { own("TERM") } else { None };
    let given = matches.get_many::<String>("env").into_iter().flatten();
    let given = given.filter_map(|word| if word.contains('=') { Some(word.clone()) } else { own(word) });
    term.into_iter().chain(given).collect()
}

fn define_attach() -> Command {
    Command::new("attach")
        .about("Attach to a container's streams, and end with its exit status")
        .long_about(
            "Attach to a container's streams, and end with its exit status. What it has written before is in its log. \
             On its terminal, what is typed goes to it, ctrl-c too; otherwise ctrl-c ends dunnagectl alone.",
        )
        .arg(
            Arg::new("no-stdin")
                .long("no-stdin")
                .action(ArgAction::SetTrue)
                .help("Only look: pass on no input, and leave the container's stdin as it is"),
        )
        .args([detach_keys(), id()])
}

fn attach(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let shim = place.find(matches.get_one("id"))?;
    let keys = keys_of(matches)?;
    // From here on its end is told, whenever it comes.
    let mut news = Connection::open(&shim)?;
    news.ask_for_more("Events", &json!({}))?;
    let status = shim.status()?;
    if status["state"] == "ended" {
        return failure(format_args!("{} has ended with status {}", shim.label(), status["exit_code"]));
    }
    let Some(socket) = status["attach"].as_str() else {
        return failure(format_args!("{} has no attach socket: its streams are its caller's", shim.label()));
    };
    let outcome = session::run(Terms {
        shim: &shim,
        target: "container".to_owned(),
        attach: Attach::open(Path::new(socket))?,
        input: !matches.get_flag("no-stdin"),
        terminal: status["terminal"] == true,
        keys,
        passes_signals: false,
        news,
        read_end: End::of_container,
    })?;
    finish(&outcome, "the container", shim.label())
}

/// The exit status of a session, with a line where it is not the process's.
fn finish(outcome: &Outcome, target: &str, container: &str) -> Result<u8> {
    match outcome {
        Outcome::Ended(End { timed_out: true, .. }) => {
            note(&format!("{target} was killed: its timeout was over"));
            Ok(TIMED_OUT)
        }
        Outcome::Ended(End { exit_code, .. }) => u8::try_from(*exit_code)
            .map_err(|_| Failure::Told(format!("{container}: {target} has ended, and how is not known"))),
        Outcome::Detached => {
            // On a line of its own: the cursor is where the process left it.
            let _ = writeln!(io::stderr());
            note(&format!("detached: {target} goes on in {container}"));
            Ok(0)
        }
        Outcome::Left(signal) => {
            note(&format!("{signal}: {target} goes on in {container}"));
            // Signal numbers are below 65.
            Ok(128 + u8::try_from(*signal as i32).unwrap_or_default())
        }
    }
}
