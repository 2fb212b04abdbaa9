//! The simulators of the reaper and of staged generations: see `docs/simulation.md`.
//!
//! `DUNNAGE_SEED=N` plays one seed and shows what happens in it; `DUNNAGE_SEEDS=N` plays so many; `DUNNAGE_FIRST_SEED=N`
//! begins there.

mod checks;
mod generations;
mod history;
mod kernel;
mod random;
mod search;
mod world;

// Named here, so that the modules can be compiled with another reaper beside them.
use dunnage_runtime::{cgroup, generation, reaper};

use generations::Service;
use history::History;
use search::Scenario;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

fn play_seeds<S: Scenario>() {
    if let Some(seed) = number("DUNNAGE_SEED") {
        println!("{}", S::draw(seed).trace().join("\n"));
        if let Some(report) = search::report::<S>(seed) {
            panic!("{report}");
        }
        return;
    }
    let first = number("DUNNAGE_FIRST_SEED").unwrap_or(0);
    let count = number("DUNNAGE_SEEDS").unwrap_or(20_000);
    if let Some(seed) = search::first_failure::<S>(first, count) {
        panic!("{}", search::report::<S>(seed).unwrap_or_else(|| format!("seed {seed} failed once, and not again")));
    }
}

fn is_one_history<S: Scenario>(seed: u64) {
    assert_eq!(S::draw(seed).trace(), S::draw(seed).trace());
}

#[test]
fn every_rule_holds_in_every_history_of_reapers() {
    play_seeds::<History>();
}

#[test]
fn every_rule_holds_in_every_history_of_generations() {
    play_seeds::<Service>();
}

#[test]
fn a_seed_is_one_history() {
    for seed in [1, 77, 4711] {
        is_one_history::<History>(seed);
        is_one_history::<Service>(seed);
    }
}
