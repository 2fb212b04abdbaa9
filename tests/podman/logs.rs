//! `podman logs`, and the log drivers.

use dunnage_testing::{Log, Out, Podman, Runtime, Status};
use std::process::Command;
use std::{env, fs};

#[test]
fn followed_to_the_end() {
    let podman = Podman::new(Runtime::Runc);
    let script = "echo first; while read line; do echo $line; done; printf last";
    podman.run(&["run", "--name", "c", "-di"], &["sh", "-c", script]).ok();
    let mut follower = podman.start(&["logs", "--follow", "c"]);
    follower.expect("first\n");
    let mut attach = podman.start(&["attach", "c"]);
    attach.send(b"second\n");
    follower.expect("second\n");
    attach.finish().ok();
    let all = follower.finish().ok();
    // Podman ends a last line that has no end.
    assert_eq!(all.trim_end(), "first\nsecond\nlast");
}

#[test]
fn limited() {
    let podman = Podman::new(Runtime::Runc);
    podman.run(&["run", "--name", "c", "--log-opt", "max-size=10kb"], &["seq", "100000", "103000"]).ok();
    let path = podman.inspect("c", "{{.HostConfig.LogConfig.Path}}");
    let log = fs::read(&path).expect("the log");
    assert!(log.len() <= 10 << 10, "the log has {} bytes", log.len());
    let text = Log::parse(&log).stream(Out::Stdout);
    assert!(text.ends_with(b"102999\n103000\n"), "{}", text.escape_ascii());
    let numbers: Vec<u32> =
        String::from_utf8_lossy(&text).lines().map(|line| line.parse().expect("a number")).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
}

#[test]
fn none() {
    let podman = Podman::new(Runtime::Runc);
    let run = podman.run(&["run", "--name", "c", "--log-driver", "none"], &["echo", "seen, not kept"]);
    assert_eq!(run.ok(), "seen, not kept\n");
    let logs = podman.command(&["logs", "c"]);
    assert_ne!(logs.status, Status::Exited(0));
    assert!(logs.stderr().contains("none"), "{logs:?}");
}

#[test]
fn passthrough() {
    let podman = Podman::new(Runtime::Runc);
    let script = "echo out; cat; echo err >&2; exit 7";
    let mut run =
        podman.start_container(&["run", "--name", "c", "-i", "--log-driver", "passthrough"], &["sh", "-c", script]);
    run.send(b"input\n");
    let run = run.finish();
    assert_eq!(run.status, Status::Exited(7));
    assert_eq!((&*String::from_utf8_lossy(&run.stdout), &*run.stderr()), ("out\ninput\n", "err\n"));
}

#[test]
fn journald() {
    if !has_journal("logs::journald") {
        return;
    }
    let podman = Podman::new(Runtime::Runc);
    let script = "echo first; echo second >&2; printf last";
    let options = ["run", "--name", "c", "--log-driver", "journald", "--log-opt", "tag=shop"];
    podman.run(&options, &["sh", "-c", script]).ok();
    let logs = podman.command(&["logs", "c"]);
    let stdout = String::from_utf8_lossy(&logs.stdout);
    assert_eq!((stdout.trim_end(), logs.stderr().trim_end()), ("first\nlast", "second"));
    let entries =
        Command::new("journalctl").args(["-q", "-o", "cat", "CONTAINER_NAME=c", "SYSLOG_IDENTIFIER=shop"]).output();
    let text = String::from_utf8(entries.expect("journalctl runs").stdout).expect("text");
    let mut lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["first", "last", "second"]);
}

/// Whether this process is one that has a `/run` of its own with a journald; else the test is run in such a one.
fn has_journal(test: &str) -> bool {
    const HAS_JOURNAL: &str = "DUNNAGE_TEST_HAS_JOURNAL";
    const SCRIPT: &str = "mount -t tmpfs none /run; mkdir -p /run/systemd/journal /run/log/journal; \
        /lib/systemd/systemd-journald & trap \"kill $!\" EXIT; \
        for _ in $(seq 200); do [ -S /run/systemd/journal/socket ] && break; sleep 0.1; done; \"$@\"";
    if env::var_os(HAS_JOURNAL).is_some() {
        return true;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", SCRIPT, "sh"]);
    command.arg(env::current_exe().expect("the test's own path")).args(["--exact", "--nocapture", test]);
    let output = command.env(HAS_JOURNAL, "1").output().expect("the test starts again");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    false
}
