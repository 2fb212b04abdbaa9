//! Plays many seeds, and cuts a history that fails down to what it takes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::history::History;
use super::world::{Fault, play, trace};

/// The lowest of the seeds that fails.
pub(super) fn first_failure(first: u64, count: u64) -> Option<u64> {
    let next = AtomicU64::new(first);
    let failure = AtomicU64::new(u64::MAX);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || seed > failure.load(Ordering::Relaxed) {
                        return;
                    }
                    if fault_of(&History::draw(seed)).is_some() {
                        failure.fetch_min(seed, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    Some(failure.into_inner()).filter(|&seed| seed != u64::MAX)
}

/// What is wrong with a history; a panic of the reaper is, too.
fn fault_of(history: &History) -> Option<Fault> {
    let result = std::panic::catch_unwind(|| play(history));
    result.unwrap_or_else(|_| Err("the reaper panicked".into())).err()
}

/// What is wrong with a seed.
#[allow(dead_code, reason = "the mutants' test asks")]
pub(super) fn fault_of_seed(seed: u64) -> Option<Fault> {
    fault_of(&History::draw(seed))
}

/// Tells of a seed that fails: the fault, the shortest history found that has it, and what happened in that.
pub(super) fn report(seed: u64) -> Option<String> {
    let mut history = History::draw(seed);
    let fault = fault_of(&history)?;
    shorten(&mut history, &fault);
    let mut lines = vec![
        format!("seed {seed}: {fault}"),
        format!("pid_max {}, old kernel: {}, {:?}", history.pid_max, history.old_kernel, history.bounds),
    ];
    lines.extend(history.steps.iter().map(|step| format!("{:>8} ms  {:?}", step.at, step.what)));
    lines.push("what happened:".into());
    lines.extend(std::panic::catch_unwind(|| trace(&history)).unwrap_or_default());
    lines.push(format!("again: DUNNAGE_SEED={seed} cargo test -p dunnage-runtime --test simulation"));
    Some(lines.join("\n"))
}

/// Leaves out every step without which the same fault is found.
fn shorten(history: &mut History, fault: &Fault) {
    let same = |other: &History| fault_of(other).is_some_and(|found| rule(&found) == rule(fault));
    loop {
        let before = history.steps.len();
        for position in (0..before).rev() {
            let mut shorter = history.clone();
            shorter.steps.remove(position);
            if same(&shorter) {
                *history = shorter;
            }
        }
        if history.steps.len() == before {
            return;
        }
    }
}

/// The rule that a fault names.
fn rule(fault: &str) -> &str {
    fault.split(':').next().unwrap_or(fault)
}
