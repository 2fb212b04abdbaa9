//! Execs that wait for clients (`--exec-attach`).

use std::fs;

use dunnage_testing::{Out, Running, Sandbox, Script, Step, script};

use crate::compare::{Change, Findings, compare};
use crate::notes::{DIALECTS, with_bundle};

/// The ways to type into an exec, and what comes back.
#[test]
fn exec_attach() {
    let cases: [(&str, Change); 4] = [
        ("plain", |monitor| monitor),
        ("with stdin", |monitor| monitor.flag("-i")),
        ("with a terminal", |monitor| monitor.flag("-t")),
        ("with both", |monitor| monitor.flag("-t").flag("-i")),
    ];
    for (case, change) in cases {
        compare(&format!("exec_attach: {case}"), |sandbox, tool, findings| {
            let (go, started) = (sandbox.event("go"), sandbox.event("started"));
            let read =
                if case == "plain" { Step::wait("go") } else { Step::Stdin(Some(3), dunnage_testing::Sink::Stdout) };
            let payload = [Step::fire("started"), Step::wait("go"), Step::out("hello\n"), Step::err("oh\n"), read];
            sandbox.script(&Script::new([&payload[..], &[Step::Exit(6)]].concat()));
            let mut monitor = change(sandbox.monitor(tool).exec_attach()).start();
            findings.note("attach pipe", monitor.attach_message());
            findings.note("short side", monitor.status());
            findings.note_tree("waiting", sandbox);
            let runtime_started = sandbox.bundle().join(script::RUNTIME_FACTS).exists();
            findings.note("the runtime was started", runtime_started);
            let client = monitor.attach();
            if case != "plain" {
                client.send(b"yo\n");
            }
            monitor.go();
            started.wait();
            findings.hide(&monitor.pid(), "PAYLOAD");
            monitor.accepted(1);
            go.fire();
            go.fire();
            let output = client.receive_all();
            // The echo of a terminal comes before or after what the process prints.
            for stream in [Out::Stdout, Out::Stderr] {
                let mut lines: Vec<_> = output.of(stream).split_inclusive(|byte| *byte == b'\n').collect();
                lines.sort_unstable();
                let lines: Vec<_> = lines.into_iter().map(|line| line.escape_ascii().to_string()).collect();
                findings.note(format!("received {stream:?}"), lines);
            }
            findings.note("messages", monitor.messages());
            monitor.end();
            findings.note("exit file", fs::read_to_string(sandbox.exit_file()).ok());
            findings.note_tree("left", sandbox);
        });
    }
}

#[test]
fn exec_attach_fails() {
    compare("exec_attach_fails", |sandbox, tool, findings| {
        sandbox.script(&Script::runtime([Step::err("no such command\n"), Step::Exit(1)]));
        let mut monitor = sandbox.monitor(tool).exec_attach().start();
        findings.note("attach pipe", monitor.attach_message());
        monitor.go();
        findings.note("messages", monitor.messages());
        findings.note("short side", monitor.status());
        monitor.end();
        findings.note_tree("left", sandbox);
    });
}

#[test]
fn exec_attach_is_resized_before_it_starts() {
    compare("exec_attach_is_resized_before_it_starts", |sandbox, tool, findings| {
        // Runtimes hand the terminal over before they start the process: the fake one has its process wait.
        let go = sandbox.event("go");
        sandbox.script(&Script::new([Step::wait("go"), Step::run(&["stty", "size"]), Step::Exit(0)]));
        let mut monitor = sandbox.monitor(tool).exec_attach().flag("-t").start();
        monitor.attach_message();
        let client = monitor.attach();
        monitor.control("1 40 120\n");
        monitor.go();
        monitor.pid();
        monitor.accepted(1);
        go.fire();
        findings.note("received", client.receive_all());
    });
}

/// At which of the reads the caller hangs up.
#[test]
fn exec_whose_caller_gives_up() {
    for (dialect, speak) in DIALECTS {
        compare(&format!("exec_whose_caller_gives_up: at once, {dialect}"), |sandbox, tool, findings| {
            sandbox.script(&Script::new([Step::Exit(4)]));
            let mut monitor = speak(sandbox.monitor(tool)).hold().start();
            monitor.close_start();
            note_given_up(&mut monitor, sandbox, findings);
        });
    }
    compare("exec_whose_caller_gives_up: attach, at once", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::Exit(4)]));
        let mut monitor = sandbox.monitor(tool).exec_attach().hold().start();
        monitor.close_start();
        findings.note("attach pipe", monitor.attach_message());
        note_given_up(&mut monitor, sandbox, findings);
    });
    compare("exec_whose_caller_gives_up: attach, later", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::Exit(4)]));
        let mut monitor = sandbox.monitor(tool).exec_attach().exit_command(&[Step::report("exited.json")]).start();
        findings.note("attach pipe", monitor.attach_message());
        monitor.close_start();
        note_given_up(&mut monitor, sandbox, findings);
    });
}

fn note_given_up(monitor: &mut Running<'_>, sandbox: &Sandbox, findings: &mut Findings) {
    let mut messages = monitor.messages();
    // The pid of what conmon starts all the same.
    messages.retain(|message| message.get("message").is_some());
    findings.note("failures", messages);
    findings.note("short side", monitor.status());
    monitor.end();
    findings.note("the runtime was started", sandbox.bundle().join(script::RUNTIME_FACTS).exists());
    findings.note("an exit file", sandbox.exit_file().exists());
    findings.note("the attach socket is left", sandbox.bundle().join("attach").exists());
}

#[test]
fn exec_without_an_attach_pipe() {
    compare("exec_without_an_attach_pipe", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::Exit(4)]));
        let mut monitor = with_bundle(sandbox.monitor(tool).exec()).flag("--exec-attach").start();
        findings.note("status", monitor.status());
        let said = monitor.stdout() + &monitor.stderr();
        findings.note("says", said.contains("--attach specified but _OCI_ATTACHPIPE was not"));
        findings.note_tree("left", sandbox);
    });
}
