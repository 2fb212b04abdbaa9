//! `ps`, `status` and `events`.

use std::fs;

use dunnage_testing::{Sandbox, Script, Step};
use nix::libc;
use serde_json::json;

use crate::{ctl, event, execs_do, json_lines, running, shim};

#[test]
fn ps_lists_what_runs_in_columns() {
    let sandbox = Sandbox::new();
    let mut monitor = running(&sandbox);
    let text = ctl(&sandbox).run(&["ps"]).ok();
    let [headings, row] = text.lines().collect::<Vec<_>>()[..] else { panic!("two lines, not {text}") };
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(headings), ["ID", "NAME", "STATE", "SINCE", "PID", "EXECS", "COMMAND"]);
    let row = words(row);
    assert_eq!(row[..3], [sandbox.id(), "container", "running"]);
    assert_eq!(row[4], "s", "the time in words");
    let pid = fs::read_to_string(sandbox.pid_file()).expect("a pid file");
    assert_eq!(row[5..7], [pid.as_str(), "0"]);
    assert!(row[7].ends_with("fake-runtime"), "{row:?}");
    assert!(!text.contains('\u{1b}'), "colours are for terminals: {text:?}");
    let _ = monitor.status();
}

#[test]
fn ps_and_status_give_programs_what_the_monitor_answers() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    for args in [&["ps", "--json"][..], &["status", "--json", "0123"]] {
        let [status] = &json_lines(&ctl(&sandbox).run(args).ok())[..] else { panic!("one line") };
        assert_eq!((&status["id"], &status["name"]), (&json!(sandbox.id()), &json!("container")));
        assert_eq!(status["shim_pid"], monitor.long().pid());
        assert_eq!(status["bundle"], json!(sandbox.bundle()));
        assert_eq!(status["attach"], json!(sandbox.bundle().join("attach")));
        assert_eq!(status["logs"], json!([format!("k8s-file:{}", sandbox.log().display())]));
        assert_eq!(status["terminal"], false);
    }
}

#[test]
fn status_tells_the_logs_and_the_terminal_as_they_are() {
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let mut monitor = shim(&sandbox).flag("-t").option("-l", "none").without("-n").start();
    monitor.pid();
    let status = crate::status(&sandbox);
    assert_eq!((&status["logs"], &status["terminal"], &status["name"]), (&json!([]), &json!(true), &json!(null)));
    let text = ctl(&sandbox).fails(&["logs", "0123"]);
    assert!(text.contains("has no log"), "{text}");
}

#[test]
fn status_shows_processes_for_people() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let runs = sandbox.event("runs");
    execs_do(&sandbox, &Script::new([Step::fire(&event(&sandbox, "runs")), Step::Hang]));
    let exec = ctl(&sandbox).start(&["exec", "0123", "anything"]);
    runs.wait();
    let text = ctl(&sandbox).run(&["status", "0123"]).ok();
    for part in ["state     running, started ", " s ago", "monitor   pid ", "\nPROCESS ", "\ncontainer ", "\nexec-1 "] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    drop(exec);
}

#[test]
fn status_shows_a_runtime_that_runs() {
    let sandbox = Sandbox::with(&Script::runtime([Step::fire("called"), Step::Hang]));
    let called = sandbox.event("called");
    let _monitor = shim(&sandbox).start();
    called.wait();
    let text = ctl(&sandbox).run(&["status", "0123"]).ok();
    assert!(text.contains("state     starting") && text.contains("\nRUNTIME FOR "), "{text}");
}

#[test]
fn events_are_shown_from_the_subscription_to_the_containers_end() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    execs_do(&sandbox, &Script::new([Step::Exit(5)]));
    let mut people = ctl(&sandbox).start(&["events", "0123"]);
    let mut programs = ctl(&sandbox).start(&["events", "--json", "0123"]);
    people.expect("listening");
    programs.expect("subscribed");
    ctl(&sandbox).run(&["exec", "0123", "anything"]).exited(5);
    ctl(&sandbox).run(&["signal", "-s", "KILL", "0123"]).ok();
    let text = people.finish().ok();
    for part in
        ["exec-1     started (pid ", "exec-1     exited with status 5", "container  exited with status 137 (SIGKILL)"]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let events = json_lines(&programs.finish().ok());
    let kinds: Vec<_> = events.iter().map(|event| event["kind"].as_str().unwrap_or_default()).collect();
    assert_eq!(kinds[..3], ["subscribed", "started", "exited"]);
    assert_eq!(kinds.last(), Some(&"exited"));
    assert!(events.iter().all(|event| event["id"] == sandbox.id()), "{events:?}");
    monitor.end();
}

#[test]
fn events_of_all_include_containers_that_are_started_later() {
    let runtime = vec![Step::wait("go"), Step::Payload, Step::pid()];
    let sandbox = Sandbox::with(&Script { runtime, payload: vec![Step::Hang] });
    let go = sandbox.event("go");
    fs::create_dir(sandbox.control_dir()).expect("the directory");
    let mut all = ctl(&sandbox).start(&["events"]);
    // It says nothing until there is something: its watch is seen in its descriptors.
    dunnage_testing::wait::eventually(dunnage_testing::wait::Deadline::usual(), "the watch", || {
        let fds = dunnage_testing::descriptors(&all.process.proc_dir()).unwrap_or_default();
        fds.values().any(|fd| fd.target.contains("inotify"))
    });
    let mut monitor = shim(&sandbox).start();
    all.expect("  container     -          listening: ");
    go.fire();
    monitor.pid();
    all.expect("  container     container  started");
}

#[test]
fn events_end_with_a_failure_where_the_monitor_is_killed() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    let mut events = ctl(&sandbox).start(&["events", "0123"]);
    events.expect("listening");
    monitor.long().signal(libc::SIGKILL);
    let finished = events.finish();
    assert!(finished.stderr().contains("the monitor closed the connection"), "{finished:?}");
    finished.exited(125);
}
