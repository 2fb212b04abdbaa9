//! `exec` and `attach` between pipes.

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Out, Sandbox, Script, Sink, Status, Step, script};
use nix::libc;
use serde_json::json;

use crate::{ctl, event, execs_do, running, shim, status};

#[test]
fn exec_ends_as_the_command_does_and_keeps_its_streams_apart() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    execs_do(&sandbox, &Script::new([Step::out("to out\n"), Step::err("to err\n"), Step::Exit(42)]));
    let finished = ctl(&sandbox).run(&["exec", "0123", "anything"]);
    assert_eq!(finished.stderr(), "to err\n");
    assert_eq!(finished.exited(42), "to out\n");
    let socket = sandbox.control_dir().join(sandbox.id());
    let socket = socket.to_str().expect("a path in ASCII");
    ctl(&sandbox).run(&["--socket", socket, "exec", "anything", "-x"]).exited(42);
    // Of one that ends at once without a word as well, time after time.
    execs_do(&sandbox, &Script::new([Step::Raise(libc::SIGKILL)]));
    for _ in 0..10 {
        let finished = ctl(&sandbox).run(&["exec", "0123", "--", "anything"]);
        assert_eq!(finished.stderr(), "");
        finished.exited(137);
    }
}

#[test]
fn exec_passes_on_stdin_to_its_end_whatever_comes_back_meanwhile() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    execs_do(&sandbox, &Script::new([Step::run(&["/bin/cat"]), Step::Exit(3)]));
    // More than all that there is between the two.
    let noise = script::noise(8 << 20, 1);
    let mut exec = ctl(&sandbox).start(&["exec", "-i", "0123", "cat"]);
    exec.send(&noise);
    let finished = exec.finish();
    assert!(finished.stdout == noise, "{} of {} bytes came back", finished.stdout.len(), noise.len());
    assert_eq!(finished.status, Status::Exited(3));
    // Without -i it is /dev/null.
    let mut exec = ctl(&sandbox).start(&["exec", "0123", "cat"]);
    exec.send(b"not for it");
    assert_eq!(exec.finish().exited(3), "");
}

#[test]
fn exec_with_a_terminal_and_stdin_needs_one_itself() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let text = ctl(&sandbox).fails(&["exec", "-it", "0123", "anything"]);
    assert!(text.starts_with("-it needs a terminal"), "{text}");
}

#[test]
fn exec_passes_on_signals_and_is_left_by_sigquit() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let waits = sandbox.event("waits");
    let steps = [
        Step::Block(libc::SIGINT),
        Step::fire(&event(&sandbox, "waits")),
        Step::AwaitSignal(libc::SIGINT),
        Step::Exit(6),
    ];
    execs_do(&sandbox, &Script::new(steps));
    let exec = ctl(&sandbox).start(&["exec", "0123", "anything"]);
    waits.wait();
    catches(&exec.process, libc::SIGINT);
    exec.process.signal(libc::SIGINT);
    exec.finish().exited(6);

    let exec = ctl(&sandbox).start(&["exec", "0123", "anything"]);
    waits.wait();
    catches(&exec.process, libc::SIGINT);
    exec.process.signal(libc::SIGQUIT);
    let finished = exec.finish();
    assert!(finished.stderr().contains("SIGQUIT: exec-2 goes on"), "{finished:?}");
    finished.exited(128 + libc::SIGQUIT);
    assert_eq!(status(&sandbox)["processes"][1]["target"], "exec-2");
    ctl(&sandbox).run(&["signal", "--target", "exec-2", "-s", "9", "0123"]).ok();
}

/// Waits until a process has the signal blocked, to take it when it likes.
fn catches(process: &dunnage_testing::Process, signal: i32) {
    wait::eventually(Deadline::usual(), "a signal to be blocked", || {
        let status = dunnage_testing::status(&process.proc_dir()).expect("it runs");
        u64::from_str_radix(&status["SigBlk"], 16).expect("a mask") & (1 << (signal - 1)) != 0
    });
}

#[test]
fn exec_tells_its_own_failures_from_the_commands() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    execs_do(&sandbox, &Script::new([Step::Hang]));
    let finished = ctl(&sandbox).run(&["exec", "--timeout", "1s", "0123", "anything"]);
    assert!(finished.stderr().contains("exec-1 was killed: its timeout was over"), "{finished:?}");
    finished.exited(124);

    execs_do(&sandbox, &Script::runtime([Step::err("no such\nprogram\n"), Step::Exit(255)]));
    let text = ctl(&sandbox).fails(&["exec", "0123", "anything"]);
    assert!(text.ends_with("the runtime failed with status 255, and nothing runs: no such; program"), "{text}");
    let text = ctl(&sandbox).fails(&["exec", "0123"]);
    assert!(text.starts_with("which command?"), "{text}");
    std::fs::remove_file(sandbox.bundle().join("config.json")).expect("the configuration");
    let text = ctl(&sandbox).fails(&["exec", "0123", "anything"]);
    assert!(text.contains("config.json, after which processes are executed"), "{text}");

    let runs = sandbox.event("runs");
    execs_do(&sandbox, &Script::new([Step::fire(&event(&sandbox, "runs")), Step::Hang]));
    let exec = ctl(&sandbox).start(&["exec", "0123", "anything"]);
    runs.wait();
    catches(&exec.process, libc::SIGINT);
    monitor.long().signal(libc::SIGKILL);
    let finished = exec.finish();
    assert!(finished.stderr().contains("the monitor closed the connection without an answer to Exec"), "{finished:?}");
    finished.exited(125);
}

#[test]
fn exec_makes_its_process_after_the_containers_own() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    // What the runtime is given is gone once it has read it: here the runtime has it copied.
    let find = "tr '\\0' '\\n' </proc/$PPID/cmdline | grep '/process.json$'";
    let copy = Step::shell(&format!("cp $({find}) {}", sandbox.root().join("process.json").display()));
    let runtime = [Step::Spawn(vec![copy]), Step::wait(&event(&sandbox, "go")), Step::Payload, Step::pid()];
    let go = sandbox.event("go");
    execs_do(&sandbox, &Script::runtime(runtime).payload([Step::Exit(0)]));
    let args = ["exec", "-e", "NEW=1", "-w", "/tmp", "-u", "7:8", "0123", "ls", "-l", "--", "x"];
    let exec = ctl(&sandbox).start(&args);
    let process = wait::file(&sandbox.root().join("process.json"), Deadline::usual(), "the process", |process| {
        serde_json::from_slice::<serde_json::Value>(process?).ok()
    });
    go.fire();
    exec.finish().ok();
    assert_eq!(process["args"], json!(["ls", "-l", "--", "x"]));
    assert_eq!((&process["env"], &process["cwd"]), (&json!(["NEW=1"]), &json!("/tmp")));
    assert_eq!((&process["user"], &process["terminal"]), (&json!({"uid": 7, "gid": 8}), &json!(false)));
}

#[test]
fn attach_shows_the_output_and_ends_with_the_containers_status() {
    let go_on = |sandbox: &Sandbox| sandbox.event("go");
    let sandbox = Sandbox::with(&Script::new([Step::wait("go"), Step::out("o"), Step::err("e"), Step::Exit(9)]));
    let go = go_on(&sandbox);
    let mut monitor = shim(&sandbox).start();
    monitor.pid();
    let attach = ctl(&sandbox).start(&["attach", "--no-stdin", "0123"]);
    monitor.accepted(1);
    catches(&attach.process, libc::SIGINT);
    go.fire();
    let finished = attach.finish();
    assert_eq!((finished.stdout.as_slice(), finished.stderr.as_slice()), (&b"o"[..], &b"e"[..]));
    finished.exited(9);
    monitor.end();
    let text = ctl(&sandbox).fails(&["attach", "0123"]);
    assert!(text.starts_with("no container 0123 has a control socket"), "{text}");
}

#[test]
fn attach_passes_on_input_and_its_own_end_harms_no_container() {
    let sandbox = Sandbox::with(&Script::new([Step::Stdin(Some(5), Sink::Stdout), Step::Hang]));
    let mut monitor = shim(&sandbox).flag("-i").start();
    monitor.pid();
    let mut attach = ctl(&sandbox).start(&["attach", "0123"]);
    attach.send(b"hello");
    attach.expect("hello");
    attach.process.signal(libc::SIGINT);
    let finished = attach.finish();
    assert!(finished.stderr().contains("SIGINT: the container goes on"), "{finished:?}");
    finished.exited(130);
    assert_eq!(status(&sandbox)["state"], "running");
    assert_eq!(monitor.log().stream(Out::Stdout), b"hello");
}
