//! How a container ends.

use std::fs;

use dunnage_testing::{Facts, Script, Step};

use crate::compare::{Change, compare};

#[test]
fn exit_files() {
    compare("exit_files", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::out("hello\n"), Step::err("oh\n"), Step::Exit(3)]));
        let mut monitor = sandbox.monitor(tool).start();
        let messages = monitor.messages();
        findings.hide(&messages[0]["data"], "PID");
        findings.note("messages", messages);
        findings.note("short side", monitor.status());
        findings.note("exit code", monitor.exit_code());
        monitor.end();
        findings.note("persistent exit code", fs::read_to_string(sandbox.persist().join("exit")).ok());
        findings.note("log", monitor.log().lines());
        findings.note("stdout", monitor.stdout());
        findings.note("stderr", monitor.stderr());
        findings.note_tree("left", sandbox);
    });
}

#[test]
fn exit_codes() {
    let exits = [0, 1, 3, 126, 127, 128, 255].map(Step::Exit);
    let signals = [1, 2, 6, 9, 11, 13, 14, 15].map(Step::Raise);
    for step in exits.into_iter().chain(signals) {
        compare(&format!("exit_codes: {step:?}"), |sandbox, tool, findings| {
            sandbox.script(&Script::new([step.clone()]));
            let mut monitor = sandbox.monitor(tool).start();
            monitor.pid();
            findings.note("exit code", monitor.exit_code());
            monitor.end();
            findings.note("persistent exit code", fs::read_to_string(sandbox.persist().join("exit")).ok());
        });
    }
}

#[test]
fn an_old_exit_file_is_replaced() {
    compare("an_old_exit_file_is_replaced", |sandbox, tool, findings| {
        let end = sandbox.event("end");
        sandbox.script(&Script::new([Step::wait("end"), Step::Exit(7)]));
        fs::write(sandbox.exit_file(), "42 and more").expect("an old exit file");
        fs::write(sandbox.persist().join("exit"), "42 and more").expect("an old exit file");
        let mut monitor = sandbox.monitor(tool).start();
        monitor.pid();
        findings.note("before the end", fs::read_to_string(sandbox.exit_file()).ok());
        monitor.long();
        end.fire();
        monitor.end();
        findings.note("exit code", fs::read_to_string(sandbox.exit_file()).ok());
        findings.note("persistent exit code", fs::read_to_string(sandbox.persist().join("exit")).ok());
    });
}

#[test]
fn exit_directories_are_optional() {
    let cases: [(&str, Change); 3] = [
        ("exit_directories_are_optional: none", |monitor| monitor.without("--exit-dir").without("--persist-dir")),
        ("exit_directories_are_optional: no persist", |monitor| monitor.without("--persist-dir")),
        ("exit_directories_are_optional: persist alone", |monitor| monitor.without("--exit-dir")),
    ];
    for (test, change) in cases {
        compare(test, |sandbox, tool, findings| {
            let end = sandbox.event("end");
            sandbox.script(&Script::new([Step::wait("end"), Step::Exit(7)]));
            let mut monitor = change(sandbox.monitor(tool)).exit_command(&[Step::report("exit-command.json")]).start();
            monitor.pid();
            monitor.long();
            end.fire();
            monitor.end();
            findings.note_tree("left", sandbox);
        });
    }
}

#[test]
fn exit_command_sees() {
    let cases: [(&str, Change); 3] = [
        ("exit_command_sees: usual", |monitor| monitor),
        ("exit_command_sees: with a socket directory", |monitor| monitor.socket_dir()),
        ("exit_command_sees: the caller's state", |monitor| {
            monitor.env("MARK", "a=b c").through(
                "cd /usr; echo 300 > /proc/self/oom_score_adj; \
                 exec env --ignore-signal=USR1 --block-signal=WINCH",
            )
        }),
    ];
    for (test, change) in cases {
        compare(test, |sandbox, tool, findings| {
            let end = sandbox.event("end");
            sandbox.script(&Script::new([Step::wait("end"), Step::out("bye\n"), Step::Exit(7)]));
            let steps = [Step::Tree("tree.json".to_owned()), Step::report("exit-command.json"), Step::Exit(0)];
            let mut monitor = change(sandbox.monitor(tool)).exit_command(&steps).start();
            monitor.pid();
            let long = monitor.long().pid();
            end.fire();
            let facts: Facts = sandbox.report("exit-command.json");
            findings.note_facts("exit command", &facts);
            findings.note("the monitor's child", facts.ppid == long);
            findings.note_paths("at its start", sandbox.report("tree.json"));
            monitor.end();
            findings.note_tree("left", sandbox);
        });
    }
}

#[test]
fn exit_command_decides_the_status() {
    for (command, payload) in [(0, 0), (0, 4), (5, 0), (5, 4)] {
        compare(&format!("exit_command_decides_the_status: {command}, {payload}"), |sandbox, tool, findings| {
            sandbox.script(&Script::new([Step::Exit(payload)]));
            let mut monitor = sandbox.monitor(tool).sync().exit_command(&[Step::Exit(command)]).start();
            findings.note("status", monitor.status());
        });
    }
}

#[test]
fn exit_command_is_missing() {
    compare("exit_command_is_missing", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::Exit(4)]));
        let mut monitor = sandbox.monitor(tool).sync().option("--exit-command", "/no/such/command").start();
        findings.note("status", monitor.status());
        findings.note("exit code", monitor.exit_code());
    });
}

#[test]
fn a_background_process_does_not_delay_the_end() {
    compare("a_background_process_does_not_delay_the_end", |sandbox, tool, findings| {
        let (started, end) = (sandbox.event("started"), sandbox.event("end"));
        let background = Step::Spawn(vec![Step::Setsid, Step::out("background\n"), Step::fire("started"), Step::Hang]);
        sandbox.script(&Script::new([background, Step::wait("end"), Step::out("last"), Step::Exit(2)]));
        let mut monitor = sandbox.monitor(tool).start();
        monitor.pid();
        started.wait();
        end.fire();
        findings.note("exit code", monitor.exit_code());
        findings.note("log", monitor.log().lines());
    });
}

#[test]
fn signals_are_passed_on() {
    for signal in [2, 3, 15] {
        compare(&format!("signals_are_passed_on: {signal}"), |sandbox, tool, findings| {
            let ready = sandbox.event("ready");
            sandbox.script(&Script::new([
                Step::Block(signal),
                Step::fire("ready"),
                Step::AwaitSignal(signal),
                Step::out("got it\n"),
                Step::Exit(9),
            ]));
            let mut monitor = sandbox.monitor(tool).start();
            monitor.pid();
            ready.wait();
            monitor.long().signal(signal);
            findings.note("exit code", monitor.exit_code());
            findings.note("log", monitor.log().lines());
        });
    }
}
