//! The k8s-file.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use dunnage_testing::{Log, Monitor, Out, Running, Sandbox, Script, Status, Step, Tool, script};

/// Runs a container to its end.
fn run(sandbox: &Sandbox, payload: &[Step], change: impl for<'a> FnOnce(Monitor<'a>) -> Monitor<'a>) {
    sandbox.script(&Script::new(payload));
    let mut monitor = change(sandbox.monitor(&Tool::under_test())).start();
    monitor.pid();
    assert_eq!(monitor.exit_code(), "0");
    monitor.end();
}

fn read(path: impl Into<PathBuf>) -> Log {
    Log::parse(&fs::read(path.into()).expect("a log"))
}

fn kept(sandbox: &Sandbox, number: usize) -> PathBuf {
    format!("{}.{number}", sandbox.log().display()).into()
}

#[test]
fn f03_full_files_are_kept_without_gap_or_double() {
    let sandbox = Sandbox::new();
    run(&sandbox, &[Step::Lines(Out::Stdout, 10_000, 20)], |monitor| {
        monitor.flag("--log-rotate").option("--log-max-files", "3").option("--log-size-max", "4096")
    });
    let mut text = Vec::new();
    for path in [kept(&sandbox, 3), kept(&sandbox, 2), kept(&sandbox, 1), sandbox.log()] {
        assert!(fs::metadata(&path).expect("a log").len() <= 4096);
        text.extend(read(path).stream(Out::Stdout));
    }
    let lines = script::lines(10_000, 20);
    assert!(lines.ends_with(&text) && text.len() >= 3 * 60 * 20, "{} bytes", text.len());
    assert!(!kept(&sandbox, 4).exists());
}

#[test]
fn f03_without_rotation_the_full_file_is_replaced() {
    let sandbox = Sandbox::new();
    run(&sandbox, &[Step::Lines(Out::Stdout, 1000, 20)], |monitor| {
        monitor.option("--log-max-files", "3").option("--log-size-max", "4096")
    });
    assert!(script::lines(1000, 20).ends_with(&read(sandbox.log()).stream(Out::Stdout)));
    assert!(!kept(&sandbox, 1).exists());
}

#[test]
fn f13_a_reopened_log_is_kept_with_rotation() {
    let sandbox = Sandbox::new();
    let next = sandbox.event("next");
    sandbox.script(&Script::new([Step::out("one\n"), Step::wait("next"), Step::out("two\n")]));
    let mut monitor = sandbox.monitor(&Tool::under_test()).flag("--log-rotate").start();
    monitor.pid();
    monitor.log_has("one");
    monitor.control("2 0 0\n");
    dunnage_testing::wait::file_exists(&kept(&sandbox, 1), dunnage_testing::wait::Deadline::usual());
    next.fire();
    monitor.exit_code();
    monitor.end();
    assert_eq!(read(kept(&sandbox, 1)).lines(), ["Stdout one\\n"]);
    assert_eq!(read(sandbox.log()).lines(), ["Stdout two\\n"]);
}

#[test]
fn n01_a_flood_stops_in_the_log_and_goes_on_for_clients() {
    const SIZE: usize = 20_000_000;
    let sandbox = Sandbox::new();
    let go = sandbox.event("go");
    sandbox.script(&Script::new([Step::wait("go"), Step::Noise(Out::Stdout, SIZE, 1)]));
    let mut monitor = sandbox.monitor(&Tool::under_test()).option("--log-global-size-max", "65536").start();
    monitor.pid();
    let client = monitor.attach();
    go.fire();
    assert!(client.receive_all().stdout == script::noise(SIZE, 1));
    assert_eq!(monitor.exit_code(), "0");
    monitor.end();
    let size = fs::metadata(sandbox.log()).expect("the log").len();
    assert!((65_536..65_536 + 17_000).contains(&size), "{size}");
    assert!(
        script::noise(SIZE, 1).starts_with(read(sandbox.log()).stream(Out::Stdout).strip_suffix(b"\n").unwrap_or(b""))
    );
}

#[test]
fn n02_a_log_outside_the_allowed_directories_is_refused_before_anything_starts() {
    let sandbox = Sandbox::new();
    let (allowed, outside) = (sandbox.root().join("allowed"), sandbox.root().join("outside"));
    for dir in [&allowed, &outside] {
        fs::create_dir(dir).expect("a directory");
    }
    symlink(&outside, allowed.join("dir")).expect("a link");
    symlink(outside.join("file"), allowed.join("file")).expect("a link");
    sandbox.script(&Script::new([Step::out("hello\n")]));
    let tool = Tool::under_test();
    let start = |path: &str| -> Running<'_> {
        let log = format!("k8s-file:{}/{path}", sandbox.root().display());
        sandbox.monitor(&tool).option("-l", log).option("--log-allowlist-dir", &allowed).start()
    };
    for path in ["outside/log", "allowed/../outside/log", "allowed/../log", "allowed/dir/log", "allowed/file"] {
        let mut monitor = start(path);
        assert_eq!(monitor.status(), Status::Exited(1), "{path}");
        let said = monitor.stderr();
        assert!(said.lines().count() == 1 && said.contains("--log-allowlist-dir"), "{path}: {said}");
        assert_eq!(monitor.messages().len(), 0);
        assert!(fs::read_dir(&outside).expect("the directory").next().is_none(), "{path}");
    }
    let mut monitor = start("outside/../allowed/log");
    monitor.pid();
    monitor.exit_code();
    monitor.end();
    assert_eq!(read(allowed.join("log")).lines(), ["Stdout hello\\n"]);
}

#[test]
fn f10_there_is_no_driver_that_promises_json_and_does_not_write_it() {
    let sandbox = Sandbox::with(&Script::new([]));
    let mut monitor = sandbox.monitor(&Tool::under_test()).option("-l", "json-file:/x").start();
    assert_eq!(monitor.status(), Status::Exited(1));
    assert_eq!(monitor.stderr(), "dunnage: error: No such log driver json-file\n");
}
