//! Group D: runtimes that hang, are late, or lie.

use std::fs;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Facts, Out, Process, Sandbox, Script, Step, script};

use crate::{SOON, dunnage};

/// The single message of a create that failed.
fn failure(monitor: &mut dunnage_testing::Running<'_>) -> String {
    let messages = monitor.messages();
    let [message] = messages.as_slice() else { panic!("not one message: {messages:?}") };
    assert_eq!(message["data"], -1, "{message}");
    message["message"].as_str().expect("it says why").to_owned()
}

/// What a process said about itself, and the process.
fn reported(sandbox: &Sandbox, file: &str) -> Process {
    let facts: Facts = sandbox.report(file);
    Process::open(facts.pid).expect("it lives")
}

#[test]
fn d02_a_runtime_that_hangs_is_killed_at_its_deadline() {
    let helper = Step::Spawn(vec![Step::report("helper.json"), Step::Hang]);
    let sandbox = Sandbox::with(&Script::runtime([helper, Step::Hang]));
    let mut monitor = dunnage(&sandbox).option("--runtime-timeout", "1").start();
    let helper = reported(&sandbox, "helper.json");
    let runtime = reported(&sandbox, script::RUNTIME_FACTS);
    let message = failure(&mut monitor);
    assert!(message.contains("timed out") || message.contains("timeout") || message.contains('1'), "{message}");
    runtime.wait_end(Deadline::after(SOON), "the runtime");
    helper.wait_end(Deadline::after(SOON), "what the runtime forked");
    monitor.end();
    assert!(!sandbox.pid_file().exists(), "no pid file");
    assert!(!sandbox.bundle().join("attach").exists(), "no socket");
    assert!(!sandbox.exit_file().exists(), "no exit file");
}

#[test]
fn d03_a_late_success_is_undone() {
    let runtime = [Step::Payload, Step::pid(), Step::Hang];
    let sandbox = Sandbox::with(&Script::runtime(runtime).payload([Step::report("payload.json"), Step::Hang]));
    let mut monitor = dunnage(&sandbox).option("--runtime-timeout", "1").start();
    let payload = reported(&sandbox, "payload.json");
    failure(&mut monitor);
    payload.wait_end(Deadline::usual(), "the payload of a failed create");
    monitor.end();
}

#[test]
fn r15_a_runtime_that_fails_after_its_pid_leaves_no_payload() {
    let runtime = [Step::Payload, Step::pid(), Step::wait("go"), Step::err("late failure\n"), Step::Exit(1)];
    let sandbox = Sandbox::new();
    let go = sandbox.event("go");
    sandbox.script(&Script::runtime(runtime).payload([Step::report("payload.json"), Step::Hang]));
    let mut monitor = dunnage(&sandbox).start();
    let payload = reported(&sandbox, "payload.json");
    go.fire();
    assert_eq!(failure(&mut monitor), "late failure\n");
    payload.wait_end(Deadline::usual(), "the payload of a failed create");
}

#[test]
fn r13_a_chatty_runtime_is_no_deadlock() {
    let [payload, console, pid] = Step::usual();
    let size = 10_000_000;
    let runtime = [Step::Noise(Out::Stdout, size, 3), Step::Noise(Out::Stderr, size, 4), payload, console, pid];
    let sandbox = Sandbox::with(&Script::runtime(runtime).payload([Step::Exit(4)]));
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    assert_eq!(monitor.exit_code(), "4");
    monitor.end();
    assert!(monitor.log().is(&script::noise(size, 3), &script::noise(size, 4)), "what it printed is output");
}

#[test]
fn r13_a_chatty_container_is_no_deadlock_before_create_returns() {
    let sandbox = Sandbox::new();
    let done = sandbox.event("done");
    let size = 10_000_000;
    let runtime = [Step::Payload, Step::wait("done"), Step::pid()];
    let payload = [Step::Noise(Out::Stdout, size, 3), Step::fire("done"), Step::Exit(4)];
    sandbox.script(&Script::runtime(runtime).payload(payload));
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    assert_eq!(monitor.exit_code(), "4");
    monitor.end();
    assert!(monitor.log().is(&script::noise(size, 3), b""));
    drop(done);
}

#[test]
fn r13_clients_are_served_while_the_runtime_runs() {
    let sandbox = Sandbox::new();
    let (ready, go, end) = (sandbox.event("ready"), sandbox.event("go"), sandbox.event("end"));
    let runtime = [Step::Payload, Step::fire("ready"), Step::wait("go"), Step::pid()];
    let payload = [Step::cat(), Step::wait("end"), Step::Exit(4)];
    sandbox.script(&Script::runtime(runtime).payload(payload));
    let mut monitor = dunnage(&sandbox).flag("-i").start();
    ready.wait();
    let mut client = monitor.attach();
    client.send(b"hello\n");
    client.expect("hello\n");
    client.half_close();
    go.fire();
    monitor.pid();
    end.fire();
    assert_eq!(monitor.exit_code(), "4");
}

#[test]
fn r13_a_signal_before_the_pid_reaches_the_runtime() {
    let sandbox = Sandbox::new();
    let ready = sandbox.event("ready");
    sandbox.script(&Script::runtime([
        Step::Block(15),
        Step::fire("ready"),
        Step::AwaitSignal(15),
        Step::err("stopped\n"),
        Step::Exit(1),
    ]));
    let mut monitor = dunnage(&sandbox).start();
    ready.wait();
    monitor.long().signal(15);
    assert_eq!(failure(&mut monitor), "stopped\n");
}

#[test]
fn r2_a_payload_that_ends_before_the_runtime_keeps_its_code() {
    let sandbox = Sandbox::new();
    let go = sandbox.event("go");
    let runtime = [Step::Payload, Step::pid(), Step::fire("ready"), Step::wait("go")];
    let ready = sandbox.event("ready");
    sandbox.script(&Script::runtime(runtime).payload([Step::Exit(7)]));
    let mut monitor = dunnage(&sandbox).start();
    ready.wait();
    go.fire();
    monitor.pid();
    assert_eq!(monitor.exit_code(), "7");
}

#[test]
fn r10_a_pid_that_is_not_ours_fails_the_create() {
    let stranger = std::process::Command::new("sleep").arg("1000").spawn();
    let mut stranger = stranger.expect("sleep starts");
    for text in ["1", "0", "-5", "", "garbage", "12x", "99999999999999999999", &stranger.id().to_string()] {
        let sandbox = Sandbox::with(&Script::runtime([Step::PidFile(text.to_owned())]));
        let mut monitor = dunnage(&sandbox).start();
        let message = failure(&mut monitor);
        assert!(!message.is_empty(), "{text:?}");
        monitor.end();
        assert!(!sandbox.exit_file().exists(), "{text:?}");
    }
    assert!(stranger.try_wait().expect("our child").is_none(), "the stranger is left alone");
    stranger.kill().expect("our child");
    stranger.wait().expect("our child");
}

#[test]
fn r10_a_torn_pid_file_is_read_when_the_runtime_has_ended() {
    let sandbox = Sandbox::new();
    let (ready, rest) = (sandbox.event("ready"), sandbox.event("rest"));
    let torn = Step::TornPidFile(1, "rest".to_owned());
    sandbox.script(&Script::runtime([Step::Payload, Step::fire("ready"), torn]).payload([Step::Exit(7)]));
    let mut monitor = dunnage(&sandbox).start();
    ready.wait();
    wait::file(&sandbox.pid_file(), Deadline::usual(), "the first digit", |pid| (pid?.len() == 1).then_some(()));
    rest.fire();
    monitor.pid();
    assert_eq!(monitor.exit_code(), "7");
}

#[test]
fn r16_helpers_that_keep_the_output_open_delay_a_failure_by_a_bound() {
    let helper = Step::Spawn(vec![Step::Hang]);
    let sandbox = Sandbox::with(&Script::runtime([helper, Step::err("failed\n"), Step::Exit(1)]));
    let mut monitor = dunnage(&sandbox).start();
    assert_eq!(failure(&mut monitor), "failed\n");
}

#[test]
fn d10_a_log_that_nobody_reads_does_not_block_the_container() {
    let sandbox = Sandbox::new();
    let done = sandbox.event("done");
    nix_fifo(&sandbox.root().join("log"));
    let payload = [Step::Noise(Out::Stdout, 1 << 20, 1), Step::fire("done"), Step::Exit(3)];
    sandbox.script(&Script::new(payload));
    let mut monitor = dunnage(&sandbox).option("-l", sandbox.root().join("log")).start();
    // Whether a fifo without a reader is a log at all is decided before anything starts.
    if let Some(message) = monitor.message() {
        assert!(message["data"].as_i64() > Some(0), "{message}");
        done.wait();
        assert_eq!(monitor.exit_code_within(SOON), "3");
    } else {
        assert_eq!(monitor.status(), dunnage_testing::Status::Exited(1));
        assert_eq!(monitor.stderr().lines().count(), 1, "{}", monitor.stderr());
    }
}

#[test]
fn d10_a_log_directory_that_is_gone_does_not_block_the_container() {
    let sandbox = Sandbox::new();
    let (go, done) = (sandbox.event("go"), sandbox.event("done"));
    let dir = sandbox.root().join("logs");
    fs::create_dir(&dir).expect("a directory");
    let payload = [Step::wait("go"), Step::Noise(Out::Stdout, 1 << 20, 1), Step::fire("done"), Step::Exit(3)];
    sandbox.script(&Script::new(payload));
    let mut monitor = dunnage(&sandbox).option("-l", dir.join("log")).option("--log-size-max", "10000").start();
    monitor.pid();
    fs::remove_dir_all(&dir).expect("the directory can be removed");
    monitor.control("2 0 0\n");
    go.fire();
    done.wait();
    assert_eq!(monitor.exit_code_within(SOON), "3");
}

fn nix_fifo(path: &std::path::Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo starts");
    assert!(made.success());
}
