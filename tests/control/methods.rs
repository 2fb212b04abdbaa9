//! What the methods do to the container.

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Log, Out, Process, Sandbox, Script, Sink, Status, Step};
use nix::libc;
use serde_json::{Value, json};

use crate::{caller, process, running, shim, socket_of};

/// Whether it is RFC 3339 with nanoseconds.
fn is_time(text: &Value) -> bool {
    let text = text.as_str().unwrap_or_default();
    let pattern = "0000-00-00T00:00:00.000000000+00:00";
    text.len() == pattern.len()
        && text.chars().zip(pattern.chars()).all(|(is, should)| match should {
            '0' => is.is_ascii_digit(),
            '+' => "+-".contains(is),
            other => is == other,
        })
}

#[test]
fn status_says_what_runs_and_k5_since_when() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    let mut caller = caller(&sandbox);
    let status = caller.call("Status", &json!({}));
    assert_eq!(status["state"], "running");
    assert_eq!(status["shim_pid"], monitor.long().pid());
    assert_eq!(status["exit_code"], Value::Null);
    let container = &status["processes"][0];
    assert_eq!(container["target"], "container");
    assert_eq!(container["pid"].to_string(), fs::read_to_string(sandbox.pid_file()).expect("a pid file"));
    assert!(is_time(&container["started"]), "{container}");
    assert_eq!(status["calls"], json!([]));
}

#[test]
fn status_shows_a_create_in_progress_and_orphans() {
    let sandbox = Sandbox::new();
    let go = sandbox.event("go");
    let orphan = Step::Spawn(vec![Step::Spawn(vec![Step::Exit(0)]), Step::Exit(0)]);
    let runtime = [Step::wait("go"), Step::Payload, Step::pid()];
    sandbox.script(&Script::runtime(runtime).payload([orphan, Step::Hang]));
    let mut monitor = shim(&sandbox).option("--orphan-grace", "0.2").start();
    wait::eventually(Deadline::usual(), "the socket", || socket_of(&sandbox).exists());
    let mut caller = caller(&sandbox);
    wait::eventually(Deadline::usual(), "the call", || {
        let status = caller.call("Status", &json!({}));
        status["state"] == "starting" && status["calls"][0]["target"] == "container"
    });
    go.fire();
    monitor.pid();
    wait::eventually(Deadline::usual(), "an orphan that is swept", || {
        let status = caller.call("Status", &json!({}));
        status["counters"]["orphans_swept"].as_u64() > Some(0)
    });
}

#[test]
fn signal_reaches_the_container() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    let mut caller = caller(&sandbox);
    let refused = caller.refusal("Signal", &json!({"target": "exec-7", "signal": "TERM"}));
    assert_eq!(refused, ("org.dunnage.shim.NotFound".to_owned(), json!({"target": "exec-7"})));
    caller.call("Signal", &json!({"target": "container", "signal": "SIGUSR1"}));
    assert_eq!(monitor.exit_code(), (128 + libc::SIGUSR1).to_string());
}

#[test]
fn a_signal_to_all_that_ends_the_container_still_reaches_all() {
    let sandbox = Sandbox::new();
    let got = |number| sandbox.root().join(format!("got-{number}"));
    let ready = |number| sandbox.root().join(format!("ready-{number}"));
    let child = |number| {
        let (got, ready) = (got(number), ready(number));
        let noted = format!("trap \"echo got >{}; exit\" TERM; >{}", got.display(), ready.display());
        // What the shell says of its sleep's end would be the end of it: nobody reads that any more.
        format!("setsid sh -c '{noted}; while :; do sleep 0.05; done' 2>/dev/null & ")
    };
    let children: String = (0..20).map(child).collect();
    sandbox.script(&Script::new([Step::shell(&format!("{children} exec sleep 1000"))]));
    let mut monitor = shim(&sandbox).start();
    monitor.pid();
    wait::eventually(Deadline::usual(), "all of it", || (0..20).all(|number| ready(number).exists()));
    let mut caller = caller(&sandbox);
    caller.call("Signal", &json!({"target": "container", "signal": "TERM", "all": true}));
    assert_eq!(monitor.exit_code(), "143");
    monitor.end();
    wait::eventually(Deadline::usual(), "the signal in each process", || (0..20).all(|number| got(number).exists()));
}

#[test]
fn close_stdin_and_resize_do_what_ctl_and_clients_can() {
    let sandbox = Sandbox::with(&Script::new([Step::Stdin(None, Sink::Stdout), Step::Exit(4)]));
    let mut monitor = shim(&sandbox).flag("-i").flag("--leave-stdin-open").start();
    monitor.pid();
    let mut caller = caller(&sandbox);
    let (error, parameters) = caller.refusal("Resize", &json!({"target": "container", "height": 1, "width": 1}));
    assert_eq!((error.as_str(), parameters), ("org.varlink.service.InvalidParameter", json!({"parameter": "target"})));
    caller.call("CloseStdin", &json!({"target": "container"}));
    assert_eq!(monitor.exit_code(), "4");

    let sandbox = Sandbox::with(&Script::new([Step::AwaitSignal(libc::SIGWINCH), Step::shell("stty size")]));
    let mut monitor = shim(&sandbox).flag("-t").start();
    monitor.pid();
    let mut caller = crate::caller(&sandbox);
    let (error, _) = caller.refusal("CloseStdin", &json!({"target": "container"}));
    assert_eq!(error, "org.varlink.service.InvalidParameter");
    // Again and again, as the process may not wait for the signal yet.
    let mut height = 10;
    wait::eventually(Deadline::usual(), "the end of the process", || {
        height += 1;
        if sandbox.exit_file().exists() {
            return true;
        }
        caller.ask("Resize", &json!({"target": "container", "height": height, "width": 77}));
        caller.message();
        false
    });
    assert_eq!(monitor.exit_code(), "0");
    let log = fs::read_to_string(sandbox.log()).expect("a log");
    assert!(log.contains(" 77"), "{log}");
}

#[test]
fn reopen_logs_makes_a_new_file_at_once() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    fs::rename(sandbox.log(), sandbox.root().join("old.log")).expect("the log");
    caller(&sandbox).call("ReopenLogs", &json!({}));
    assert!(sandbox.log().exists());
}

#[test]
fn events_tell_what_happens_from_the_subscription_on() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    let mut subscriber = caller(&sandbox);
    subscriber.ask_for_more("Events", &json!({}));
    let first = subscriber.event();
    assert_eq!(first["kind"], "subscribed");
    assert!(is_time(&first["time"]), "{first}");

    let executed = caller(&sandbox).call("ExecSync", &json!({"process": process([Step::Exit(5)])}));
    assert_eq!(executed["exit_code"], 5);
    let started = subscriber.event();
    assert_eq!((&started["kind"], &started["target"]), (&json!("started"), &json!("exec-1")));
    let exited = subscriber.event();
    assert_eq!(
        (&exited["kind"], &exited["target"], &exited["exit_code"]),
        (&json!("exited"), &json!("exec-1"), &json!(5))
    );
    assert_eq!(exited["pid"], started["pid"]);

    monitor.long().signal(libc::SIGTERM);
    let exited = subscriber.event_of("exited");
    assert_eq!((&exited["target"], &exited["exit_code"]), (&json!("container"), &json!(128 + libc::SIGTERM)));
    subscriber.is_closed();
}

#[test]
fn output_that_no_log_took_is_counted_and_told() {
    let sandbox = Sandbox::new();
    let (go, more) = (sandbox.event("go"), sandbox.event("more"));
    sandbox.script(&Script::new([
        Step::out("before\n"),
        Step::wait("go"),
        Step::Lines(Out::Stdout, 5_000, 100),
        Step::wait("more"),
        Step::Lines(Out::Stderr, 5_000, 100),
    ]));
    // A log on a disk of 64 KiB.
    let dir = sandbox.root().join("small");
    fs::create_dir(&dir).expect("a directory");
    let small = "mount -t tmpfs -o size=64k tmpfs \"$DUNNAGE_SANDBOX/small\"; exec \"$@\"";
    let mut monitor = shim(&sandbox)
        .option("-l", format!("k8s-file:{}", dir.join("log").display()))
        .through(&format!("exec unshare -m --propagation private sh -c '{small}' sh"))
        .start();
    monitor.pid();
    // Held open, as the disk goes with the monitor.
    let seen = monitor.long().proc_dir().join("root").join(dir.strip_prefix("/").expect("absolute"));
    let mut file = File::open(seen.join("log")).expect("the log");
    let (mut caller, mut subscriber) = (caller(&sandbox), crate::caller(&sandbox));
    subscriber.ask_for_more("Events", &json!({}));
    assert_eq!(subscriber.event()["kind"], "subscribed");
    let mut counters = || caller.call("Status", &json!({}))["counters"].clone();
    wait::eventually(Deadline::usual(), "the first line", || counters()["lines_logged"] == 1);
    assert_eq!(counters()["bytes_dropped"], 0);

    go.fire();
    let first = subscriber.event_of("log_dropped")["count"].as_u64().expect("a count");
    assert!(first > 0);
    more.fire();
    // What was not told in between is told before the end: it makes a few events at most, not one for each loss.
    let (mut told, mut events) = (first, 1);
    loop {
        let event = subscriber.event();
        match event["kind"].as_str() {
            Some("log_dropped") => told += event["count"].as_u64().expect("a count"),
            Some("exited") => break,
            other => panic!("{other:?}"),
        }
        events += 1;
    }
    assert!(events <= 5, "{events} events");
    let mut log = Vec::new();
    file.read_to_end(&mut log).expect("the log");
    let log = Log::parse(&log);
    let logged = log.stream(Out::Stdout).len() + log.stream(Out::Stderr).len();
    let notes: usize =
        log.entries.iter().filter(|entry| entry.text.starts_with(b"dunnage: ")).map(|entry| entry.text.len() + 1).sum();
    let printed = "before\n".len() + 1_000_000;
    assert_eq!(told, (printed - (logged - notes)) as u64, "each byte is logged or told of");
}

#[test]
fn r19_a_shutdown_by_request_kills_what_does_not_end_and_answers_when_all_is_over() {
    let sandbox = Sandbox::with(&Script::new([Step::Block(libc::SIGTERM), Step::fire("ready"), Step::Hang]));
    let ready = sandbox.event("ready");
    let mut monitor = shim(&sandbox).start();
    monitor.pid();
    ready.wait();
    let mut subscriber = caller(&sandbox);
    subscriber.ask_for_more("Events", &json!({}));
    subscriber.event();
    let mut execer = caller(&sandbox);
    execer.ask("ExecSync", &json!({"process": process([Step::Hang])}));
    subscriber.event_of("started");
    let mut caller = caller(&sandbox);
    let refused = caller.refusal("Shutdown", &json!({"timeout_ms": 500}));
    assert_eq!(refused, ("org.varlink.service.InvalidParameter".to_owned(), json!({"parameter": "timeout_ms"})));

    caller.ask("Shutdown", &json!({"timeout_ms": 2500}));
    subscriber.event_of("shutting_down");
    let (refused, _) = crate::caller(&sandbox).refusal("ExecSync", &json!({"process": process([Step::Exit(0)])}));
    assert_eq!(refused, "org.dunnage.shim.ShuttingDown");
    let answer = caller.answer();
    assert_eq!(answer, json!({"parameters": {}}));
    // It is there when the answer is.
    assert_eq!(fs::read_to_string(sandbox.exit_file()).expect("the exit file"), "137");
    assert_eq!(execer.answer()["parameters"]["exit_code"], 137);
    monitor.end();
}

/// A cgroup of the v1 freezer: what is frozen in it does not die of SIGKILL.
struct Freezer(PathBuf);

impl Freezer {
    /// None where the machine has no such hierarchy.
    fn new() -> Option<Self> {
        let dir = PathBuf::from(format!("/sys/fs/cgroup/freezer/dunnage-control-{}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        dir.join("freezer.state").exists().then_some(Self(dir))
    }

    fn set(&self, state: &str) {
        fs::write(self.0.join("freezer.state"), state).expect("the freezer's state");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.set("THAWED");
        // It is there until the test's processes, which it was thawed for, are dead.
        for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            if let Some(process) = pid.parse().ok().and_then(Process::open) {
                process.signal(libc::SIGKILL);
            }
        }
        if !wait::whether(Deadline::usual(), || fs::remove_dir(&self.0).is_ok()) {
            eprintln!("{} cannot be removed", self.0.display());
        }
    }
}

#[test]
fn r20_k4_a_shutdown_that_leaves_a_process_is_unproven_and_names_it() {
    let sandbox = Sandbox::new();
    // The first to go, as what is frozen does not die.
    let Some(freezer) = Freezer::new() else {
        eprintln!("there is no freezer of cgroup v1 here, without which no process survives SIGKILL");
        return;
    };
    let enter = format!("echo $PPID > {}/cgroup.procs", freezer.0.display());
    sandbox.script(&Script::new([Step::run(&["/bin/sh", "-c", &enter]), Step::fire("ready"), Step::Hang]));
    let ready = sandbox.event("ready");
    let mut monitor = shim(&sandbox).start();
    let payload = monitor.payload();
    ready.wait();
    freezer.set("FROZEN");
    let mut caller = caller(&sandbox);
    let (error, parameters) = caller.refusal("Shutdown", &json!({"timeout_ms": 2500}));
    assert_eq!((error.as_str(), &parameters["left"]), ("org.dunnage.shim.Unproven", &json!([payload.pid()])));
    assert!(!sandbox.exit_file().exists(), "no exit was seen");
    monitor.end();
    assert!(!sandbox.exit_file().exists(), "no exit was seen");
    freezer.set("THAWED");
    payload.wait_end(Deadline::usual(), "the process, once it can die");
}

#[test]
fn r21_a_shutdown_stops_a_create_in_progress() {
    let sandbox = Sandbox::with(&Script::runtime([Step::fire("called"), Step::Hang]));
    let in_progress = sandbox.event("called");
    let mut monitor = shim(&sandbox).start();
    in_progress.wait();
    let mut caller = caller(&sandbox);
    let (busy, _) = caller.refusal("ExecSync", &json!({"process": process([Step::Exit(0)])}));
    assert_eq!(busy, "org.dunnage.shim.Busy");
    caller.call("Shutdown", &json!({"timeout_ms": 2100}));
    let message = monitor.message().expect("a message");
    assert_eq!(message["data"], -1);
    assert!(message["message"].to_string().contains("shutting down"), "{message}");
    monitor.end();
}

#[test]
fn varlinks_own_methods_are_answered() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let mut caller = caller(&sandbox);
    caller.send(&json!({"method": "org.varlink.service.GetInfo"}));
    let info = caller.answer();
    assert_eq!(info["parameters"]["interfaces"], json!(["org.varlink.service", "org.dunnage.shim"]));
    for interface in ["org.varlink.service", "org.dunnage.shim"] {
        let method = "org.varlink.service.GetInterfaceDescription";
        caller.send(&json!({"method": method, "parameters": {"interface": interface}}));
        let text = caller.answer()["parameters"]["description"].to_string();
        assert!(text.contains(&format!("interface {interface}")), "{text}");
    }
    // A call that wants no answer gets none.
    caller.send(&json!({"method": "org.dunnage.shim.ReopenLogs", "oneway": true}));
    caller.send(&json!({"method": "org.dunnage.shim.Nothing", "oneway": true}));
    assert_eq!(caller.call("Status", &json!({}))["state"], "running");
}

#[test]
fn calls_of_a_client_that_leaves_at_once_are_carried_out() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    let mut leaving = caller(&sandbox);
    leaving.send(&json!({"method": "org.dunnage.shim.ReopenLogs", "oneway": true}));
    let signal = json!({"target": "container", "signal": "KILL"});
    leaving.send(&json!({"method": "org.dunnage.shim.Signal", "parameters": signal, "oneway": true}));
    drop(leaving);
    assert_eq!(monitor.exit_code(), "137");
}

#[test]
fn a_client_that_ends_its_half_still_gets_its_answers() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let mut caller = caller(&sandbox);
    for _ in 0..3 {
        caller.ask("Status", &json!({}));
    }
    caller.ask("ExecSync", &json!({"process": process([Step::Sleep(50), Step::Exit(6)])}));
    caller.stream.shutdown(std::net::Shutdown::Write).expect("shutdown");
    for _ in 0..3 {
        assert_eq!(caller.answer()["parameters"]["state"], "running");
    }
    assert_eq!(caller.answer()["parameters"]["exit_code"], 6);
    assert_eq!(caller.message(), None);
}

#[test]
fn the_control_socket_is_not_for_exec_mode() {
    let sandbox = Sandbox::new();
    let mut monitor = shim(&sandbox).flag("-e").option("--exec-process-spec", "/dev/null").start();
    assert_eq!(monitor.status(), Status::Exited(1));
    assert!(monitor.stderr().contains("--control-socket is for a container's own monitor"), "{}", monitor.stderr());
}

#[test]
fn an_execs_output_is_not_in_the_containers_log() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    caller(&sandbox).call("ExecSync", &json!({"process": process([Step::out("hello\n")])}));
    monitor.long().signal(libc::SIGTERM);
    monitor.exit_code();
    monitor.end();
    assert!(fs::read(sandbox.log()).expect("a log").is_empty());
}
