//! What can be asserted on any machine: memory, counts, sizes. No time is measured.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::bench::Bench;
use crate::counts::{self, Unit};
use crate::figure::{Figure, Goal, Who};
use crate::measure::is_dynamic;
use crate::proc;

/// What was measured when the limits were set, and a margin for other kernels and C libraries.
mod limits {
    pub(super) const START_INSTRUCTIONS: f64 = 200_000.0;
    pub(super) const START_CALLS: f64 = 285.0;
    pub(super) const LINE_INSTRUCTIONS: f64 = 145.0;
    pub(super) const MIB_CALLS: f64 = 45.0;
    pub(super) const IDLE_KIB: f64 = 65.0;
    pub(super) const GROWN_KIB: f64 = 32.0;
    pub(super) const BINARY_MIB: f64 = 1.5;
}

const LINE: usize = 100;
/// Lines that fit into a pipe, so that they are read at once.
const LINES: [usize; 2] = [300, 600];
const LOGGED_MIB: usize = 16;

/// Each figure with its limit.
pub(crate) fn figures(bench: &Bench) -> Vec<Figure> {
    let (idle, grown, woken) = at_rest(bench);
    #[expect(clippy::cast_precision_loss)]
    let size = fs::metadata(bench.program(Who::Dunnage)).expect("a program").len() as f64 / f64::from(1 << 20);
    let loaders = f64::from(u8::from(is_dynamic(&bench.program(Who::Dunnage))));
    let figure = |what, unit, value: f64, most| Figure::alone(what, unit, value.into(), Goal::AtMost(most));
    vec![
        figure("instructions per start", "", per_start(bench, Unit::Instructions), limits::START_INSTRUCTIONS),
        figure("system calls per start", "", per_start(bench, Unit::SystemCalls), limits::START_CALLS),
        figure("instructions per 100-byte line", "", per_line(bench), limits::LINE_INSTRUCTIONS),
        figure("system calls per MiB logged", "", calls_per_mib(bench), limits::MIB_CALLS),
        figure("private dirty memory, idle", "KiB", idle, limits::IDLE_KIB),
        figure("  more after 64 MiB of output", "KiB", grown, limits::GROWN_KIB),
        figure("wake-ups in 3 idle seconds", "", woken, 0.0),
        figure("binary", "MiB", size, limits::BINARY_MIB),
        figure("dynamic loaders it needs", "", loaders, 0.0),
    ]
}

#[expect(clippy::cast_precision_loss)]
fn per_start(bench: &Bench, unit: Unit) -> f64 {
    counts::start(bench, unit) as f64
}

/// What each further line takes, beside what each read takes.
#[expect(clippy::cast_precision_loss)]
fn per_line(bench: &Bench) -> f64 {
    let [few, many] = LINES;
    let steps = format!("wait;lines {LINE} {};done;wait;lines {LINE} {};done;hang", few * LINE, many * LINE);
    let shim = bench.monitor(Who::Dunnage, &steps).start();
    let counts = counts::steps(bench, &shim, Unit::Instructions, 2);
    shim.kill();
    (counts[1] as f64 - counts[0] as f64) / (many - few) as f64
}

#[expect(clippy::cast_precision_loss)]
fn calls_per_mib(bench: &Bench) -> f64 {
    let steps = format!("wait;lines {LINE} {};done;hang", LOGGED_MIB << 20);
    let shim = bench.monitor(Who::Dunnage, &steps).start();
    let counts = counts::steps(bench, &shim, Unit::SystemCalls, 1);
    shim.kill();
    counts[0] as f64 / LOGGED_MIB as f64
}

/// Private dirty KiB, how much more there are after a flood, and wake-ups in three seconds.
#[expect(clippy::cast_precision_loss)]
fn at_rest(bench: &Bench) -> (f64, f64, f64) {
    let shim = bench.monitor(Who::Dunnage, "wait;lines 100 67108864;done;hang").log("/dev/null").start();
    let rest = Duration::from_secs(2);
    proc::cpu_when_quiet(&shim.long, rest);
    let before = proc::memory(&shim.long).dirty as f64;
    let switches = proc::switches(&shim.long);
    thread::sleep(Duration::from_secs(3));
    let woken = proc::switches(&shim.long) - switches;
    bench.go();
    bench.wait_done();
    proc::cpu_when_quiet(&shim.long, rest);
    let after = proc::memory(&shim.long).dirty as f64;
    shim.kill();
    (before, after - before, woken as f64)
}
