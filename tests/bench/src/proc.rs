//! What /proc says of a process.

use std::fs;
use std::time::{Duration, Instant};

use dunnage_testing::Process;

/// Memory in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) dirty: u64,
    /// Clean and dirty.
    pub(crate) private: u64,
}

/// The private memory of a process.
pub(crate) fn memory(process: &Process) -> Memory {
    let rollup = fs::read_to_string(process.proc_dir().join("smaps_rollup")).expect("a process's memory");
    let field = |name: &str| -> u64 {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    let dirty = field("Private_Dirty:");
    Memory { dirty, private: dirty + field("Private_Clean:") }
}

/// The private dirty memory of a process that may be gone, in KiB.
pub(crate) fn dirty_of(pid: i32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Private_Dirty:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// How long it ran on a processor.
pub(crate) fn cpu(process: &Process) -> Duration {
    let stat = fs::read_to_string(process.proc_dir().join("schedstat")).expect("the time it ran");
    Duration::from_nanos(stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("a number"))
}

/// Waits until a process has not run for `quiet`, and gives how long it ran so far.
pub(crate) fn cpu_when_quiet(process: &Process, quiet: Duration) -> Duration {
    let mut last = cpu(process);
    let mut since = Instant::now();
    let begin = since;
    while since.elapsed() < quiet {
        std::thread::sleep(quiet / 10);
        let now = cpu(process);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        assert!(begin.elapsed() < crate::bench::BOUND, "process {} is never quiet", process.pid());
    }
    last
}

/// How often it gave up the processor, by itself or not: how often it woke up.
pub(crate) fn switches(process: &Process) -> u64 {
    let status = dunnage_testing::status(&process.proc_dir()).expect("a process's status");
    let count = |name: &str| status.get(name).and_then(|count| count.parse::<u64>().ok()).expect("a number");
    count("voluntary_ctxt_switches") + count("nonvoluntary_ctxt_switches")
}

/// How many sockets it has open.
pub(crate) fn sockets(process: &Process) -> usize {
    let fds = dunnage_testing::descriptors(&process.proc_dir()).unwrap_or_default();
    fds.values().filter(|fd| fd.target.starts_with("socket:")).count()
}
