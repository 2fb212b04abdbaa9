//! The simulator is worth something if it finds faults: each of these is put into a copy of what decides and found.

use dunnage_runtime_mutants::{FAULTS, failure_without_fault, first_failure};

/// In how many seeds a fault must show, at the latest.
const SEEDS: u64 = 40_000;

#[test]
fn every_fault_is_caught_and_nothing_else() {
    // A fault may well be a panic, whose message belongs to nobody.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for (number, name) in FAULTS.iter().enumerate() {
        match first_failure(number, SEEDS) {
            Some((seed, shown)) => println!("{name:<55} {seed:>5}  {shown}"),
            None => missed.push(name),
        }
    }
    let without = failure_without_fault(1_000);
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "not caught in {SEEDS} seeds: {missed:?}");
    assert_eq!(without, None, "the copy has a fault without any switched on");
}
