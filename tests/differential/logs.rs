//! The k8s-file.

use std::fs;

use dunnage_testing::{Log, Out, Sandbox, Script, Step, Tool, wait};

use crate::compare::{Change, Findings, compare};

/// Runs the payload to its end and notes the log.
fn logs(test: &str, payload: &[Step], change: Change) {
    compare(test, |sandbox, tool, findings| {
        sandbox.script(&Script::new(payload));
        let mut monitor = change(sandbox.monitor(tool)).start();
        monitor.pid();
        findings.note("exit code", monitor.exit_code());
        monitor.end();
        match fs::read(sandbox.log()) {
            Ok(log) => findings.note("log", Log::parse(&log).lines()),
            Err(error) => findings.note("log", error.kind()),
        }
        findings.note("stderr", monitor.stderr());
    });
}

#[test]
fn log_content() {
    let cases: [(&str, Vec<Step>); 9] = [
        ("log_content: nothing", vec![]),
        ("log_content: lines", vec![Step::out("a\nb\n\nc\n")]),
        ("log_content: unfinished line", vec![Step::out("a\nb")]),
        ("log_content: both streams", vec![Step::out("out\n"), Step::err("err\n"), Step::out("more")]),
        ("log_content: carriage returns", vec![Step::out("a\rb\r\n\0c\n")]),
        ("log_content: binary", vec![Step::Noise(Out::Stdout, 100_000, 1), Step::Noise(Out::Stderr, 50_000, 2)]),
        ("log_content: long lines", vec![Step::Lines(Out::Stdout, 5, 100_000)]),
        ("log_content: many lines", vec![Step::Lines(Out::Stdout, 20_000, 9), Step::Lines(Out::Stderr, 20_000, 8)]),
        ("log_content: a closed stream", vec![Step::Close(2), Step::out("a\n"), Step::Close(1)]),
    ];
    for (test, payload) in cases {
        logs(test, &payload, |monitor| monitor);
    }
}

#[test]
fn log_of_what_the_runtime_prints() {
    compare("log_of_what_the_runtime_prints", |sandbox, tool, findings| {
        let [payload, console, pid] = Step::usual();
        let runtime = [Step::out("runtime out\n"), Step::err("runtime err\n"), payload, console, pid];
        sandbox.script(&Script::runtime(runtime).payload([Step::out("payload\n")]));
        let mut monitor = sandbox.monitor(tool).start();
        monitor.pid();
        findings.note("exit code", monitor.exit_code());
        monitor.end();
        let mut lines = monitor.log().lines();
        // The two processes write side by side.
        lines.sort();
        findings.note("log", lines);
    });
}

#[test]
fn log_records() {
    compare("log_records", |sandbox, tool, findings| {
        let next = sandbox.event("next");
        let wait = || Step::wait("next");
        sandbox.script(&Script::new([
            Step::out("abc"),
            wait(),
            Step::out("def\nghi"),
            wait(),
            Step::err("oops\n"),
            wait(),
            Step::out("\n"),
            wait(),
            Step::out("rest"),
        ]));
        let mut monitor = sandbox.monitor(tool).start();
        for text in ["abc\n", "ghi\n", "oops\n"] {
            monitor.log_has(text);
            next.fire();
        }
        wait::file(&sandbox.log(), wait::Deadline::usual(), "the empty record", |log| {
            (Log::parse(log?).entries.len() == 5).then_some(())
        });
        next.fire();
        monitor.messages();
        monitor.end();
        let records: Vec<_> =
            monitor.log().entries.into_iter().map(|entry| (entry.stream, entry.partial, entry.text)).collect();
        findings.note("records", records);
    });
}

#[test]
fn log_paths() {
    let hello = [Step::out("hello\n")];
    let path = |sandbox: &Sandbox| sandbox.log().display().to_string();
    let cases: [(&str, Vec<String>); 7] = [
        ("log_paths: bare", vec!["LOG".into()]),
        ("log_paths: colon", vec![":LOG".into()]),
        ("log_paths: the last of two", vec!["k8s-file:/dev/null".into(), "k8s-file:LOG".into()]),
        ("log_paths: none beside another", vec!["k8s-file:LOG".into(), "none".into()]),
        ("log_paths: none", vec!["none".into()]),
        ("log_paths: off", vec!["off".into()]),
        ("log_paths: null", vec!["null".into()]),
    ];
    for (test, paths) in cases {
        compare(test, |sandbox, tool, findings| {
            sandbox.script(&Script::new(hello.clone()));
            let mut monitor = sandbox.monitor(tool).without("-l");
            for log in &paths {
                monitor = monitor.also("-l", log.replace("LOG", &path(sandbox)));
            }
            let mut monitor = monitor.start();
            findings.note("short side", monitor.status());
            findings.note("exit code", monitor.exit_code());
            monitor.end();
            findings.note_tree("left", sandbox);
            findings.note("log", fs::read(sandbox.log()).ok().map(|log| Log::parse(&log).lines()));
        });
    }
}

#[test]
fn log_to_a_device() {
    logs("log_to_a_device", &[Step::out("hello\n")], |monitor| monitor.option("-l", "k8s-file:/dev/null"));
}

#[test]
fn log_is_appended_to() {
    compare("log_is_appended_to", |sandbox, tool, findings| {
        let before = "2026-11-30T13:02:15.123456789+00:00 stdout F before\n";
        fs::write(sandbox.log(), before).expect("an old log");
        sandbox.script(&Script::new([Step::out("after\n")]));
        let mut monitor = sandbox.monitor(tool).start();
        monitor.messages();
        monitor.end();
        findings.note("log", monitor.log().lines());
    });
}

/// A container that prints a line at each event.
fn printing(sandbox: &Sandbox, tool: &Tool, findings: &mut Findings, while_running: impl Fn(&mut dyn FnMut(&str))) {
    let next = sandbox.event("next");
    let lines = ["one", "two", "three"];
    let steps = lines.iter().flat_map(|line| [Step::wait("next"), Step::out(&format!("{line}\n"))]);
    sandbox.script(&Script::new(steps.collect::<Vec<_>>()));
    let mut monitor = sandbox.monitor(tool).start();
    monitor.pid();
    let mut lines = lines.into_iter();
    while_running(&mut |control| {
        if !control.is_empty() {
            monitor.control(control);
            return;
        }
        next.fire();
        monitor.log_has(&format!(" {}\n", lines.next().expect("a line is left")));
    });
    monitor.messages();
    monitor.end();
    findings.note_tree("left", sandbox);
    findings.note("log", monitor.log().lines());
}

#[test]
fn log_is_reopened() {
    compare("log_is_reopened", |sandbox, tool, findings| {
        let old = sandbox.root().join("old.log");
        printing(sandbox, tool, findings, |step| {
            step("");
            fs::rename(sandbox.log(), &old).expect("the log can be renamed");
            step("2 0 0\n");
            wait::file_exists(&sandbox.log(), wait::Deadline::usual());
            step("");
            step("");
        });
        let old = fs::read(&old).expect("the old log");
        findings.note("old log", Log::parse(&old).lines());
    });
}

#[test]
fn log_size_is_limited() {
    compare("log_size_is_limited", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::Lines(Out::Stdout, 2000, 20)]));
        let mut monitor = sandbox.monitor(tool).option("--log-size-max", "4096").start();
        monitor.messages();
        monitor.end();
        let size = fs::metadata(sandbox.log()).expect("the log").len();
        findings.note("within the limit", size <= 4096);
        let log = monitor.log();
        findings.note("the last line is there", log.lines().last().cloned());
        findings.note_tree("left", sandbox);
    });
}

#[test]
fn log_size_without_a_limit() {
    for limit in ["0", "-1"] {
        compare(&format!("log_size_without_a_limit: {limit}"), |sandbox, tool, findings| {
            sandbox.script(&Script::new([Step::Lines(Out::Stdout, 2000, 20)]));
            let mut monitor = sandbox.monitor(tool).option("--log-size-max", limit).start();
            monitor.messages();
            monitor.end();
            findings.note("lines", monitor.log().lines().len());
        });
    }
}
