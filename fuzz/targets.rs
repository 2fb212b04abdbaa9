//! Runs the target that `DUNNAGE_FUZZ_TARGET` names under libFuzzer.

#![no_main]

use std::env;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

static RUN: OnceLock<fn(&[u8])> = OnceLock::new();

fn find() -> fn(&[u8]) {
    let targets = [dunnage::fuzzing::TARGETS, dunnage_runtime::fuzzing::TARGETS].concat();
    let name = env::var("DUNNAGE_FUZZ_TARGET").unwrap_or_default();
    let found = targets.iter().find(|(known, _)| *known == name);
    let names: Vec<_> = targets.iter().map(|(name, _)| *name).collect();
    found.unwrap_or_else(|| panic!("DUNNAGE_FUZZ_TARGET has to name one of {}", names.join(" "))).1
}

fuzz_target!(|input: &[u8]| RUN.get_or_init(find)(input));
