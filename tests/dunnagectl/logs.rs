//! `logs`.

use std::fs;

use dunnage_testing::{Out, Sandbox, Script, Step};
use nix::libc;

use crate::{ctl, json_lines, shim};

#[test]
fn logs_show_streams_apart_from_the_line_that_is_wanted_on() {
    // Of two streams only what was logged before comes first.
    let steps = [Step::out("one\n"), Step::err("two\n"), Step::wait("go"), Step::out("three\nno end"), Step::Hang];
    let sandbox = Sandbox::with(&Script::new(steps));
    let go = sandbox.event("go");
    let mut monitor = shim(&sandbox).start();
    monitor.pid();
    monitor.log_has("one");
    monitor.log_has("two");
    go.fire();
    monitor.log_has("no end");
    let finished = ctl(&sandbox).run(&["logs", "0123"]);
    assert_eq!(finished.stderr(), "two\n");
    assert_eq!(finished.ok(), "one\nthree\nno end");
    assert_eq!(ctl(&sandbox).run(&["logs", "--tail", "2", "0123"]).ok(), "three\nno end");
    let text = ctl(&sandbox).run(&["logs", "-n", "1", "-t", "0123"]).ok();
    let (time, rest) = text.split_once(' ').expect("a time");
    assert!(time.len() > 20 && rest == "no end", "{text}");
    let records = json_lines(&ctl(&sandbox).run(&["logs", "--json", "0123"]).ok());
    let of_stderr: Vec<_> = records.iter().filter(|record| record["stream"] == "stderr").collect();
    assert_eq!((of_stderr.len(), &of_stderr[0]["text"]), (1, &"two".into()));
    assert_eq!((records.len(), &records[3]["partial"]), (4, &true.into()));
}

#[test]
fn logs_are_followed_through_new_files_to_the_containers_end() {
    let sandbox = Sandbox::with(&Script::new([
        Step::out("first\n"),
        Step::wait("go"),
        Step::Lines(Out::Stdout, 20_000, 100),
        Step::wait("end"),
        Step::out("last words"),
        Step::Exit(3),
    ]));
    let (go, end) = (sandbox.event("go"), sandbox.event("end"));
    // Many files, one after the other, while it is read.
    let rotate = shim(&sandbox).option("--log-size-max", "200000").flag("--log-rotate");
    let mut monitor = rotate.option("--log-max-files", "50").start();
    monitor.pid();
    monitor.log_has("first");
    let mut follower = ctl(&sandbox).start(&["logs", "-f", "0123"]);
    follower.expect("first\n");
    go.fire();
    follower.expect("19999");
    fs::rename(sandbox.log(), sandbox.root().join("old.log")).expect("the log");
    ctl(&sandbox).run(&["reopen-logs", "0123"]).ok();
    end.fire();
    let text = follower.finish().ok();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines.last()), ("first", Some(&"last words")));
    // Each begins with its number.
    let numbers = lines[1..lines.len() - 1].iter().map(|line| line.trim_end_matches('.').parse::<usize>());
    assert!(numbers.eq((0..20_000).map(Ok)), "lines are missing: there are {}", lines.len());
    assert_eq!(monitor.exit_code(), "3");
}

#[test]
fn logs_elsewhere_are_pointed_at_and_a_monitor_that_dies_is_told() {
    let sandbox = Sandbox::with(&Script::new([Step::out("text\n"), Step::Hang]));
    let mut monitor = shim(&sandbox).start();
    monitor.pid();
    monitor.log_has("text");
    let mut follower = ctl(&sandbox).start(&["logs", "-f", "0123"]);
    follower.expect("text\n");
    monitor.long().signal(libc::SIGKILL);
    let finished = follower.finish();
    assert!(finished.stderr().contains("the monitor closed the connection"), "{finished:?}");
    finished.exited(125);

    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let mut monitor = shim(&sandbox).option("-l", "journald").start();
    monitor.pid();
    let text = ctl(&sandbox).fails(&["logs", "0123"]);
    assert!(text.ends_with("logs to the journal: journalctl CONTAINER_ID_FULL=0123456789abcdef-container"), "{text}");
}
