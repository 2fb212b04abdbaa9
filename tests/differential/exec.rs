//! Processes beside the container's (`--exec`).

use std::fs::{self, File};

use dunnage_testing::{Facts, Script, Step, script};

use crate::compare::{Change, compare};
use crate::notes::{DIALECTS, hide_payload, note_end, note_failure, note_sync, reporting, sees, with_bundle};

/// How an exec may be called.
const CALLS: [(&str, Change); 7] = [
    ("without a bundle", |monitor| monitor),
    ("with a bundle", with_bundle),
    ("with stdin", |monitor| monitor.flag("-i")),
    ("with a terminal", |monitor| monitor.flag("-t")),
    ("with a terminal and a bundle", |monitor| with_bundle(monitor).flag("-t")),
    ("with a terminal, stdin and a bundle", |monitor| with_bundle(monitor).flag("-t").flag("-i")),
    ("with a socket directory", |monitor| with_bundle(monitor).socket_dir()),
];

#[test]
fn exec_sees() {
    for (call, change) in CALLS {
        // A Change holds no state, so the two are put together here.
        compare(&format!("exec_sees: {call}"), |sandbox, tool, findings| {
            let (reported, end) = (sandbox.event("reported"), sandbox.event("end"));
            sandbox.script(&reporting());
            let mut monitor = change(sandbox.monitor(tool).exec()).start();
            findings.hide(&monitor.pid(), "PAYLOAD");
            reported.wait();
            findings.note_facts("runtime", &sandbox.report(script::RUNTIME_FACTS));
            let payload: Facts = sandbox.report("payload.json");
            findings.note("payload: descriptors", payload.fds.keys().collect::<Vec<_>>());
            findings.note_tree("running", sandbox);
            end.fire();
            note_end(&mut monitor, sandbox, findings);
        });
    }
}

#[test]
fn exec_argv() {
    let cases: [(&str, Change); 5] = [
        ("exec_argv: systemd cgroup", |monitor| monitor.exec().flag("-s")),
        ("exec_argv: what is for create", |monitor| monitor.exec().flag("--no-pivot").flag("--no-new-keyring")),
        ("exec_argv: options", |monitor| {
            monitor.exec().also("--runtime-opt", "--x").also("--runtime-opt", "y=z").also("--runtime-opt", "")
        }),
        ("exec_argv: all", |monitor| {
            with_bundle(monitor.exec())
                .flag("-s")
                .flag("-t")
                .flag("-i")
                .also("--runtime-arg", "--root")
                .also("--runtime-arg", "/a b")
                .also("--runtime-opt", "--x")
                .also("--restore-arg", "--y")
        }),
        ("exec_argv: pid file by default", |monitor| {
            monitor.exec().without("-p").through(r#"cd "$DUNNAGE_SANDBOX/persist"; exec"#)
        }),
    ];
    for (test, change) in cases {
        sees(test, change);
    }
}

#[test]
fn exec_ends() {
    let exits = [0, 1, 126, 127, 128, 255].map(Step::Exit);
    let signals = [1, 2, 6, 9, 11, 15].map(Step::Raise);
    for step in exits.into_iter().chain(signals) {
        for (dialect, change) in DIALECTS {
            compare(&format!("exec_ends: {step:?}, {dialect}"), |sandbox, tool, findings| {
                let end = sandbox.event("end");
                sandbox.script(&Script::new([
                    Step::wait("end"),
                    Step::out("hello\n"),
                    Step::err("oh\n"),
                    step.clone(),
                ]));
                let mut monitor = change(sandbox.monitor(tool)).start();
                monitor.long();
                hide_payload(sandbox, findings);
                end.fire();
                note_end(&mut monitor, sandbox, findings);
            });
        }
    }
}

fn fails(test: &str, runtime: &[Step], change: Change) {
    for (dialect, speak) in DIALECTS {
        compare(&format!("{test}, {dialect}"), |sandbox, tool, findings| {
            sandbox.script(&Script::runtime(runtime).payload([Step::Hang]));
            let mut monitor = change(speak(sandbox.monitor(tool))).start();
            note_failure(&mut monitor, sandbox, findings);
        });
    }
}

#[test]
fn exec_fails() {
    let cases: [(&str, Vec<Step>); 8] = [
        ("exec_fails: with a message", vec![Step::err("no such command\n"), Step::Exit(255)]),
        ("exec_fails: with two lines", vec![Step::err("one\ntwo\n"), Step::Exit(1)]),
        ("exec_fails: with quotes", vec![Step::err("\"q\" \\ \t é /\n"), Step::Exit(1)]),
        ("exec_fails: on stdout", vec![Step::out("on stdout\n"), Step::Exit(1)]),
        ("exec_fails: silently", vec![Step::Exit(3)]),
        ("exec_fails: by a signal", vec![Step::err("dying\n"), Step::Raise(9)]),
        ("exec_fails: silently, by a signal", vec![Step::Raise(9)]),
        ("exec_fails: without a pid", vec![Step::Exit(0)]),
    ];
    for (test, runtime) in cases {
        fails(test, &runtime, |monitor| monitor);
    }
    fails("exec_fails: with a terminal", &[Step::err("no tty\n"), Step::Exit(1)], |monitor| monitor.flag("-t"));
    fails("exec_fails: with a bundle", &[Step::err("no\n"), Step::Exit(1)], with_bundle);
}

#[test]
fn exec_cannot_execute_the_runtime() {
    for (dialect, speak) in DIALECTS {
        compare(&format!("exec_cannot_execute_the_runtime: {dialect}"), |sandbox, tool, findings| {
            let runtime = sandbox.root().join("runtime");
            fs::write(&runtime, "#!/no/such/interpreter\n").expect("a file");
            fs::set_permissions(&runtime, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
            let mut monitor = speak(sandbox.monitor(tool)).option("-r", runtime).start();
            note_failure(&mut monitor, sandbox, findings);
        });
    }
}

/// Some runtimes report what their process did by their own status.
#[test]
fn exec_whose_runtime_fails_after_it_wrote_a_pid() {
    for (dialect, speak) in DIALECTS {
        compare(&format!("exec_whose_runtime_fails_after_it_wrote_a_pid: {dialect}"), |sandbox, tool, findings| {
            let end = sandbox.event("end");
            let [payload, console, pid] = Step::usual();
            let runtime = [payload, console, pid, Step::err("so what\n"), Step::Exit(4)];
            let payload = [Step::wait("end"), Step::out("hello\n"), Step::Exit(7)];
            sandbox.script(&Script::runtime(runtime).payload(payload));
            let mut monitor = speak(sandbox.monitor(tool)).start();
            monitor.long();
            hide_payload(sandbox, findings);
            end.fire();
            note_end(&mut monitor, sandbox, findings);
        });
    }
}

/// CRI-O makes the file to have its name to itself.
#[test]
fn exec_with_a_pid_file_made_by_the_caller() {
    let cases: [(&str, Script); 3] = [
        ("works", Script::new([Step::out("hello\n"), Step::Exit(7)])),
        ("fails", Script::runtime([Step::err("no such command\n"), Step::Exit(1)])),
        ("fails silently", Script::runtime([Step::Exit(1)])),
    ];
    for (case, script) in cases {
        for (dialect, speak) in DIALECTS {
            compare(
                &format!("exec_with_a_pid_file_made_by_the_caller: {case}, {dialect}"),
                |sandbox, tool, findings| {
                    sandbox.script(&script);
                    File::create(sandbox.pid_file()).expect("an empty file");
                    let mut monitor = speak(sandbox.monitor(tool)).start();
                    let mut messages = monitor.messages();
                    if case == "works" && messages.len() == 2 {
                        messages.remove(0);
                    }
                    findings.note("messages", messages);
                    findings.note("short side", monitor.status());
                    monitor.end();
                    findings.note_tree("left", sandbox);
                },
            );
        }
    }
}

#[test]
fn exec_sync() {
    let cases: [(&str, Script, Change); 5] = [
        ("works", Script::new([Step::out("hello\n"), Step::err("oh\n"), Step::Exit(0)]), |monitor| monitor),
        ("ends with a status", Script::new([Step::out("unfinished"), Step::Exit(9)]), |monitor| monitor),
        ("with a terminal", Script::new([Step::out("hello\n"), Step::Exit(9)]), |monitor| monitor.flag("-t")),
        ("is killed", Script::new([Step::Raise(9)]), |monitor| monitor),
        ("fails", Script::runtime([Step::err("no such command\n"), Step::Exit(1)]), |monitor| monitor),
    ];
    for (case, script, change) in cases {
        compare(&format!("exec_sync: {case}"), |sandbox, tool, findings| {
            sandbox.script(&script);
            let mut monitor = change(sandbox.monitor(tool).exec_sync()).start();
            note_sync(&mut monitor, sandbox, findings);
        });
    }
}

#[test]
fn exec_says_errors_alone() {
    for level in ["error", "warning", "debug"] {
        compare(&format!("exec_says_errors_alone: {level}"), |sandbox, tool, findings| {
            sandbox.script(&Script::new([Step::out("hello\n"), Step::Exit(4)]));
            let mut monitor = sandbox.monitor(tool).exec_sync().option("--log-level", level).start();
            findings.note("stdout", monitor.stdout());
            findings.note("stderr", monitor.stderr());
            findings.note("status", monitor.status());
        });
    }
}

#[test]
fn exec_options_are_refused() {
    let cases: [(&str, Change); 3] = [
        ("attach, legacy", |monitor| monitor.exec_attach().legacy()),
        ("API 1 without a uuid", |monitor| monitor.exec().without("-u")),
        ("attach without exec", |monitor| monitor.flag("--exec-attach")),
    ];
    for (case, change) in cases {
        compare(&format!("exec_options_are_refused: {case}"), |sandbox, tool, findings| {
            sandbox.script(&Script::new([]));
            let mut monitor = change(sandbox.monitor(tool)).start();
            findings.note("status", monitor.status());
            let said = monitor.stdout() + &monitor.stderr();
            let line = said.lines().next().unwrap_or_default();
            let begins = ["conmon: ", "[conmon:e] ", "[conmon:e]: ", "dunnage: error: "];
            findings.note("says", begins.iter().fold(line, |line, begin| line.strip_prefix(begin).unwrap_or(line)));
            findings.note_tree("left", sandbox);
        });
    }
}

#[test]
fn exec_runs_the_exit_command() {
    for (case, runtime) in [("works", Step::usual().to_vec()), ("fails", vec![Step::err("no\n"), Step::Exit(1)])] {
        compare(&format!("exec_runs_the_exit_command: {case}"), |sandbox, tool, findings| {
            sandbox.script(&Script::runtime(runtime.clone()).payload([Step::Exit(4)]));
            let steps = [Step::Tree("tree.json".to_owned()), Step::report("exit-command.json"), Step::Exit(0)];
            let monitor = with_bundle(sandbox.monitor(tool).exec()).exit_command(&steps);
            let mut monitor = monitor.option("--exit-delay", "1").start();
            monitor.messages();
            findings.note_facts("exit command", &sandbox.report("exit-command.json"));
            let mut tree: std::collections::BTreeMap<String, String> = sandbox.report("tree.json");
            tree.retain(|path, _| !path.contains(".json"));
            findings.note_paths("at its start", tree);
            monitor.end();
        });
    }
}
