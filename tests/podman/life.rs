//! The life of a container in the background.

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Podman, Runtime, Tool};
use std::fs;

#[test]
fn in_the_background() {
    let podman = Podman::new(Runtime::Runc);
    podman.run(&["run", "--name", "c", "--detach"], &["sh", "-c", "echo out; echo err >&2; exit 3"]).ok();
    assert_eq!(podman.ok(&["wait", "c"]), "3\n");
    let logs = podman.command(&["logs", "c"]);
    assert_eq!(logs.stderr(), "err\n");
    assert_eq!(logs.ok(), "out\n");
    podman.ok(&["rm", "c"]);
    assert_eq!(podman.ok(&["ps", "--all", "--quiet"]), "");
}

#[test]
fn stopped() {
    let podman = Podman::new(Runtime::Runc);
    podman.run(&["run", "--name", "polite", "-d"], &["sh", "-c", "trap 'exit 7' TERM; sleep 1000 & wait"]).ok();
    podman.run(&["run", "--name", "stubborn", "-d"], &["sleep", "1000"]).ok();
    let waiting = podman.start(&["wait", "polite", "stubborn"]);
    podman.ok(&["stop", "polite"]);
    podman.ok(&["stop", "--time", "0", "stubborn"]);
    // The shell may not have set its trap yet when the signal comes.
    let codes = waiting.finish().ok();
    assert!(codes == "7\n137\n", "{codes}");
    podman.ok(&["rm", "polite", "stubborn"]);
}

#[test]
fn signalled_and_restarted() {
    let podman = Podman::new(Runtime::Runc);
    let script = "trap 'echo hup' HUP; trap 'exit 7' TERM; echo ready; while :; do sleep 1000 & wait $!; done";
    podman.run(&["run", "--name", "c", "-d"], &["sh", "-c", script]).ok();
    logs_are(&podman, "ready\n");
    let first = podman.monitor_of("c");
    podman.ok(&["kill", "--signal", "HUP", "c"]);
    logs_are(&podman, "ready\nhup\n");
    podman.ok(&["restart", "c"]);
    first.wait_end(Deadline::usual(), "the first monitor");
    logs_are(&podman, "ready\nhup\nready\n");
    let second = podman.monitor_of("c");
    assert_ne!(first.pid(), second.pid());
    podman.ok(&["kill", "--signal", "TERM", "c"]);
    assert_eq!(podman.ok(&["wait", "c"]), "7\n");
    second.wait_end(Deadline::usual(), "the second monitor");
}

#[test]
fn paused() {
    let podman = Podman::new(Runtime::Runc);
    podman.run(&["run", "--name", "c", "-di"], &["cat"]).ok();
    let mut attach = podman.start(&["attach", "c"]);
    attach.send(b"before");
    attach.expect("before");
    podman.ok(&["pause", "c"]);
    assert_eq!(podman.inspect("c", "{{.State.Status}}"), "paused");
    // The monitor is not: it takes input for later.
    attach.send(b" and meanwhile");
    podman.ok(&["unpause", "c"]);
    attach.expect("before and meanwhile");
    // Podman adds the newline.
    assert_eq!(attach.finish().ok(), "before and meanwhile\n");
    assert_eq!(podman.ok(&["wait", "c"]), "0\n");
}

#[test]
fn inspected() {
    let podman = Podman::new(Runtime::Runc);
    podman.run(&["run", "--name", "c", "-di"], &["sh", "-c", "read line; exit 5"]).ok();
    let monitor = podman.monitor_of("c");
    assert_eq!(podman.inspect("c", "{{.State.ConmonPid}}"), monitor.pid().to_string());
    let binary = fs::read_link(monitor.proc_dir().join("exe")).expect("the monitor's binary");
    assert_eq!(binary, fs::canonicalize(Tool::under_test().path).expect("the binary under test"));
    let pid = podman.inspect("c", "{{.State.Pid}}");
    let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("the container's process");
    assert_eq!(words, "sh\0-c\0read line; exit 5\0");
    assert!(monitor.children().iter().any(|child| child.to_string() == pid), "the monitor is its parent");

    let mut attach = podman.start(&["attach", "c"]);
    attach.send(b"go\n");
    attach.finish().ok();
    assert_eq!(podman.ok(&["wait", "c"]), "5\n");
    assert_eq!(podman.inspect("c", "{{.State.Status}} {{.State.ExitCode}} {{.State.Pid}}"), "exited 5 0");
    assert_eq!(podman.inspect("c", "{{.State.OOMKilled}}{{.State.Error}}"), "false");
    monitor.wait_end(Deadline::usual(), "the monitor");
}

/// Waits until the logs are this: the container writes them when it comes to it.
fn logs_are(podman: &Podman, wanted: &str) {
    let path = podman.inspect("c", "{{.HostConfig.LogConfig.Path}}");
    wait::file(path.as_ref(), Deadline::usual(), &format!("the logs {wanted:?}"), |log| {
        let lines = String::from_utf8_lossy(log?).lines().count();
        (lines == wanted.lines().count()).then_some(())
    });
    assert_eq!(podman.ok(&["logs", "c"]), wanted);
}
