//! The rules on real processes: the driver and the kernel that it drives.
//!
//! The driver belongs to a program with one thread that is a subreaper. So each test is such a program: this one, run
//! again in a PID namespace of its own, whose end takes along whatever the test left, also when it failed. As root.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test without the test harness")]

mod rules;
mod shim;

use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use dunnage_testing::wait;
use rules::RULES;

/// Tells the program which test it is.
const TEST: &str = "DUNNAGE_RULE";

/// No test takes longer, in seconds of a usual machine.
const BOUND: u32 = 60;

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(TEST) {
        let (_, test) = RULES.iter().find(|(rule, _)| *rule == name).expect("a test of that name");
        test();
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let chosen: Vec<&str> = RULES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| filters.is_empty() || filters.iter().any(|filter| name.contains(*filter)))
        .collect();
    if arguments.iter().any(|argument| argument == "--list") {
        for name in chosen {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let failed = run_side_by_side(&chosen);
    println!("\ntest result: {}. {} failed\n", if failed == 0 { "ok" } else { "FAILED" }, failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_side_by_side(tests: &[&str]) -> usize {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let output = Mutex::new(());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(name) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = run(name);
                    let _one_at_a_time = output.lock();
                    match result {
                        Ok(()) => println!("test {name} ... ok"),
                        Err(text) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!("test {name} ... FAILED\n{text}");
                        }
                    }
                }
            });
        }
    });
    failed.into_inner()
}

/// Runs one test as a process: the init of a PID namespace with a `/proc` of its own.
fn run(name: &str) -> Result<(), String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut unshare = Command::new("timeout")
        .args([
            "--signal=KILL",
            &(BOUND * wait::slowness()).to_string(),
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "--",
        ])
        // Its init ends with the test. The stranger is no process of the test's.
        .args(["/bin/sh", "-c", r#"sleep 1000 & STRANGER=$! "$0"; exit $?"#])
        .arg(this)
        .env(TEST, name)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run unshare: {error}"))?;
    let mut text = String::new();
    for pipe in [
        unshare.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read>),
        unshare.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read>),
    ] {
        let _ = pipe.map(|mut pipe| pipe.read_to_string(&mut text));
    }
    let status = unshare.wait().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{text}{status}")) }
}
