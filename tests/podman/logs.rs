//! `podman logs`, and the log drivers.

use dunnage_testing::{Log, Out, Podman, Runtime, Status};
use std::fs;

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
