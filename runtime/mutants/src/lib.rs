//! The reaper with deliberate faults (`faults.rs`), one of which is switched on at a time, and the simulator around it:
//! for the test that the simulator catches each.
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

/// Where the reaper's sources look for it.
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
    let seed = search::first_failure(0, seeds)?;
    Some((seed, search::fault_of_seed(seed).unwrap_or_default()))
}
