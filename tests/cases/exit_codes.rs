//! Group A: exit codes and exit files.

use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

use dunnage_testing::wait::{self, Arrivals, Deadline};
use dunnage_testing::{Sandbox, Script, Status, Step};

use crate::{SOON, dunnage};

#[test]
fn a03_a_death_by_signal_has_its_code() {
    for core in ["0", "unlimited"] {
        for (signal, code) in [(15, "143"), (9, "137"), (11, "139")] {
            let sandbox = Sandbox::with(&Script::new([Step::Hang]));
            let core = format!("cd \"$DUNNAGE_SANDBOX\"; ulimit -c {core}; exec");
            let mut monitor = dunnage(&sandbox).through(&core).start();
            monitor.payload().signal(signal);
            assert_eq!(monitor.exit_code(), code);
            monitor.end();
            assert_eq!(fs::read_to_string(sandbox.persist().join("exit")).expect("it persists"), code);
        }
    }
}

#[test]
fn a04_no_signal_to_the_monitor_loses_the_exit_code() {
    // Those that end a container reach it; of the others it hears nothing.
    for (signal, passed_on) in [(15, true), (2, true), (3, true), (1, false), (13, false), (10, false), (12, false)] {
        let sandbox = Sandbox::new();
        let (ready, end) = (sandbox.event("ready"), sandbox.event("end"));
        sandbox.script(&Script::new([Step::fire("ready"), Step::wait("end"), Step::Exit(5)]));
        let mut monitor = dunnage(&sandbox).start();
        monitor.pid();
        ready.wait();
        let long = monitor.long();
        long.signal(signal);
        if passed_on {
            assert_eq!(monitor.exit_code(), (128 + signal).to_string(), "after signal {signal}");
        } else {
            // What it does on a control line, it does after the signal.
            monitor.control("2 0 0\n");
            end.fire();
            assert_eq!(monitor.exit_code(), "5", "after signal {signal}");
        }
        monitor.end();
    }
}

#[test]
fn a04_signals_while_the_runtime_runs_lose_nothing() {
    for signal in [1, 10, 12, 13] {
        let sandbox = Sandbox::new();
        let (started, go) = (sandbox.event("started"), sandbox.event("go"));
        let [payload, console, pid] = Step::usual();
        let runtime = [Step::fire("started"), Step::wait("go"), payload, console, pid];
        sandbox.script(&Script::runtime(runtime).payload([Step::Exit(5)]));
        let mut monitor = dunnage(&sandbox).start();
        started.wait();
        monitor.long().signal(signal);
        go.fire();
        monitor.pid();
        assert_eq!(monitor.exit_code(), "5", "after signal {signal}");
    }
}

#[test]
fn a06_the_exit_code_does_not_wait_for_a_client_that_reads_slowly() {
    let sandbox = Sandbox::new();
    let go = sandbox.event("go");
    sandbox.script(&Script::new([
        Step::wait("go"),
        Step::Noise(dunnage_testing::Out::Stdout, 1 << 20, 1),
        Step::Exit(3),
    ]));
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    let client = monitor.attach();
    go.fire();
    assert_eq!(monitor.exit_code_within(SOON), "3");
    drop(client);
}

#[test]
fn an_exit_file_that_cannot_be_written_costs_the_other_nothing() {
    for lost in [Sandbox::persist, Sandbox::exits] {
        let sandbox = Sandbox::new();
        let end = sandbox.event("end");
        sandbox.script(&Script::new([Step::wait("end"), Step::Exit(5)]));
        let mut monitor = dunnage(&sandbox).start();
        monitor.pid();
        monitor.long();
        fs::remove_dir_all(lost(&sandbox)).expect("the directory can be removed");
        end.fire();
        monitor.end();
        let written = [sandbox.exit_file(), sandbox.persist().join("exit")].map(|file| fs::read_to_string(file).ok());
        assert!(written.contains(&Some("5".to_owned())), "{written:?}");
    }
}

#[test]
fn the_caller_may_remove_everything_once_the_exit_file_is_there() {
    for _ in 0..10 {
        let sandbox = Sandbox::with(&Script::new([Step::out("hello\n"), Step::Exit(5)]));
        let ran = format!("echo ran >> {}", sandbox.root().join("ran").display());
        let mut monitor = dunnage(&sandbox).sync().socket_dir().exit_command(&[Step::shell(&ran)]).start();
        assert_eq!(monitor.exit_code(), "5");
        for dir in [sandbox.bundle(), sandbox.persist()] {
            let _ = fs::remove_dir_all(dir);
        }
        let _ = fs::remove_file(sandbox.log());
        assert_eq!(monitor.status(), Status::Exited(5), "{}", monitor.stderr());
        assert_eq!(fs::read_to_string(sandbox.root().join("ran")).expect("the command ran"), "ran\n");
        assert_eq!(fs::read_dir(sandbox.sockets()).expect("the socket directory").count(), 0, "the link is removed");
    }
}

#[test]
fn an_exit_file_appears_whole_and_after_the_persistent_one() {
    let sandbox = Sandbox::with(&Script::new([Step::Exit(123)]));
    let arrivals = Arrivals::watch(&[&sandbox.exits(), &sandbox.persist()]);
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    assert_eq!(monitor.exit_code(), "123");
    monitor.end();
    let arrived = arrivals.so_far().into_iter().filter(|(name, _)| name == "exit" || name == sandbox.id());
    let by_rename = true;
    let expected = ["exit", sandbox.id()].map(|name| (name.to_owned(), by_rename));
    assert_eq!(arrived.collect::<Vec<_>>(), expected);
    // No temporary file is left.
    assert_eq!(fs::read_dir(sandbox.exits()).expect("the directory").count(), 1);
    assert_eq!(fs::read_dir(sandbox.persist()).expect("the directory").count(), 1);
}

#[test]
fn inherited_descriptors_are_closed_before_the_exit_file_is_there() {
    let sandbox = Sandbox::with(&Script::new([Step::Exit(5)]));
    let (mut ours, its) = std::io::pipe().expect("a pipe");
    let monitor = dunnage(&sandbox).fd(its.into(), 7).exit_command(&[]).option("--exit-delay", "600");
    let mut monitor = monitor.start();
    monitor.pid();
    assert_eq!(monitor.exit_code(), "5");
    assert!(!monitor.long().has_ended(), "it waits for its delay");
    // Runtime and container have ended: whoever still had it would be the monitor.
    wait::readable(&ours, Deadline::after(Duration::ZERO), "the end of an inherited pipe");
    assert_eq!(ours.read(&mut [0]).expect("a pipe can be read"), 0);
}

#[test]
fn r19_a_shutdown_is_over_in_its_time() {
    let ready = "ready";
    let sandbox = Sandbox::new();
    sandbox.script(&Script::new([Step::Block(15), Step::fire(ready), Step::Hang]));
    let event = sandbox.event(ready);
    let bounds = [("--shutdown-timeout", "2.5"), ("--stop-budget", "1.8")];
    let monitor = bounds.iter().fold(dunnage(&sandbox), |monitor, (option, value)| monitor.option(option, *value));
    let mut monitor = monitor.start();
    monitor.pid();
    let long = monitor.long();
    event.wait();
    let told = Instant::now();
    long.signal(15);
    // It gets what the budget leaves of the time to end by itself.
    assert_eq!(monitor.exit_code(), "137");
    assert!(told.elapsed() > Duration::from_millis(600), "{:?}", told.elapsed());
    monitor.end();
    assert!(told.elapsed() < Duration::from_millis(2500) + SOON, "{:?}", told.elapsed());
}
