//! What the runtime and the container are started with.

use std::fs::File;

use dunnage_testing::{Facts, Script, Step, script};

use crate::compare::{Change, compare};

/// A container that lives until the event.
fn until(event: &str) -> Script {
    Script::new([Step::report("payload.json"), Step::fire("reported"), Step::wait(event)])
}

/// Starts a container and notes what runtime and payload saw.
fn sees(test: &str, change: Change) {
    compare(test, |sandbox, tool, findings| {
        let (reported, end) = (sandbox.event("reported"), sandbox.event("end"));
        sandbox.script(&until("end"));
        let mut monitor = change(sandbox.monitor(tool)).start();
        let pid = monitor.pid();
        reported.wait();
        let runtime: Facts = sandbox.report(script::RUNTIME_FACTS);
        let payload: Facts = sandbox.report("payload.json");
        findings.hide(&pid, "PAYLOAD");
        findings.hide(&runtime.pid, "RUNTIME-PID");
        findings.hide(&monitor.started.pid(), "SHORT-SIDE");
        findings.note_facts("runtime", &runtime);
        findings.note("runtime: is the monitor's child", runtime.ppid == monitor.long().pid());
        findings.note("payload: descriptors", payload.fds.keys().collect::<Vec<_>>());
        for (number, fd) in payload.fds.range(..3) {
            let target = fd.target.split_once([':', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
            let target = target.map_or(fd.target.as_str(), |(kind, _)| kind);
            findings.note(format!("payload: descriptor {number}"), format!("{target} {}", fd.mode));
        }
        findings.note("payload: oom_score_adj", payload.oom_score_adj);
        findings.note("payload: SigIgn", payload.signals("SigIgn"));
        findings.note("payload: SigBlk", payload.signals("SigBlk"));
        end.fire();
        findings.note("exit code", monitor.exit_code());
    });
}

#[test]
fn runtime_sees() {
    sees("runtime_sees", |monitor| monitor);
}

#[test]
fn runtime_sees_with_stdin() {
    sees("runtime_sees_with_stdin", |monitor| monitor.flag("-i"));
}

#[test]
fn runtime_sees_with_a_terminal() {
    sees("runtime_sees_with_a_terminal", |monitor| monitor.flag("-t"));
}

#[test]
fn runtime_sees_the_callers_state() {
    sees("runtime_sees_the_callers_state", |monitor| {
        monitor.env("MARK", "a=b c").env("NOTIFY_SOCKET", "/nowhere").through(
            "cd /usr; echo 300 > /proc/self/oom_score_adj; \
             exec env --ignore-signal=USR1 --block-signal=WINCH",
        )
    });
}

#[test]
fn umask() {
    compare("umask", |sandbox, tool, findings| {
        sandbox.script(&Script::new([]));
        let mut monitor = sandbox.monitor(tool).through("umask 077; exec").start();
        monitor.messages();
        monitor.end();
        let runtime: Facts = sandbox.report(script::RUNTIME_FACTS);
        findings.note("runtime: Umask", &runtime.status["Umask"]);
        findings.note_tree("left", sandbox);
    });
}

#[test]
fn runtime_gets_inherited_descriptors() {
    sees("runtime_gets_inherited_descriptors", |monitor| {
        monitor.fd(File::open("/dev/zero").expect("/dev/zero").into(), 7)
    });
}

#[test]
fn runtime_gets_listening_sockets() {
    sees("runtime_gets_listening_sockets", |monitor| monitor.env("LISTEN_FDS", "1").env("LISTEN_PID", "1234567"));
    sees("runtime_gets_listening_sockets: of the short side", |monitor| {
        monitor.env("LISTEN_FDS", "1").through("export LISTEN_PID=$$; exec")
    });
}

#[test]
fn runtime_argv() {
    let cases: [(&str, Change); 9] = [
        ("runtime_argv: systemd cgroup", |monitor| monitor.flag("-s")),
        ("runtime_argv: no new keyring", |monitor| monitor.flag("--no-new-keyring")),
        ("runtime_argv: no pivot", |monitor| monitor.flag("--no-pivot")),
        ("runtime_argv: global arguments", |monitor| {
            monitor.also("--runtime-arg", "--root").also("--runtime-arg", "/a b").also("--runtime-arg", "")
        }),
        ("runtime_argv: options", |monitor| monitor.also("--runtime-opt", "--x").also("--runtime-opt", "y=z")),
        ("runtime_argv: with a terminal", |monitor| monitor.flag("--terminal").also("--runtime-opt", "--x")),
        ("runtime_argv: all", |monitor| {
            monitor
                .flag("--systemd-cgroup")
                .flag("--no-pivot")
                .flag("--no-new-keyring")
                .flag("-t")
                .flag("-i")
                .also("--runtime-arg", "--log")
                .also("--runtime-arg", "/l")
                .also("--runtime-opt", "--x")
        }),
        ("runtime_argv: bundle by default", |monitor| {
            monitor.without("-b").through(r#"cd "$DUNNAGE_SANDBOX/bundle"; exec"#)
        }),
        ("runtime_argv: pid file by default", |monitor| {
            monitor.without("-p").through(r#"cd "$DUNNAGE_SANDBOX/persist"; exec"#)
        }),
    ];
    for (case, change) in cases {
        compare(case, |sandbox, tool, findings| {
            sandbox.script(&Script::new([]));
            let mut monitor = change(sandbox.monitor(tool)).start();
            monitor.pid();
            let runtime: Facts = sandbox.report(script::RUNTIME_FACTS);
            findings.note_facts("runtime", &runtime);
            findings.note("exit code", monitor.exit_code());
            monitor.end();
            findings.note_tree("left", sandbox);
        });
    }
}
