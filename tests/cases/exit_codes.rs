//! Group A: exit codes.

use std::fs;

use dunnage_testing::{Sandbox, Script, Step};

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
