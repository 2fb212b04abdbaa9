//! Group M: the exit command and its delay.

use std::fs;
use std::time::{Duration, Instant};

use dunnage_testing::wait::Deadline;
use dunnage_testing::{Facts, Out, Sandbox, Script, Status, Step};

use crate::timeouts::Frozen;
use crate::{SOON, dunnage};

#[test]
fn m01_the_exit_command_runs_once_after_the_exit_file() {
    let sandbox = Sandbox::with(&Script::new([Step::Exit(3)]));
    let check = format!(
        "test -s {} && test -s {} && echo ran >> {}/runs",
        sandbox.exit_file().display(),
        sandbox.persist().join("exit").display(),
        sandbox.root().display()
    );
    let mut monitor = dunnage(&sandbox).exit_command(&[Step::shell(&check)]).start();
    monitor.messages();
    monitor.end();
    assert_eq!(fs::read_to_string(sandbox.root().join("runs")).expect("it ran"), "ran\n");
}

#[test]
fn m01_a_command_that_fails_is_the_monitors_status() {
    type Case = (&'static str, Vec<Step>, fn(i32) -> bool);
    let cases: [Case; 4] = [
        ("status 1", vec![Step::Exit(1)], |status| status == 1),
        ("killed", vec![Step::Raise(9)], |status| status != 0),
        ("prints", vec![Step::Noise(Out::Stdout, 1 << 20, 1), Step::Noise(Out::Stderr, 1 << 20, 1)], |status| {
            status == 3
        }),
        ("works", vec![], |status| status == 3),
    ];
    for (case, command, right) in cases {
        let sandbox = Sandbox::with(&Script::new([Step::Exit(3)]));
        let mut monitor = dunnage(&sandbox).sync().exit_command(&command).start();
        assert_eq!(monitor.exit_code(), "3", "{case}");
        let status = monitor.status();
        assert!(matches!(status, Status::Exited(status) if right(status)), "{case}: {status:?}");
    }
}

#[test]
fn m01_a_command_that_is_missing_is_said() {
    let sandbox = Sandbox::with(&Script::new([Step::Exit(3)]));
    let mut monitor = dunnage(&sandbox).sync().option("--exit-command", "/no/such/command").start();
    assert_eq!(monitor.exit_code(), "3");
    assert_ne!(monitor.status(), Status::Exited(0));
}

#[test]
fn the_exit_command_also_runs_when_create_failed() {
    let sandbox = Sandbox::with(&Script::runtime([Step::err("no\n"), Step::Exit(1)]));
    let mut monitor = dunnage(&sandbox).exit_command(&[Step::report("exit-command.json")]).start();
    assert_eq!(monitor.message().expect("a message")["message"], "no\n");
    let _: dunnage_testing::Facts = sandbox.report("exit-command.json");
    monitor.end();
    assert!(!sandbox.exit_file().exists());
}

#[test]
fn m02_the_delay_is_kept() {
    let sandbox = Sandbox::with(&Script::new([Step::Exit(3)]));
    let mut monitor =
        dunnage(&sandbox).exit_command(&[Step::report("exit-command.json")]).option("--exit-delay", "1").start();
    monitor.pid();
    monitor.exit_code();
    let ended = Instant::now();
    // Sync pipe and clients are let go of before the delay.
    assert!(monitor.message().is_none());
    assert!(ended.elapsed() < Duration::from_millis(900), "the pipe was closed at once");
    let _: dunnage_testing::Facts = sandbox.report("exit-command.json");
    let delay = ended.elapsed();
    assert!(delay > Duration::from_millis(800) && delay < SOON, "{delay:?}");
}

#[test]
fn m02_a_signal_ends_the_delay() {
    let sandbox = Sandbox::with(&Script::new([Step::Exit(3)]));
    let mut monitor =
        dunnage(&sandbox).exit_command(&[Step::report("exit-command.json")]).option("--exit-delay", "600").start();
    assert_eq!(monitor.messages().len(), 1);
    // Before its end the signal would be the container's.
    let long = monitor.long();
    assert_eq!(monitor.exit_code(), "3");
    long.signal(15);
    monitor.long().wait_end(dunnage_testing::wait::Deadline::after(SOON), "the monitor, told to end during its delay");
    assert!(sandbox.bundle().join("exit-command.json").exists(), "the command ran");
}

#[test]
fn r19_a_shutdown_waits_neither_for_the_delay_nor_for_a_command_that_hangs() {
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let command = [Step::report("exit-command.json"), Step::Hang];
    let monitor = dunnage(&sandbox).exit_command(&command).option("--exit-delay", "600");
    let mut monitor = monitor.option("--shutdown-timeout", "2").option("--runtime-grace", "0.5").start();
    monitor.pid();
    monitor.long().signal(15);
    assert_eq!(monitor.exit_code(), "143");
    monitor.long().wait_end(Deadline::after(SOON), "the monitor, which shuts down");
    assert!(sandbox.bundle().join("exit-command.json").exists(), "the command ran");
}

#[test]
fn r20_a_command_that_cannot_be_killed_does_not_keep_the_monitor() {
    let sandbox = Sandbox::with(&Script::new([Step::Exit(3)]));
    let cgroup = Frozen::v1("r20-command");
    let command = [Step::report("exit-command.json"), Step::Hang];
    let mut monitor = dunnage(&sandbox).sync().exit_command(&command).option("--runtime-grace", "0.5").start();
    let command: Facts = sandbox.report("exit-command.json");
    cgroup.add(command.pid);
    cgroup.freeze();
    monitor.started.signal(15);
    monitor.started.wait_end(Deadline::after(SOON), "the monitor, told to end");
    assert_eq!(monitor.status(), Status::Exited(1));
}
