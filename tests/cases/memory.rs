//! the monitor never dies of its own memory.

use dunnage_testing::{Out, Sandbox, Script, Step};

use crate::{dunnage, idle};

#[test]
fn a05_a_flood_of_output_takes_no_memory() {
    let sandbox = Sandbox::new();
    let (go, done) = (sandbox.event("go"), sandbox.event("done"));
    let flood = Step::Noise(Out::Stdout, 32 << 20, 1);
    sandbox.script(&Script::new([
        flood.clone(),
        Step::fire("done"),
        Step::wait("go"),
        flood,
        Step::fire("done"),
        Step::Hang,
    ]));
    let mut monitor = dunnage(&sandbox).option("-l", "k8s-file:/dev/null").start();
    monitor.pid();
    done.wait();
    let before = monitor.long().own_memory_kib();
    go.fire();
    done.wait();
    let after = monitor.long().own_memory_kib();
    // Either may have been looked at with the buffers in use.
    assert!(after <= before + 512, "{before} KiB, then {after} KiB");
}

#[test]
fn a05_clients_that_do_not_read_take_bounded_memory() {
    let sandbox = Sandbox::new();
    let go = sandbox.event("go");
    sandbox.script(&Script::new([Step::wait("go"), Step::Flood(Out::Stdout)]));
    let mut monitor = dunnage(&sandbox).option("-l", "none").start();
    monitor.pid();
    let clients: Vec<_> = (0..20).map(|_| monitor.attach()).collect();
    let before = monitor.long().own_memory_kib();
    go.fire();
    for client in &clients {
        dunnage_testing::wait::readable(client, dunnage_testing::wait::Deadline::usual(), "output");
    }
    // It stands still once everything is full.
    idle(monitor.long());
    let grown = monitor.long().own_memory_kib().saturating_sub(before);
    assert!(grown < 5 * 1024, "{grown} KiB");
}
