//! Deploys under load: no request fails, whatever comes, goes, breaks or dies.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Caller, Process, Tool, dunnagectl};
use nix::libc;
use nix::sys::ptrace;
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::limits::{self, MIB};
use crate::load::{Answers, Load, get};
use crate::service::{Service, Shim};

/// How often something is done: here, or in the small virtual machine, where there are limits and everything is slow.
fn rounds(here: u64, there: u64) -> u64 {
    if limits::are_possible_here() { there } else { here }
}

/// The limits of each generation.
fn tier() -> Value {
    if limits::are_possible_here() { limits::tier(64 * MIB, 50) } else { json!({}) }
}

/// Checks the limits of the service's cgroup: those of so many generations.
fn check_limits(service: &Service, count: u64) {
    if limits::are_possible_here() {
        assert_eq!(limits::limit(service.child(""), "memory.max"), (count * 64 * MIB).to_string());
        assert_eq!(limits::limit(service.child(""), "pids.max"), (count * 50).to_string());
    }
}

/// A service whose builds are web servers, and its first generation, which clients reach.
fn serving() -> (Service, Shim) {
    let more = json!({"tier": tier()});
    let service = if limits::are_possible_here() { limits::limited_with(more) } else { Service::with(|_| more) };
    let shim = service.start();
    let mut events = listen(&shim);
    shim.launch("Stage", &web(&service, 1)).unwrap();
    await_ready(&mut events, 1);
    shim.call("Switch", &json!({"n": 1}));
    (service, shim)
}

/// The parameters of its Stage.
fn web(service: &Service, number: u64) -> Value {
    let build = if number.is_multiple_of(2) { "even" } else { "odd" };
    json!({"n": number, "build": build, "staged_path": web_build(service, build)})
}

fn web_build(service: &Service, name: &str) -> std::path::PathBuf {
    let path = service.path("builds").join(name);
    if !path.exists() {
        fs::copy(Tool::web_server(), &path).unwrap();
    }
    path
}

fn listen(shim: &Shim) -> Caller {
    let mut events = shim.caller();
    events.ask_for_more("Events", &json!({}));
    events.event_of("subscribed");
    events
}

fn await_ready(events: &mut Caller, number: u64) {
    loop {
        let event = events.event_of("notified");
        let message = event["generation"]["message"].as_str().unwrap();
        if event["generation"]["n"] == number && message.lines().any(|line| line == "READY=1") {
            return;
        }
    }
}

fn await_exit(events: &mut Caller, number: u64) {
    while events.event_of("exited")["target"] != format!("gen-{number}") {}
}

/// When each generation was proven gone.
type Gone = BTreeMap<u64, Instant>;

/// None has answered what was asked after it was gone, and each has answered something.
fn check(answers: &Answers, gone: &Gone, service: &Service) {
    for (number, gone) in gone {
        if let Some((count, last)) = answers.get(number) {
            assert!(last < gone, "generation {number} was gone when it answered, after {count} others");
        }
        assert!(!service.child(&format!("gen-{number}")).exists(), "the cgroup of generation {number} is left");
    }
    let total: usize = answers.values().map(|(count, _)| count).sum();
    println!("{total} requests, of {} generations, none failed", answers.len());
}

#[test]
fn g16_deploys_under_load_lose_no_request() {
    let (service, shim) = serving();
    let load = Load::start(&service.canonical());
    let mut events = listen(&shim);
    let mut gone = Gone::new();
    let deploys = rounds(100, 10);
    for old in 1..=deploys {
        let new = old + 1;
        load.goes_on();
        shim.call("RaiseParent", &json!({"incumbent": tier(), "successor": tier()}));
        check_limits(&service, 2);
        shim.launch("Stage", &web(&service, new)).unwrap();
        await_ready(&mut events, new);
        shim.call("Ready", &json!({"n": new}));
        shim.call("Switch", &json!({"n": new}));
        if old % 10 == 0 {
            load.goes_on();
            shim.call("Switch", &json!({"n": old}));
            load.goes_on();
            shim.call("Switch", &json!({"n": new}));
        }
        shim.call("Signal", &json!({"target": format!("gen-{old}"), "signal": "TERM"}));
        await_exit(&mut events, old);
        let killed = shim.call("KillGeneration", &json!({"n": old, "timeout_ms": 10_000}));
        assert_eq!(killed, json!({"outcome": "gone"}));
        gone.insert(old, Instant::now());
        shim.call("RestoreParent", &json!({"n": new}));
        check_limits(&service, 1);
        assert_eq!(get(&service.canonical()).unwrap(), new);
    }
    let answers = load.finish();
    check(&answers, &gone, &service);
    assert_eq!(answers.keys().copied().collect::<Vec<_>>(), (1..=deploys + 1).collect::<Vec<_>>(), "{answers:?}");
}

/// Runs scripts/deploy for the service.
pub(crate) fn deploy(service: &Service, args: &[&str], build: &Path) -> Output {
    deploy_command(service, args, build).output().unwrap()
}

fn deploy_command(service: &Service, args: &[&str], build: &Path) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/deploy");
    let mut path = dunnagectl::path().parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(env::var_os("PATH").unwrap());
    // The socket's name there is the service's.
    let directory = service.path("control");
    let mut command = Command::new(script);
    command.env("PATH", path).env("DUNNAGE_CONTROL_DIR", directory.parent().unwrap());
    command.args(args).arg("control").arg(build);
    command
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_deploy_that_fails_is_undone_and_loses_no_request() {
    let (service, shim) = serving();
    let load = Load::start(&service.canonical());
    let silent = service.build_with("silent", &json!({"args": ["idle"]}));
    let dies = service.build_with("dies", &json!({"args": ["exit=3"]}));
    let forks = service.build_with("forks", &json!({"args": ["fork", "stubborn", "idle"]}));
    let sound = web_build(&service, "even");
    // Well before the switch, and not after it.
    let fails_later = format!("mkdir {}", service.path("asked").display());
    for (args, build, reason) in [
        (&["--ready-timeout", "300ms"][..], &silent, "gen-2 runs, and has not become ready in time"),
        (&[], &dies, "gen-3 ended with status 3 before it was ready"),
        (&["--ready-timeout", "300ms"], &forks, "gen-4 runs, and has not become ready in time"),
        (&["--health", "false", "--ready-timeout", "300ms"], &sound, "gen-5 was not healthy within 300ms"),
        (&["--gate-command", "echo not on Fridays >&2; false"], &sound, "nothing runs: not on Fridays"),
        (&["--digest", &format!("sha256:{}", "0".repeat(64))], &sound, "its digest is"),
        (&["--health", &fails_later], &sound, "clients reach gen-1 again"),
    ] {
        let output = deploy(&service, args, build);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(reason), "{reason:?} is not in {text}");
        // A gate or a check that refuses leaves nothing to undo but the limits.
        assert!(text.contains("undone: all is as it was, gen-1 serves\n"), "{text}");
        let status = shim.status();
        assert_eq!((&status["current"], status["generations"].as_array().unwrap().len()), (&json!(1), 1), "{status}");
        assert_eq!(
            fs::read_dir(service.child("")).unwrap().filter(|child| child.as_ref().unwrap().path().is_dir()).count(),
            1
        );
        load.goes_on();
    }
    // What it does when all is well.
    let output = deploy(&service, &[], &sound);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).ends_with("done: gen-7 serves\n"), "{}", said(&output));
    load.goes_on();
    let answers = load.finish();
    let answered: Vec<u64> = answers.keys().copied().collect();
    assert!(answered.first() == Some(&1) && answered.last() == Some(&7), "{answered:?}");
    assert!(answered.iter().all(|number| [1, 6, 7].contains(number)), "one that was never switched to: {answered:?}");
}

#[test]
fn a_deploy_kills_what_does_not_finish_in_time() {
    let (service, shim) = serving();
    let stubborn = service.build_with("stubborn", &json!({"args": ["stubborn", "fork"]}));
    let output = deploy(&service, &[], &stubborn);
    assert!(output.status.success(), "{}", said(&output));
    let output = deploy(&service, &["--drain", "300ms"], &web_build(&service, "even"));
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("gen-2 has not finished within 300ms: what it still had is lost"), "{text}");
    assert!(text.contains("nothing of gen-2 is left"), "{text}");
    assert_eq!(shim.status()["current"], 3);
    assert!(!service.child("gen-2").exists());
}

#[test]
fn a_deploy_refuses_what_it_cannot_do() {
    let (service, shim) = serving();
    let build = web_build(&service, "even");
    let refused = |args: &[&str], build: &Path| {
        let output = deploy(&service, args, build);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(refused(&["--force"], &build), "deploy: there is no option --force: see --help\n");
    assert_eq!(refused(&["--drain", "soon"], &build), "deploy: soon is no time: write 500ms, 30s or 2m\n");
    let none = service.path("builds/none");
    assert!(refused(&[], &none).contains("there is no build"));
    // One that another deploy has left.
    shim.launch("Stage", &web(&service, 2)).unwrap();
    assert!(refused(&[], &build).starts_with("deploy: control is not at rest: gen-2 is running"));
    assert_eq!(shim.status()["generations"].as_array().unwrap().len(), 2);
}

/// What a line of the script says is to be done, done.
fn follow(service: &Service, text: &str) {
    let (_, commands) = text.rsplit_once("dunnagectl kill").expect("what is to be done");
    let commands = format!("dunnagectl kill{}", commands.trim_end().replace(", then ", " && "));
    let mut path = dunnagectl::path().parent().unwrap().as_os_str().to_owned();
    path.push(":/usr/bin:/bin");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &commands]).env("PATH", path).env("DUNNAGE_CONTROL_DIR", service.path(""));
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{commands}: {}", said(&output));
}

#[test]
fn a_deploy_whose_old_one_is_not_proven_gone_ends_with_2() {
    let (service, shim) = serving();
    let pid = shim.generation(1)["pid"].as_i64().unwrap();
    let traced = Pid::from_raw(i32::try_from(pid).unwrap());
    // Who traces it learns of its end first, and does not look.
    ptrace::seize(traced, ptrace::Options::empty()).unwrap();
    let args = ["--drain", "300ms", "--kill-timeout", "300ms"];
    let output = deploy(&service, &args, &web_build(&service, "even"));
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("gen-2 serves, but gen-1 is not proven gone"), "{text}");
    assert_eq!(get(&service.canonical()).unwrap(), 2);
    nix::sys::wait::waitpid(traced, None).unwrap();
    follow(&service, &text);
    assert!(!service.child("gen-1").exists());
}

#[test]
fn a_deploy_whose_shim_dies_after_the_switch_ends_with_2() {
    let (service, shim) = serving();
    // Asked the second time, after the switch, the check kills the shim, and is content.
    let asked = service.path("asked");
    let health = format!("mkdir {} || kill -KILL {}", asked.display(), shim.process.pid());
    let output = deploy(&service, &["--health", &format!("{health} || true")], &web_build(&service, "even"));
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("gen-2 serves, but gen-1 is not proven gone"), "{text}");
    assert_eq!(get(&service.canonical()).unwrap(), 2);
    let shim = service.start();
    follow(&service, &text);
    let status = shim.status();
    assert_eq!((&status["current"], status["generations"].as_array().unwrap().len()), (&json!(2), 1), "{status}");
}

#[test]
fn a_deploy_that_is_told_to_stop_after_the_switch_ends_with_2() {
    let (service, shim) = serving();
    // The old one waits for its request.
    let slow = UnixStream::connect(service.canonical()).unwrap();
    let mut events = listen(&shim);
    let mut deploy = deploy_command(&service, &[], &web_build(&service, "even"));
    let deploy = deploy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !events.event_of("notified")["generation"]["message"].as_str().unwrap().contains("STOPPING=1") {}
    Process::open(deploy.id().try_into().unwrap()).expect("the deploy").signal(libc::SIGTERM);
    let output = deploy.wait_with_output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("told to stop") && text.contains("gen-2 serves, but gen-1 is not proven gone"), "{text}");
    drop(slow);
    follow(&service, &text);
    assert!(!service.child("gen-1").exists());
}

#[test]
fn a_deploy_that_cannot_be_undone_ends_with_3() {
    let (service, shim) = serving();
    // Asked the second time, after the switch, the check finds fault, and there is no way back.
    let [asked, socket] = [service.path("asked"), service.socket_of(1)];
    let health = format!("mkdir {} || {{ rm {}; false; }}", asked.display(), socket.display());
    let output = deploy(&service, &["--health", &health], &web_build(&service, "even"));
    let text = said(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("gen-2 does not hold") && text.contains("NOT undone: see above"), "{text}");
    // What clients reach is left to them.
    assert_eq!(get(&service.canonical()).unwrap(), 2);
    assert_eq!(shim.status()["generations"].as_array().unwrap().len(), 2);
}

/// Numbers that look random, and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// A shim that is killed now and then, and started anew each time.
struct Mortal<'a> {
    service: &'a Service,
    shim: Option<Shim>,
    random: Random,
    deaths: usize,
}

impl Mortal<'_> {
    fn shim(&self) -> &Shim {
        self.shim.as_ref().unwrap()
    }

    /// Calls a method; its answer, unless the shim dies before that.
    fn call(&mut self, method: &str, parameters: &Value, more: bool) -> Option<Result<Value, (String, Value)>> {
        let mut caller = self.shim().caller();
        if more {
            caller.ask_for_more(method, parameters);
        } else {
            caller.ask(method, parameters);
        }
        if self.random.below(2) == 0 {
            // The moment of its death is what is tried here, no wait for anything.
            thread::sleep(Duration::from_micros(self.random.below(6_000)));
            self.die();
            return None;
        }
        Some(crate::service::outcome(&caller.answer()))
    }

    fn die(&mut self) {
        self.shim.take().unwrap().kill();
        self.deaths += 1;
        self.shim = Some(self.service.start());
    }

    /// Sends SIGTERM, once or more often.
    fn terminate(&mut self, number: u64) {
        let parameters = json!({"target": format!("gen-{number}"), "signal": "TERM"});
        match self.call("Signal", &parameters, false) {
            None => self.terminate(number),
            // It had it before, and has ended.
            Some(answer) => {
                assert!(answer.is_ok() || self.shim().generation(number)["state"] != "running", "{answer:?}");
            }
        }
    }

    /// Calls it until it is answered.
    fn insist(&mut self, method: &str, parameters: &Value) -> Value {
        loop {
            match self.call(method, parameters, false) {
                Some(Ok(answer)) => return answer,
                Some(Err(error)) => panic!("{method} {parameters}: {error:?}"),
                None => {}
            }
        }
    }

    /// Stages builds from this number on until one runs: its number. What may run of others is proven gone.
    fn stage(&mut self, mut number: u64) -> u64 {
        loop {
            let answer = self.call("Stage", &web(self.service, number), true);
            match (answer, self.shim().generation(number)["state"].as_str()) {
                (Some(Err(error)), _) => panic!("{error:?}"),
                (Some(Ok(_)) | None, Some("running")) => return number,
                (Some(Ok(_)), state) => panic!("generation {number} was started and is {state:?}"),
                // Nothing ran, and its number may be used up.
                (None, None) => number = number.max(self.shim().status()["last"].as_u64().unwrap() + 1),
                (None, Some(_)) => {
                    assert_eq!(self.insist("Empty", &json!({"n": number, "timeout_ms": 10_000}))["outcome"], "gone");
                    number += 1;
                }
            }
        }
    }
}

#[test]
fn g29_generations_go_on_while_their_shim_dies_at_any_moment() {
    let seed = env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed);
    println!("SEED={seed}");
    let (service, shim) = serving();
    let load = Load::start(&service.canonical());
    let mut mortal = Mortal { service: &service, shim: Some(shim), random: Random(seed), deaths: 0 };
    let mut gone = Gone::new();
    let mut processes = BTreeMap::new();
    let mut old = 1;
    for _ in 0..rounds(20, 4) {
        load.goes_on();
        let new = mortal.stage(old + 1);
        wait::eventually(Deadline::usual(), "a server", || get(&service.socket_of(new)).is_ok());
        let pid = i32::try_from(mortal.shim().generation(new)["pid"].as_i64().unwrap()).unwrap();
        processes.insert(new, Process::open(pid).expect("its process"));
        mortal.insist("Ready", &json!({"n": new}));
        mortal.insist("Switch", &json!({"n": new}));
        assert_eq!(mortal.shim().status()["current"], new);
        mortal.terminate(old);
        let ended = || mortal.shim().generation(old)["state"] != "running";
        wait::eventually(Deadline::usual(), "the end of the old one", ended);
        let killed = mortal.insist("KillGeneration", &json!({"n": old, "timeout_ms": 10_000}));
        assert_eq!(killed, json!({"outcome": "gone"}));
        gone.insert(old, Instant::now());
        if let Some(process) = processes.remove(&old) {
            assert!(process.has_ended(), "generation {old} is gone and runs");
        }
        old = new;
    }
    let answers = load.finish();
    println!("{} deaths", mortal.deaths);
    check(&answers, &gone, &service);
    // Each began once; what it says then is its first line.
    let log = service.log();
    for number in 1..=old {
        let begun = log.lines().filter(|line| line.starts_with(&format!("generation {number} of "))).count();
        assert!(begun <= 1, "generation {number} was started {begun} times:\n{log}");
        assert!(begun == 1 || !answers.contains_key(&number), "the log has lost the line of {number}:\n{log}");
    }
}
