//! How a container ends.

use dunnage_testing::{Script, Step};

use crate::compare::compare;

#[test]
fn exit_files() {
    compare("exit_files", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::out("hello\n"), Step::err("oh\n"), Step::Exit(3)]));
        let mut monitor = sandbox.monitor(tool).start();
        let messages = monitor.messages();
        let pid = messages[0]["data"].clone();
        findings.hide(pid, "PID");
        findings.note("messages", messages);
        findings.note("short side", monitor.status());
        findings.note("exit code", monitor.exit_code());
        monitor.end();
        findings.note("log", monitor.log().lines());
        findings.note("stdout", monitor.stdout());
        findings.note("stderr", monitor.stderr());
        findings.note_tree("left", sandbox);
    });
}
