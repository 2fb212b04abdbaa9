//! Group C: zombies and reaping.

use std::process;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Out, Process, Running, Sandbox, Script, Step};

use crate::{SOON, dunnage};

/// A process that outlives its parent, so that the monitor adopts it.
fn orphan(steps: Vec<Step>) -> Step {
    Step::Spawn(vec![Step::Spawn(steps)])
}

/// Kills processes, and waits until they are dead: their parent may be stopped, and not have reaped them.
fn kill(processes: &[Process]) {
    for process in processes {
        process.signal(9);
    }
    for process in processes {
        process.wait_end(Deadline::usual(), "a process that was killed");
    }
}

/// Waits until the monitor has no zombies.
fn no_zombies(monitor: &Process) {
    wait::eventually(Deadline::after(SOON), "the zombies to be reaped", || monitor.zombies().is_empty());
}

/// A container with so many orphans that all live; its own pid, and theirs.
fn with_orphans(monitor: &mut Running<'_>, count: usize) -> (Process, Vec<Process>) {
    let payload = monitor.payload();
    let long = monitor.long();
    wait::eventually(Deadline::usual(), "the orphans to be adopted", || long.children().len() == count + 1);
    let orphans = long.children().into_iter().filter(|pid| *pid != payload.pid());
    let orphans = orphans.map(|pid| Process::open(pid).expect("an orphan")).collect();
    (payload, orphans)
}

#[test]
fn c01_nothing_is_left_of_a_failed_runtime_during_the_exit_delay() {
    let child = || Step::Spawn(vec![Step::Exit(1)]);
    let sandbox = Sandbox::with(&Script::runtime([child(), child(), child(), Step::err("no\n"), Step::Exit(1)]));
    let command = [Step::report("exit-command.json")];
    let mut monitor = dunnage(&sandbox).exit_command(&command).option("--exit-delay", "60").start();
    assert_eq!(monitor.message().expect("a message")["data"], -1);
    no_zombies(monitor.long());
    assert!(!monitor.long().has_ended(), "it waits for its delay");
    assert!(!sandbox.bundle().join("exit-command.json").exists(), "the command comes after the delay");
}

#[test]
fn c04_an_exit_is_seen_while_the_log_blocks() {
    let sandbox = Sandbox::new();
    // A fifo that is full and that nobody reads.
    let log = sandbox.event("log");
    let go = sandbox.event("go");
    sandbox.script(&Script::new([Step::wait("go"), Step::Lines(Out::Stdout, 1000, 100), Step::Exit(3)]));
    let path = sandbox.bundle().join("log");
    let mut monitor = dunnage(&sandbox).option("-l", path).start();
    monitor.pid();
    log.fill();
    go.fire();
    assert_eq!(monitor.exit_code_within(SOON), "3");
}

#[test]
fn c04_an_exit_is_seen_while_a_client_is_stuck() {
    let sandbox = Sandbox::with(&Script::new([Step::wait("attached"), Step::Flood(Out::Stdout)]));
    let attached = sandbox.event("attached");
    let mut monitor = dunnage(&sandbox).option("-l", "k8s-file:/dev/null").start();
    let payload = monitor.payload();
    let client = monitor.attach();
    attached.fire();
    // It has something to read, and never will read it.
    wait::readable(&client, Deadline::usual(), "output");
    payload.signal(9);
    assert_eq!(monitor.exit_code_within(SOON), "137");
    monitor.end();
}

#[test]
fn c04_an_exit_is_seen_among_many_orphans() {
    let script = "i=0; while [ $i -lt 1000 ]; do (true & ) ; i=$((i+1)); done; exit 6";
    let sandbox = Sandbox::with(&Script::new([Step::shell(script)]));
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    assert_eq!(monitor.exit_code(), "6");
    monitor.end();
}

#[test]
fn c05_the_caller_has_one_child_to_wait_for() {
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    monitor.status();
    assert_ne!(monitor.long().parent(), i32::try_from(process::id()).expect("a pid"), "the long side is not ours");
    assert_ne!(monitor.long().pid(), monitor.started.pid());
    drop(monitor);
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let mut monitor = dunnage(&sandbox).sync().start();
    let payload = monitor.payload();
    assert_eq!(payload.parent(), monitor.started.pid(), "the started process is the long side");
}

#[test]
fn c06_exits_that_come_together_are_all_seen() {
    for _ in 0..10 {
        let sandbox = Sandbox::with(&Script::new(vec![orphan(vec![Step::Hang]); 20].with(Step::Hang)));
        let mut monitor = dunnage(&sandbox).start();
        let (payload, orphans) = with_orphans(&mut monitor, 20);
        let long = monitor.long();
        long.signal(19);
        payload.signal(15);
        kill(&orphans);
        payload.wait_end(Deadline::usual(), "the payload");
        long.signal(18);
        assert_eq!(monitor.exit_code_within(SOON), "143");
        monitor.end();
    }
}

#[test]
fn c07_orphans_that_die_together_are_no_exit() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    let orphans = vec![orphan(vec![Step::Hang]); 20];
    sandbox.script(&Script::new(orphans.with(Step::wait("end")).with(Step::Exit(8))));
    let mut monitor = dunnage(&sandbox).start();
    let (_, orphans) = with_orphans(&mut monitor, 20);
    let long = monitor.long();
    long.signal(19);
    kill(&orphans);
    long.signal(18);
    no_zombies(long);
    assert!(!sandbox.exit_file().exists(), "the payload lives");
    end.fire();
    assert_eq!(monitor.exit_code(), "8");
}

#[test]
fn c13_the_monitor_leaves_when_everything_below_it_was_killed() {
    let sandbox = Sandbox::with(&Script::new(vec![orphan(vec![Step::Hang]); 5].with(Step::Hang)));
    let mut monitor = dunnage(&sandbox).start();
    let (payload, mut processes) = with_orphans(&mut monitor, 5);
    processes.push(payload);
    let long = monitor.long();
    long.signal(19);
    kill(&processes);
    long.signal(18);
    assert_eq!(monitor.exit_code_within(SOON), "137");
    long.wait_end(Deadline::after(SOON), "the monitor");
}

#[test]
fn r3_an_orphan_is_reaped_while_the_container_runs() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    let orphans = vec![orphan(vec![Step::Exit(1)]); 3];
    sandbox.script(&Script::new(orphans.with(Step::fire("end")).with(Step::Hang)));
    let mut monitor = dunnage(&sandbox).start();
    let payload = monitor.payload();
    end.wait();
    let long = monitor.long();
    wait::eventually(Deadline::after(SOON), "the orphans to be reaped", || long.children() == [payload.pid()]);
}

#[test]
fn g01_a_monitor_does_not_wait_for_an_orphan_that_holds_the_output() {
    let sandbox = Sandbox::with(&Script::new([orphan(vec![Step::Setsid, Step::Hang]), Step::Exit(2)]));
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    assert_eq!(monitor.exit_code_within(SOON), "2");
    monitor.end();
}

trait With {
    fn with(self, step: Step) -> Self;
}

impl With for Vec<Step> {
    fn with(mut self, step: Step) -> Self {
        self.push(step);
        self
    }
}
