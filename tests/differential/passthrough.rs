//! The container with the caller's own streams.

use std::path::Path;

use dunnage_testing::{Script, Sink, Step, descriptors};

use crate::compare::compare;

#[test]
fn passthrough_streams() {
    compare("passthrough_streams", |sandbox, tool, findings| {
        let stdin = Step::Stdin(None, Sink::File("stdin".to_owned()));
        sandbox.script(&Script::new([Step::out("out\n"), Step::err("err\n"), stdin, Step::Exit(3)]));
        let mut monitor = sandbox.monitor(tool).option("-l", "passthrough").flag("-i").start();
        findings.note("short side", monitor.status());
        findings.note("exit code", monitor.exit_code());
        findings.note("stdout", monitor.stdout());
        findings.note("stderr", monitor.stderr());
        monitor.end();
        findings.note_tree("left", sandbox);
    });
}

#[test]
fn passthrough_leaves_nothing_with_the_monitor() {
    compare("passthrough_leaves_nothing_with_the_monitor", |sandbox, tool, findings| {
        let close = [Step::Close(0), Step::Close(1), Step::Close(2), Step::fire("closed"), Step::Hang];
        let closed = sandbox.event("closed");
        sandbox.script(&Script::new(close));
        let mut monitor = sandbox.monitor(tool).option("-l", "passthrough").start();
        let payload = monitor.payload();
        closed.wait();
        findings.note("stdout ends", monitor.stdout());
        findings.note("stderr ends", monitor.stderr());
        let process = format!("/proc/{}", monitor.long().pid());
        let streams = descriptors(Path::new(&process)).expect("the monitor's descriptors");
        let streams: Vec<_> = (0..3).map(|number| streams[&number].target.clone()).collect();
        findings.note("the monitor's", streams);
        findings.note("attach", sandbox.bundle().join("attach").exists());
        payload.signal(9);
        findings.note("exit code", monitor.exit_code());
    });
}

#[test]
fn passthrough_beside_a_file() {
    compare("passthrough_beside_a_file", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::out("out\n")]));
        let monitor = sandbox.monitor(tool).also("-l", "passthrough").start();
        findings.note("exit code", monitor.exit_code());
        findings.note("stdout", monitor.stdout());
        monitor.end();
        findings.note("log", std::fs::read(sandbox.log()).ok());
        findings.note("attach", sandbox.bundle().join("attach").exists());
    });
}

#[test]
fn passthrough_of_a_runtime_that_fails() {
    compare("passthrough_of_a_runtime_that_fails", |sandbox, tool, findings| {
        sandbox.script(&Script::runtime([Step::err("it failed\n"), Step::Exit(1)]));
        let mut monitor = sandbox.monitor(tool).option("-l", "passthrough").start();
        findings.note("short side", monitor.status());
        findings.note("stderr", monitor.stderr().contains("it failed\n"));
        findings.note("a pid", monitor.messages().iter().any(|message| message["data"].as_i64() > Some(0)));
        monitor.end();
        findings.note_tree("left", sandbox);
    });
}
