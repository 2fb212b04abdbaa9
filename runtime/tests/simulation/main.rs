//! The simulator of the reaper: see `docs/simulation.md`.
//!
//! `DUNNAGE_SEED=N` plays one seed and shows what happens in it; `DUNNAGE_SEEDS=N` plays so many; `DUNNAGE_FIRST_SEED=N`
//! begins there.

mod checks;
mod history;
mod kernel;
mod random;
mod search;
mod world;

// Named here, so that the modules can be compiled with another reaper beside them.
use dunnage_runtime::reaper;

use history::History;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

#[test]
fn every_rule_holds_in_every_history() {
    if let Some(seed) = number("DUNNAGE_SEED") {
        let history = History::draw(seed);
        println!("{}", world::trace(&history).join("\n"));
        if let Some(report) = search::report(seed) {
            panic!("{report}");
        }
        return;
    }
    let first = number("DUNNAGE_FIRST_SEED").unwrap_or(0);
    let count = number("DUNNAGE_SEEDS").unwrap_or(20_000);
    if let Some(seed) = search::first_failure(first, count) {
        panic!("{}", search::report(seed).unwrap_or_else(|| format!("seed {seed} failed once, and not again")));
    }
}

#[test]
fn a_seed_is_one_history() {
    for seed in [1, 77, 4711] {
        let history = History::draw(seed);
        assert_eq!(world::trace(&history), world::trace(&History::draw(seed)));
    }
}
