//! Processes that are killed at their timeouts.

use dunnage_testing::{Script, Step, Tool};

use crate::compare::{Change, compare};
use crate::notes::{DIALECTS, hide_payload, note_end, note_sync};

#[test]
fn exec_times_out() {
    for (dialect, speak) in DIALECTS {
        compare(&format!("exec_times_out: {dialect}"), |sandbox, tool, findings| {
            sandbox.script(&Script::new([Step::Setsid, Step::out("hello\n"), Step::Hang]));
            let mut monitor = speak(sandbox.monitor(tool)).option("-T", "1").start();
            hide_payload(sandbox, findings);
            note_end(&mut monitor, sandbox, findings);
        });
    }
}

#[test]
fn exec_sync_times_out() {
    compare("exec_sync_times_out", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::Setsid, Step::out("hello\n"), Step::Hang]));
        let mut monitor = sandbox.monitor(tool).exec_sync().option("--timeout", "1").start();
        note_sync(&mut monitor, sandbox, findings);
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
            hide_payload(sandbox, findings);
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
