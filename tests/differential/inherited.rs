//! Sockets and other descriptors of the caller's.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;

use dunnage_testing::{Facts, Script, Step, script};

use crate::compare::{Change, compare};
use crate::notes::{JOBS, reporting, reports};

/// `LISTEN_FDS` and `LISTEN_PID` for all three jobs.
#[test]
fn listening_sockets() {
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
    for (job, begin) in JOBS {
        for (case, change) in cases {
            compare(&format!("listening_sockets: {job}, {case}"), |sandbox, tool, findings| {
                let (reported, end) = (sandbox.event("reported"), sandbox.event("end"));
                sandbox.script(&reporting());
                let listener = TcpListener::bind("127.0.0.1:0").expect("a listening socket");
                let monitor = begin(sandbox.monitor(tool)).env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "web");
                // Where systemd puts it; the sync pipe moves out of its way.
                let mut monitor = change(monitor).listening(listener.into()).start();
                let (runtime, payload) = reports(&mut monitor, sandbox, &reported, findings);
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
    for (job, begin) in JOBS {
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
