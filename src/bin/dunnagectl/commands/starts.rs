//! Commands that start generations and workers, and that answer their gates.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};
use serde_json::{Value, json};

use super::Entry;
use super::generations::{N, number};
use crate::client::{Connection, PATIENCE};
use crate::definition::json as json_option;
use crate::error::{Context, Result, failure};
use crate::gate_command::{self, Verdict};
use crate::output::{clean, note, print, print_json};
use crate::readiness::Readiness;
use crate::shims::{Place, Shim};
use crate::words::{Form, Word};
use crate::{tier, when};

pub(super) static COMMANDS: &[Entry] = &[
    Entry { define: define_stage, run: stage },
    Entry { define: define_start, run: start },
    Entry { define: define_start_worker, run: start_worker },
    Entry { define: define_gate, run: gate },
];

const PATH: Word = Word::new("PATH", "The build's executable, or bundle: its own path, never the live link");
const STAGE: Form = Form { name: "stage", words: &[N, PATH] };
const START: Form = Form { name: "start", words: &[N] };
const START_WORKER: Form = Form { name: "start-worker", words: &[Word { optional: true, ..PATH }] };
const GATE: Form = Form { name: "gate", words: &[Word::new("TOKEN", "Which gate: the start has told it")] };

/// What all starts may be told.
fn options() -> [Arg; 6] {
    [
        Arg::new("build")
            .long("build")
            .value_name("NAME")
            .help("What the build is called [default: the last component of what is executed]"),
        Arg::new("digest")
            .long("digest")
            .value_name("sha256:HEX")
            .help("What is executed must have this digest; for a bundle, its config.json"),
        Arg::new("tier")
            .long("tier")
            .value_name("TIER")
            .value_parser(tier::parse)
            .help(format!("Its limits: {} [default: the build's own, else the service's]", tier::HELP)),
        Arg::new("gate")
            .long("gate")
            .action(ArgAction::SetTrue)
            .conflicts_with("gate-command")
            .help("Be asked before the start, once prepared and once recorded: dunnagectl gate answers, in time"),
        Arg::new("gate-command").long("gate-command").value_name("COMMAND").help(
            "Have a shell command answer the gate: status 0 proceeds, otherwise its stderr is why not. It gets \
                 DUNNAGE_GATE_POINT (prepared, recorded), DUNNAGE_GATE_BUILD and DUNNAGE_GATE_TOKEN",
        ),
        Arg::new("gate-timeout")
            .long("gate-timeout")
            .value_name("TIME")
            .value_parser(when::duration)
            .help("How long an answer may take, after which the gate is shut [default: 10s]"),
    ]
}

fn until_ready() -> Arg {
    Arg::new("until-ready")
        .long("until-ready")
        .value_name("TIME")
        .value_parser(when::duration)
        .help("Wait until it says READY=1 (sd_notify); fail if it ends before, or has not in this time")
}

fn define_stage() -> Command {
    STAGE
        .command()
        .about("Start a generation of a service from its staged build, beside the others")
        .long_about(
            "Start a generation of a service from its staged build, beside the others, in a cgroup and on a socket of \
             its own. Done as soon as its process runs, or with --until-ready when it says that it is ready. Clients \
             reach it after dunnagectl switch.",
        )
        .args(options())
        .args([until_ready(), json_option()])
}

fn stage(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let (shim, words) = STAGE.read(place, matches)?;
    let (n, path) = (number(words[0])?, absolute(words[1])?);
    let mut parameters = parameters(matches);
    parameters["n"] = json!(n);
    if parameters["build"].is_null() {
        parameters["build"] = json!(name_of(&path));
    }
    parameters["staged_path"] = json!(path);
    launch(&shim, "Stage", &parameters, matches)
}

fn define_start() -> Command {
    START
        .command()
        .about("Start a generation of a service through the live link: a cold start")
        .args(options())
        .args([until_ready(), json_option()])
        .mut_arg("build", |build| build.help("What the live link must lead to, by its last component"))
}

fn start(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let (shim, words) = START.read(place, matches)?;
    let mut parameters = parameters(matches);
    parameters["n"] = json!(number(words[0])?);
    launch(&shim, "Start", &parameters, matches)
}

fn define_start_worker() -> Command {
    START_WORKER
        .command()
        .about("Start the worker of a service, from a staged build or through the live link")
        .arg(
            Arg::new("replace")
                .long("replace")
                .action(ArgAction::SetTrue)
                .help("Stop the one that runs first, once the gate is open"),
        )
        .args(options())
        .arg(json_option())
}

fn start_worker(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let (shim, words) = START_WORKER.read(place, matches)?;
    let mut parameters = parameters(matches);
    parameters["replace"] = json!(matches.get_flag("replace"));
    if let Some(path) = words.first() {
        parameters["staged_path"] = json!(absolute(path)?);
    }
    launch(&shim, "StartWorker", &parameters, matches)
}

fn parameters(matches: &ArgMatches) -> Value {
    let text = |name| matches.get_one::<String>(name);
    let timeout = matches.get_one::<Duration>("gate-timeout").map(Duration::as_millis);
    let asks = matches.get_flag("gate") || text("gate-command").is_some();
    json!({
        "build": text("build"), "digest": text("digest"), "tier": matches.get_one::<Value>("tier"), "gate": asks,
        "gate_timeout_ms": timeout,
    })
}

/// A path as the monitor, which has another working directory, must be told it.
pub(super) fn absolute(path: &str) -> Result<PathBuf> {
    std::path::absolute(path).context(|| format!("{path:?} is no path"))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Calls a method that starts something, and answers its gates.
fn launch(shim: &Shim, method: &str, parameters: &Value, matches: &ArgMatches) -> Result<u8> {
    let is_json = matches.get_flag("json");
    // Listened to before it can be said.
    let time = matches.try_get_one::<Duration>("until-ready").ok().flatten();
    let readiness = time.map(|_| Readiness::listen(shim)).transpose()?;
    let mut start = Connection::open(shim)?;
    start.ask_for_more(method, parameters)?;
    let started = loop {
        let mut answer = start.answer_some_day()?;
        if is_json {
            print_json(&answer)?;
        }
        if answer["gate"].is_object() {
            match matches.get_one::<String>("gate-command") {
                Some(command) => decide(shim, command, &answer["gate"], &mut start)?,
                None => tell(shim, &answer["gate"]),
            }
        } else if answer["started"].is_object() {
            break answer["started"].take();
        }
    };
    if !is_json {
        print(&launched(&started))?;
    }
    if let (Some(readiness), Some(&time)) = (readiness, time) {
        readiness.wait(&started, Instant::now() + time)?;
    }
    Ok(0)
}

/// What runs, in a line.
fn launched(started: &Value) -> String {
    let text = |name: &str| clean(started[name].as_str().unwrap_or("?"));
    let socket = started["socket"].as_str().map(|socket| format!(", its socket is {}", clean(socket)));
    let (target, build) = (text("target"), text("build"));
    format!("{target} ({build}) runs as process {}{}\n", started["pid"], socket.unwrap_or_default())
}

/// Has the command answer a gate.
fn decide(shim: &Shim, command: &str, gate: &Value, start: &mut Connection) -> Result<()> {
    let parameters = match gate_command::ask(command, gate, start)? {
        Verdict::Proceed => json!({"token": gate["token"], "proceed": true}),
        Verdict::Refuse(reason) => json!({"token": gate["token"], "proceed": false, "reason": reason}),
    };
    let answered = Connection::open(shim)?.call("AnswerGate", &parameters);
    // Too late, perhaps: then the start itself says so.
    answered.map(drop).or_else(|error| start.answer(Instant::now() + PATIENCE).and(Err(error)))
}

/// Says whom to ask for the answer.
fn tell(shim: &Shim, gate: &Value) {
    let text = |name: &str| clean(gate[name].as_str().unwrap_or_default());
    note(&format!(
        "{} is {}: dunnagectl gate --socket {} {} --proceed, or --refuse REASON",
        text("build"),
        text("point"),
        shim.path().display(),
        text("token")
    ));
}

fn define_gate() -> Command {
    GATE.command()
        .about("Answer a gate: whether a start that asks may go on")
        .arg(Arg::new("proceed").long("proceed").action(ArgAction::SetTrue).help("It may"))
        .arg(Arg::new("refuse").long("refuse").value_name("REASON").help("It may not, and its caller is told why"))
        .group(ArgGroup::new("answer").args(["proceed", "refuse"]).required(true))
        .arg(json_option())
}

fn gate(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let (shim, words) = GATE.read(place, matches)?;
    let reason: Option<&String> = matches.get_one("refuse");
    if reason.is_some_and(|reason| reason.trim().is_empty()) {
        return failure("why not? --refuse REASON");
    }
    let parameters = json!({"token": words[0], "proceed": reason.is_none(), "reason": reason});
    let answer = Connection::open(&shim)?.call("AnswerGate", &parameters)?;
    if matches.get_flag("json") {
        print_json(&answer)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_told_in_a_line() {
        let mut started = json!({"target": "gen-7", "build": "v\n42", "pid": 5, "socket": "/run/web.g7.sock"});
        assert_eq!(launched(&started), "gen-7 (v 42) runs as process 5, its socket is /run/web.g7.sock\n");
        started["socket"] = Value::Null;
        assert_eq!(launched(&started), "gen-7 (v 42) runs as process 5\n");
    }
}
