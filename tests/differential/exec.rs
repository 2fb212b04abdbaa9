//! Processes beside the container's (`--exec`), and containers from a checkpoint (`--restore`).

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Facts, Monitor, Out, Process, Running, Sandbox, Script, Step, Tool, script};

use crate::compare::{Change, Findings, compare};

/// An exec in both dialects.
const DIALECTS: [(&str, Change); 2] =
    [("API 1", |monitor| monitor.exec()), ("legacy", |monitor| monitor.exec().legacy())];

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

fn with_bundle(monitor: Monitor<'_>) -> Monitor<'_> {
    let bundle = monitor.sandbox().bundle();
    monitor.option("-b", bundle)
}

/// Reports what it sees, and lives until the event `end`.
fn reporting() -> Script {
    Script::new([Step::report("payload.json"), Step::fire("reported"), Step::wait("end"), Step::Exit(3)])
}

/// Notes what is on the pipes and in the files once all has ended.
fn note_end(monitor: &mut Running<'_>, sandbox: &Sandbox, findings: &mut Findings) {
    findings.note("messages", monitor.messages());
    findings.note("short side", monitor.status());
    monitor.end();
    findings.note("exit file", fs::read_to_string(sandbox.exit_file()).ok());
    findings.note("persistent exit file", fs::read_to_string(sandbox.persist().join("exit")).ok());
    findings.note("log", monitor.log().lines());
    findings.note("stdout", monitor.stdout());
    findings.note("stderr", monitor.stderr());
    findings.note_tree("left", sandbox);
}

/// Of a failed exec the words may differ, and so does what is left: see the table.
fn note_failure(monitor: &mut Running<'_>, sandbox: &Sandbox, findings: &mut Findings) {
    findings.note("messages", monitor.messages());
    findings.note("short side", monitor.status());
    monitor.end();
    findings.note_tree("left", sandbox);
}

/// Starts something and notes what it was started with.
fn sees(test: &str, change: Change) {
    compare(test, |sandbox, tool, findings| {
        let (reported, end) = (sandbox.event("reported"), sandbox.event("end"));
        sandbox.script(&reporting());
        let mut monitor = change(sandbox.monitor(tool)).start();
        let pid = monitor.pid();
        reported.wait();
        let runtime: Facts = sandbox.report(script::RUNTIME_FACTS);
        let payload: Facts = sandbox.report("payload.json");
        findings.hide(&pid, "PAYLOAD");
        findings.hide(&runtime.pid, "RUNTIME-PID");
        findings.hide(&monitor.started.pid(), "SHORT-SIDE");
        findings.hide(&monitor.long().pid(), "LONG-SIDE");
        findings.note_facts("runtime", &runtime);
        findings.note("runtime: is the monitor's child", runtime.ppid == monitor.long().pid());
        findings.note("payload: descriptors", payload.fds.keys().collect::<Vec<_>>());
        findings.note("payload: environment", &payload.env);
        findings.note_tree("running", sandbox);
        end.fire();
        note_end(&mut monitor, sandbox, findings);
    });
}

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
                let pid = wait::file_exists(&sandbox.pid_file(), Deadline::usual());
                findings.hide(&String::from_utf8(pid).expect("a pid"), "PAYLOAD");
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
            let pid = wait::file_exists(&sandbox.pid_file(), Deadline::usual());
            findings.hide(&String::from_utf8(pid).expect("a pid"), "PAYLOAD");
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
            // Its caller reads these to their ends before anything else.
            findings.note("stdout", monitor.stdout());
            findings.note("stderr", monitor.stderr());
            findings.note("messages", monitor.messages());
            findings.note("status", monitor.status());
            findings.note("log", monitor.log().lines());
            findings.note_tree("left", sandbox);
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

/// `LISTEN_FDS` and `LISTEN_PID` for all three jobs.
#[test]
fn listening_sockets() {
    type Job = (&'static str, Change);
    let jobs: [Job; 3] = [
        ("create", |monitor| monitor),
        ("exec", |monitor| monitor.exec()),
        ("restore", |monitor| monitor.option("--restore", "/c")),
    ];
    let cases: [(&str, Change); 6] = [
        ("of another", |monitor| monitor.env("LISTEN_PID", "1234567")),
        ("of another, replaced", |monitor| monitor.env("LISTEN_PID", "1234567").flag("--replace-listen-pid")),
        ("of the short side", |monitor| monitor.through("export LISTEN_PID=$$; exec")),
        ("of the short side, replaced", |monitor| {
            monitor.flag("--replace-listen-pid").through("export LISTEN_PID=$$; exec")
        }),
        ("without a pid", |monitor| monitor),
        ("without a pid, replaced", |monitor| monitor.flag("--replace-listen-pid")),
    ];
    for (job, begin) in jobs {
        for (case, change) in cases {
            compare(&format!("listening_sockets: {job}, {case}"), |sandbox, tool, findings| {
                let (reported, end) = (sandbox.event("reported"), sandbox.event("end"));
                sandbox.script(&reporting());
                let listener = TcpListener::bind("127.0.0.1:0").expect("a listening socket");
                let monitor = begin(sandbox.monitor(tool)).env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "web");
                // Where systemd puts it; the sync pipe moves out of its way.
                let mut monitor = change(monitor).listening(listener.into()).start();
                let pid = monitor.pid();
                reported.wait();
                let runtime: Facts = sandbox.report(script::RUNTIME_FACTS);
                let payload: Facts = sandbox.report("payload.json");
                findings.hide(&pid, "PAYLOAD");
                findings.hide(&runtime.pid, "RUNTIME-PID");
                findings.hide(&monitor.started.pid(), "SHORT-SIDE");
                findings.hide(&monitor.long().pid(), "LONG-SIDE");
                findings.note_facts("runtime", &runtime);
                findings.note("payload: environment", &payload.env);
                end.fire();
                findings.note("exit code", monitor.exit_code());
                monitor.end();
            });
        }
    }
}

#[test]
fn listen_pid_that_is_none() {
    for value in ["0", "-1", "abc", ""] {
        compare(&format!("listen_pid_that_is_none: {value:?}"), |sandbox, tool, findings| {
            sandbox.script(&Script::new([Step::Exit(4)]));
            let mut monitor = sandbox.monitor(tool).env("LISTEN_FDS", "1").env("LISTEN_PID", value).start();
            findings.note("failures", monitor.messages().iter().filter(|text| text.get("message").is_some()).count());
            findings.note("short side", monitor.status());
            monitor.end();
            findings.note("the runtime was started", sandbox.bundle().join(script::RUNTIME_FACTS).exists());
        });
    }
}

/// Descriptors of the caller's reach the runtime and its process, and are closed when the exit file appears.
#[test]
fn inherited_descriptors() {
    let jobs: [(&str, Change); 3] = [
        ("create", |monitor| monitor),
        ("exec", |monitor| monitor.exec()),
        ("restore", |monitor| monitor.option("--restore", "/c")),
    ];
    for (job, begin) in jobs {
        compare(&format!("inherited_descriptors: {job}"), |sandbox, tool, findings| {
            let (reported, end) = (sandbox.event("reported"), sandbox.event("end"));
            sandbox.script(&reporting());
            let zero = || File::open("/dev/zero").expect("/dev/zero").into();
            let monitor = begin(sandbox.monitor(tool)).fd(zero(), 7).fd(zero(), 21);
            // Alive after its end, so that its descriptors can be seen.
            let mut monitor = monitor.exit_command(&[]).option("--exit-delay", "60").start();
            monitor.pid();
            reported.wait();
            for who in [script::RUNTIME_FACTS, "payload.json"] {
                let facts: Facts = sandbox.report(who);
                for (number, fd) in facts.fds.range(3..) {
                    findings.note(format!("{who}: {number}"), fd);
                }
            }
            findings.note("the monitor's own", zeros(&monitor.long().proc_dir()));
            end.fire();
            monitor.exit_code();
            findings.note("the monitor's own at the exit file", zeros(&monitor.long().proc_dir()));
        });
    }
}

fn zeros(process: &Path) -> Vec<i32> {
    let fds = dunnage_testing::descriptors(process).expect("its descriptors");
    fds.into_iter().filter(|(_, fd)| fd.target == "/dev/zero").map(|(number, _)| number).collect()
}

#[test]
fn exec_times_out() {
    for (dialect, speak) in DIALECTS {
        compare(&format!("exec_times_out: {dialect}"), |sandbox, tool, findings| {
            sandbox.script(&Script::new([Step::Setsid, Step::out("hello\n"), Step::Hang]));
            let mut monitor = speak(sandbox.monitor(tool)).option("-T", "1").start();
            let pid = wait::file_exists(&sandbox.pid_file(), Deadline::usual());
            findings.hide(&String::from_utf8(pid).expect("a pid"), "PAYLOAD");
            note_end(&mut monitor, sandbox, findings);
        });
    }
}

#[test]
fn exec_sync_times_out() {
    compare("exec_sync_times_out", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::Setsid, Step::out("hello\n"), Step::Hang]));
        let mut monitor = sandbox.monitor(tool).exec_sync().option("--timeout", "1").start();
        findings.note("stdout", monitor.stdout());
        findings.note("stderr", monitor.stderr());
        findings.note("messages", monitor.messages());
        findings.note("status", monitor.status());
        findings.note("log", monitor.log().lines());
        findings.note_tree("left", sandbox);
    });
}

#[test]
fn a_container_times_out() {
    let jobs: [(&str, Change); 3] = [
        ("create", |monitor| monitor),
        ("create, legacy", |monitor| monitor.legacy()),
        ("restore", |monitor| monitor.option("--restore", "/c")),
    ];
    for (job, begin) in jobs {
        compare(&format!("a_container_times_out: {job}"), |sandbox, tool, findings| {
            sandbox.script(&Script::new([Step::Setsid, Step::out("hello\n"), Step::Hang]));
            let mut monitor = begin(sandbox.monitor(tool)).option("-T", "1").start();
            let pid = wait::file_exists(&sandbox.pid_file(), Deadline::usual());
            findings.hide(&String::from_utf8(pid).expect("a pid"), "PAYLOAD");
            note_end(&mut monitor, sandbox, findings);
        });
    }
}

#[test]
fn a_timeout_of_none() {
    for value in ["0", "-1"] {
        compare(&format!("a_timeout_of_none: {value}"), |sandbox, tool: &Tool, findings| {
            sandbox.script(&Script::new([Step::Sleep(1200), Step::Exit(8)]));
            let mut monitor = sandbox.monitor(tool).exec().option("-T", value).start();
            findings.hide(&monitor.pid(), "PAYLOAD");
            findings.note("messages", monitor.messages());
        });
    }
}
