//! What decides with deliberate faults (`faults.rs`, `faults_of_generations.rs`), one of which is switched on at a time,
//! and the simulators around it: for the test that they catch each.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    unused,
    clippy::all,
    clippy::pedantic,
    reason = "copies with faults"
)]

use std::sync::atomic::{AtomicUsize, Ordering};

/// Where the sources look for it.
mod deadlines {
    pub(crate) use dunnage_runtime::deadlines::*;
}

include!(concat!(env!("OUT_DIR"), "/modules.rs"));

/// The fault that is switched on, of [`FAULTS`].
static FAULT: AtomicUsize = AtomicUsize::new(usize::MAX);

fn is_on(number: usize) -> bool {
    FAULT.load(Ordering::Relaxed) == number
}

/// The first of so many seeds that shows the fault of that number, and what it shows.
pub fn first_failure(number: usize, seeds: u64) -> Option<(u64, String)> {
    FAULT.store(number, Ordering::Relaxed);
    if number < OF_REAPER { first_of::<history::History>(seeds) } else { first_of::<generations::Service>(seeds) }
}

/// What is found where no fault is switched on.
pub fn failure_without_fault(seeds: u64) -> Option<(u64, String)> {
    FAULT.store(usize::MAX, Ordering::Relaxed);
    first_of::<history::History>(seeds).or_else(|| first_of::<generations::Service>(seeds))
}

fn first_of<S: search::Scenario>(seeds: u64) -> Option<(u64, String)> {
    let seed = search::first_failure::<S>(0, seeds)?;
    Some((seed, search::fault_of_seed::<S>(seed).unwrap_or_default()))
}
