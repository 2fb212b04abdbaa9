//! Decides about staged generations: which may start, which is current, when one is proven gone.
//!
//! The rules (G1 to G33) are those of `docs/generations.md`.

mod tier;

pub use tier::{CpuMax, InvalidLimit, Limit, MAX_WEIGHT, Tier};

use std::fmt;
use std::num::NonZeroU64;

/// The number of a generation: 1 and up, never used twice (G3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(NonZeroU64);

impl Number {
    /// Nothing for 0.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// As a plain number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
