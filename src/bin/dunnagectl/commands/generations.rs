//! Commands for the generations of a service that run already.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use serde_json::{Map, Value, json};

use super::Entry;
use super::starts::absolute;
use crate::client::{Connection, PATIENCE};
use crate::definition::json as json_option;
use crate::error::{Context, Failure, Result, failure};
use crate::output::{Colour, Look, clean, print, print_json};
use crate::shims::{Place, Shim};
use crate::words::{Form, Word};
use crate::{tier, when};

pub(super) static COMMANDS: &[Entry] = &[
    Entry { define: define_layout, run: layout },
    Entry { define: define_paths, run: paths },
    Entry { define: define_raise, run: raise },
    Entry { define: define_ready, run: ready },
    Entry { define: define_switch, run: switch },
    Entry { define: define_kill, run: kill },
    Entry { define: define_empty, run: empty },
    Entry { define: define_restore, run: restore },
    Entry { define: define_sidecar, run: sidecar },
    Entry { define: define_move, run: move_ },
    Entry { define: define_hold, run: hold },
    Entry { define: define_release, run: release },
];

/// How long limits may take: where memory is to be had back first, the kernel takes its time.
const LIMITS_PATIENCE: Duration = Duration::from_secs(120);

/// A generation.
pub(super) const N: Word = Word::new("N", "The generation's number");
const BUILD: Word = Word::new("BUILD", "The build's name");
const LEFTOVER: Word = Word::new("WHAT", "A generation's number, worker, or sidecar");

const LAYOUT: Form = Form { name: "layout", words: &[] };
const PATHS: Form = Form { name: "paths", words: &[N] };
const READY: Form = Form { name: "ready", words: &[N] };
const SWITCH: Form = Form { name: "switch", words: &[N] };
const KILL: Form = Form { name: "kill", words: &[LEFTOVER] };
const EMPTY: Form = Form { name: "empty", words: &[LEFTOVER] };
const RESTORE: Form = Form { name: "restore", words: &[N] };
const SIDECAR: Form = Form { name: "sidecar", words: &[N] };
const MOVE: Form = Form { name: "move", words: &[N, Word::new("CGROUP", "The name of a cgroup that is made for it")] };
const HOLD: Form = Form { name: "hold", words: &[BUILD, Word::new("REASON", "Why: who starts it is told")] };
const RELEASE: Form = Form { name: "release", words: &[BUILD] };
const RAISE: Form = Form {
    name: "raise",
    words: &[
        Word::new("INCUMBENT", "Whose limits: a generation's number, a staged build's path, or a TIER"),
        Word::new("SUCCESSOR", "The same of what comes beside it"),
    ],
};

/// A number of a generation: `7`, or as a target, `gen-7`.
pub(super) fn number(word: &str) -> Result<u64> {
    let number = word.strip_prefix("gen-").unwrap_or(word).parse().ok().filter(|&number: &u64| number > 0);
    number.ok_or_else(|| Failure::Told(format!("{word:?} is no generation's number: write 7, or gen-7")))
}

/// Calls a method, and shows its answer to programs.
fn call(shim: &Shim, matches: &ArgMatches, method: &str, parameters: &Value, bound: Duration) -> Result<Value> {
    let answer = Connection::open(shim)?.call_within(method, parameters, bound)?;
    if matches.get_flag("json") {
        print_json(&answer)?;
    }
    Ok(answer)
}

/// The same for a method that takes the number of a generation alone.
fn call_with_number(form: &Form, place: &Place, matches: &ArgMatches, method: &str, bound: Duration) -> Result<Value> {
    let (shim, words) = form.read(place, matches)?;
    call(&shim, matches, method, &json!({"n": number(words[0])?}), bound)
}

/// Shows fields of an answer to people.
fn show(matches: &ArgMatches, facts: &[(&str, &Value)]) -> Result<()> {
    if matches.get_flag("json") {
        return Ok(());
    }
    let look = Look::of_stdout();
    let facts = facts.iter().filter_map(|(name, value)| Some((name, value.as_str()?)));
    let line = |(name, value)| format!("{}  {}\n", look.paint(&format!("{name:<8}"), Colour::Bold), clean(value));
    print(&facts.map(line).collect::<String>())
}

fn define_layout() -> Command {
    LAYOUT.command().about("Show how the generations of a service run, and why").arg(json_option())
}

fn layout(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let (shim, _) = LAYOUT.read(place, matches)?;
    let answer = call(&shim, matches, "Layout", &json!({}), PATIENCE)?;
    let facts = [("layout", "layout"), ("reason", "reason"), ("socket", "canonical_socket"), ("cgroup", "cgroup")];
    show(matches, &facts.map(|(name, field)| (name, &answer[field]))).map(|()| 0)
}

fn define_paths() -> Command {
    PATHS.command().about("Show the sockets that a generation has, or would have").arg(json_option())
}

fn paths(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let answer = call_with_number(&PATHS, place, matches, "Paths", PATIENCE)?;
    show(matches, &[("socket", &answer["socket"]), ("control", &answer["control_socket"])]).map(|()| 0)
}

fn define_ready() -> Command {
    READY.command().about("Open a generation's socket to its group (0660)").arg(json_option())
}

fn ready(place: &Place, matches: &ArgMatches) -> Result<u8> {
    call_with_number(&READY, place, matches, "Ready", PATIENCE).map(|_| 0)
}

fn define_switch() -> Command {
    SWITCH
        .command()
        .about("Have clients reach another generation: the canonical socket leads to it from now on")
        .long_about(
            "Have clients reach another generation: the canonical socket leads to it from now on. At every instant it \
             leads to the one or the other; connections that are open go on. If it fails, nothing has changed.",
        )
        .arg(json_option())
}

fn switch(place: &Place, matches: &ArgMatches) -> Result<u8> {
    call_with_number(&SWITCH, place, matches, "Switch", PATIENCE).map(|_| 0)
}

fn timeout(default: &'static str, help: &'static str) -> Arg {
    Arg::new("timeout")
        .long("timeout")
        .value_name("TIME")
        .default_value(default)
        .value_parser(when::duration)
        .help(help)
}

fn timeout_of(matches: &ArgMatches) -> Duration {
    matches.get_one("timeout").copied().unwrap_or_default()
}

fn define_kill() -> Command {
    KILL.command()
        .about("Kill all of a generation, of the worker or of the sidecar, and prove that nothing is left")
        .long_about(
            "Kill all of a generation, of the worker or of the sidecar: its process and all that came of it. Done when \
             it is proven that nothing is left; fails, naming what is, if that is not so in time.",
        )
        .args([timeout("10s", "Nothing must be left by then: 500ms, 10s, 2m, or seconds"), json_option()])
}

fn kill(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let (shim, words) = KILL.read(place, matches)?;
    let methods = Methods { generation: "KillGeneration", worker: "KillHost", sidecar: Some("KillSidecar") };
    clear(&shim, matches, words[0], &methods)
}

fn define_empty() -> Command {
    EMPTY
        .command()
        .about("Prove that nothing is left of a generation or the worker, and kill it only if something is")
        .mut_arg(LEFTOVER.name, |word| word.help("A generation's number, or worker"))
        .args([timeout("10s", "Nothing must be left by then: 500ms, 10s, 2m, or seconds"), json_option()])
}

fn empty(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let (shim, words) = EMPTY.read(place, matches)?;
    clear(&shim, matches, words[0], &Methods { generation: "Empty", worker: "EmptyHost", sidecar: None })
}

/// What takes things away, by what they are.
struct Methods {
    generation: &'static str,
    worker: &'static str,
    sidecar: Option<&'static str>,
}

fn clear(shim: &Shim, matches: &ArgMatches, what: &str, methods: &Methods) -> Result<u8> {
    let timeout = timeout_of(matches);
    let mut parameters = json!({"timeout_ms": timeout.as_millis()});
    let method = match (what, methods.sidecar) {
        ("worker", _) => methods.worker,
        ("sidecar", Some(method)) => method,
        ("sidecar", None) => return failure("a sidecar is only killed: dunnagectl kill ID sidecar"),
        _ => {
            parameters["n"] = json!(number(what)?);
            methods.generation
        }
    };
    let answer = call(shim, matches, method, &parameters, timeout + PATIENCE)?;
    if matches.get_flag("json") {
        return Ok(0);
    }
    let target = if parameters["n"].is_null() { what.to_owned() } else { format!("gen-{}", parameters["n"]) };
    print(&match answer["outcome"].as_str() {
        Some("gone") => format!("{target} is gone: nothing of it is left\n"),
        Some("not_ours") => format!("{target} is not the monitor's: a systemd unit owns its processes\n"),
        outcome => format!("{target}: {}\n", clean(outcome.unwrap_or_default())),
    })
    .map(|()| 0)
}

fn define_raise() -> Command {
    RAISE
        .command()
        .about("Give a service's cgroup room for two: the limits of both together")
        .after_help(format!("TIER is {}.", tier::HELP))
        .arg(json_option())
}

fn raise(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let (shim, words) = RAISE.read(place, matches)?;
    let parameters = json!({"incumbent": tier_of(&shim, words[0])?, "successor": tier_of(&shim, words[1])?});
    call(&shim, matches, "RaiseParent", &parameters, LIMITS_PATIENCE).map(|_| 0)
}

/// The limits that a word means.
fn tier_of(shim: &Shim, word: &str) -> Result<Value> {
    let is_number = word.parse::<u64>().is_ok() || word.starts_with("gen-");
    if is_number {
        let n = number(word)?;
        let status = shim.status()?;
        let mut generations = status["service"]["generations"].as_array().into_iter().flatten();
        return match generations.find(|generation| generation["n"] == n) {
            Some(generation) => Ok(generation["tier"].clone()),
            None => failure(format_args!("{} has no gen-{n}; dunnagectl status lists those it has", shim.label())),
        };
    }
    if word.contains('/') {
        return own_tier(shim, &absolute(word)?);
    }
    tier::parse(word).or_else(failure)
}

/// The limits of a staged build: its own, else the service's.
fn own_tier(shim: &Shim, path: &Path) -> Result<Value> {
    let own = if path.is_dir() { tier_of_bundle(path)? } else { tier_of_file(path)? };
    if !own.is_null() {
        return Ok(own);
    }
    match shim.status()?["service"]["tier"].take() {
        Value::Null => failure(format_args!("{} has no limits of its own: write its TIER", path.display())),
        default => Ok(default),
    }
}

/// From the manifest of an executable.
fn tier_of_file(path: &Path) -> Result<Value> {
    let mut manifest = path.as_os_str().to_owned();
    manifest.push(".manifest.json");
    match read_json(Path::new(&manifest)) {
        Ok(mut manifest) => Ok(manifest["tier"].take()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => failure(format_args!("cannot read {}: {error}", manifest.display())),
    }
}

/// From the annotations of a bundle.
fn tier_of_bundle(path: &Path) -> Result<Value> {
    let path = path.join("config.json");
    let config = read_json(&path).context(|| format!("cannot read {}", path.display()))?;
    let annotation =
        |key: &str| Some((key.to_owned(), config["annotations"].get(format!("org.dunnage.tier.{key}"))?.clone()));
    let tier: Map<String, Value> = tier::KEYS.into_iter().filter_map(annotation).collect();
    Ok(if tier.is_empty() { Value::Null } else { Value::Object(tier) })
}

fn read_json(path: &Path) -> io::Result<Value> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

fn define_restore() -> Command {
    RESTORE.command().about("Give a service's cgroup the limits of one generation again").arg(json_option())
}

fn restore(place: &Place, matches: &ArgMatches) -> Result<u8> {
    call_with_number(&RESTORE, place, matches, "RestoreParent", LIMITS_PATIENCE).map(|_| 0)
}

fn define_sidecar() -> Command {
    SIDECAR
        .command()
        .about("Start the sidecar from a generation's own build; it is started again when it ends")
        .arg(json_option())
}

fn sidecar(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let answer = call_with_number(&SIDECAR, place, matches, "StartSidecar", LIMITS_PATIENCE)?;
    if matches.get_flag("json") {
        return Ok(0);
    }
    print(&format!("the sidecar runs as process {}\n", answer["pid"])).map(|()| 0)
}

fn define_move() -> Command {
    MOVE.command()
        .about("Move a generation with all its processes into another cgroup, which is made for it")
        .args([timeout("10s", "All must be there by then: 500ms, 10s, 2m, or seconds"), json_option()])
}

fn move_(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let (shim, words) = MOVE.read(place, matches)?;
    let timeout = timeout_of(matches);
    let child = format!("gen-{}", number(words[0])?);
    let parameters = json!({"child": child, "cgroup": words[1], "timeout_ms": timeout.as_millis()});
    call(&shim, matches, "Move", &parameters, timeout + PATIENCE).map(|_| 0)
}

fn define_hold() -> Command {
    HOLD.command().about("Keep a build from cold starts, also after a restart of the monitor").arg(json_option())
}

fn hold(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let (shim, words) = HOLD.read(place, matches)?;
    call(&shim, matches, "Hold", &json!({"build": words[0], "reason": words[1]}), PATIENCE).map(|_| 0)
}

fn define_release() -> Command {
    RELEASE.command().about("Let a build that is held start again").arg(json_option())
}

fn release(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let (shim, words) = RELEASE.read(place, matches)?;
    call(&shim, matches, "Release", &json!({"build": words[0]}), PATIENCE).map(|_| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_a_number_or_a_target() {
        assert_eq!(number("7").unwrap(), 7);
        assert_eq!(number("gen-7").unwrap(), 7);
        for wrong in ["", "0", "gen-", "gen-0", "-1", "web", "gen-gen-7"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
    }
}
