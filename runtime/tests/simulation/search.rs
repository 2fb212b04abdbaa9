//! Plays many seeds, and cuts a history that fails down to what it takes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// What is wrong, in words; the rule first.
pub(super) type Fault = String;

/// What can be played and cut down.
pub(super) trait Scenario: Sized {
    /// The test that plays it.
    const TEST: &'static str;

    /// The history that the seed determines.
    fn draw(seed: u64) -> Self;

    /// Plays it to its end, and says what it found wrong.
    fn play(&self) -> Result<(), Fault>;

    /// Plays it again and returns what happened, one line each.
    fn trace(&self) -> Vec<String>;

    /// What holds in all of it.
    fn describe(&self) -> String;

    /// Its steps, one line each.
    fn steps(&self) -> Vec<String>;

    /// The same without that step.
    fn without_step(&self, position: usize) -> Self;
}

/// The lowest of the seeds that fails.
pub(super) fn first_failure<S: Scenario>(first: u64, count: u64) -> Option<u64> {
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
                    if fault_of(&S::draw(seed)).is_some() {
                        failure.fetch_min(seed, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    Some(failure.into_inner()).filter(|&seed| seed != u64::MAX)
}

/// What is wrong with a history; a panic of what decides is, too.
fn fault_of<S: Scenario>(history: &S) -> Option<Fault> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| history.play()));
    result.unwrap_or_else(|_| Err("it panicked".into())).err()
}

/// What is wrong with a seed.
#[allow(dead_code, reason = "the mutants' test asks")]
pub(super) fn fault_of_seed<S: Scenario>(seed: u64) -> Option<Fault> {
    fault_of(&S::draw(seed))
}

/// Tells of a seed that fails: the fault, the shortest history found that has it, and what happened in that.
pub(super) fn report<S: Scenario>(seed: u64) -> Option<String> {
    let mut history = S::draw(seed);
    let fault = fault_of(&history)?;
    shorten(&mut history, &fault);
    let mut lines = vec![format!("seed {seed}: {fault}"), history.describe()];
    lines.extend(history.steps());
    lines.push("what happened:".into());
    let trace = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| history.trace()));
    lines.extend(trace.unwrap_or_default());
    let test = S::TEST;
    lines.push(format!("again: DUNNAGE_SEED={seed} cargo test -p dunnage-runtime --test simulation {test}"));
    Some(lines.join("\n"))
}

/// Leaves out every step without which the same fault is found.
fn shorten<S: Scenario>(history: &mut S, fault: &Fault) {
    let same = |other: &S| fault_of(other).is_some_and(|found| rule(&found) == rule(fault));
    loop {
        let before = history.steps().len();
        for position in (0..before).rev() {
            let shorter = history.without_step(position);
            if same(&shorter) {
                *history = shorter;
            }
        }
        if history.steps().len() == before {
            return;
        }
    }
}

/// The rule that a fault names.
fn rule(fault: &str) -> &str {
    fault.split(':').next().unwrap_or(fault)
}
