//! Containers from a checkpoint (`--restore`).

use std::fs;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Facts, Process, Script, Step, script};

use crate::compare::{Change, compare};
use crate::notes::{note_end, note_failure, sees};

#[test]
fn restore_argv() {
    let cases: [(&str, Change); 5] = [
        ("restore_argv", |monitor| monitor.option("--restore", "/some/checkpoint")),
        ("restore_argv: options", |monitor| {
            monitor.option("--restore", "/c").also("--runtime-opt", "--tcp-established").also("--runtime-opt", "--x")
        }),
        ("restore_argv: old options", |monitor| {
            monitor.option("--restore", "/c").also("--restore-arg", "--tcp-established").also("--runtime-opt", "--x")
        }),
        ("restore_argv: all", |monitor| {
            monitor
                .option("--restore", "/c")
                .flag("-s")
                .flag("--no-pivot")
                .flag("--no-new-keyring")
                .flag("-t")
                .flag("-i")
                .also("--runtime-arg", "--root")
                .also("--runtime-arg", "/a b")
                .also("--runtime-opt", "--x")
        }),
        ("restore_argv: bundle by default", |monitor| {
            monitor.option("--restore", "relative").without("-b").through(r#"cd "$DUNNAGE_SANDBOX/bundle"; exec"#)
        }),
    ];
    for (test, change) in cases {
        sees(test, change);
    }
}

#[test]
fn restore_succeeds() {
    for (dialect, speak) in [("API 1", (|monitor| monitor) as Change), ("legacy", |monitor| monitor.legacy())] {
        compare(&format!("restore_succeeds: {dialect}"), |sandbox, tool, findings| {
            let end = sandbox.event("end");
            sandbox.script(&Script::new([Step::wait("end"), Step::out("restored\n"), Step::Exit(5)]));
            let mut monitor = speak(sandbox.monitor(tool)).option("--restore", "/c").start();
            let message = monitor.message().expect("a message");
            findings.hide(&fs::read_to_string(sandbox.pid_file()).expect("the pid file"), "PAYLOAD");
            findings.note("message", message);
            monitor.long();
            end.fire();
            note_end(&mut monitor, sandbox, findings);
        });
    }
}

#[test]
fn restore_of_a_process_that_has_exited() {
    compare("restore_of_a_process_that_has_exited", |sandbox, tool, findings| {
        let dead = sandbox.event("dead");
        let [payload, console, pid] = Step::usual();
        sandbox.script(
            &Script::runtime([payload, Step::wait("dead"), console, pid]).payload([Step::out("bye\n"), Step::Exit(5)]),
        );
        let mut monitor = sandbox.monitor(tool).option("--restore", "/c").start();
        let runtime: Facts = sandbox.report(script::RUNTIME_FACTS);
        let runtime = Process::open(runtime.pid).expect("the runtime waits");
        wait::eventually(Deadline::usual(), "the process to have ended", || !runtime.zombies().is_empty());
        dead.fire();
        let message = monitor.message().expect("a message");
        findings.hide(&fs::read_to_string(sandbox.pid_file()).expect("the pid file"), "PAYLOAD");
        findings.note("message", message);
        note_end(&mut monitor, sandbox, findings);
    });
}

#[test]
fn restore_fails() {
    compare("restore_fails", |sandbox, tool, findings| {
        sandbox.script(&Script::runtime([Step::err("no such checkpoint\n"), Step::Exit(1)]));
        let mut monitor = sandbox.monitor(tool).option("--restore", "/c").start();
        note_failure(&mut monitor, sandbox, findings);
    });
}
