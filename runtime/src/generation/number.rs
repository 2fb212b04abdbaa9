//! Numbers of generations, and which of them are used up.

use std::fmt;
use std::num::NonZeroU64;

/// How many ranges are kept apart. Callers count up, so there are few; a caller that skips numbers finds the lowest
/// ones that it skipped used up at some time.
const MOST_RANGES: usize = 1_024;

/// The number of a generation: 1 and up, never used twice (G3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(NonZeroU64);

impl Number {
    /// Nothing for 0.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
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

/// A set of numbers that only grows, in bounded memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Sorted, apart from each other, both ends included.
    ranges: Vec<(u64, u64)>,
}

impl Numbers {
    /// The set of these ranges, both ends included.
    #[must_use]
    pub fn from_ranges(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut numbers = Self::default();
        for (first, last) in ranges {
            numbers.add(first, last);
        }
        numbers
    }

    /// What is in it, as ranges with both ends.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().copied()
    }

    /// Whether the number is in it.
    #[must_use]
    pub fn contains(&self, number: Number) -> bool {
        let after = self.ranges.partition_point(|&(first, _)| first <= number.get());
        after > 0 && number.get() <= self.ranges[after - 1].1
    }

    /// The highest that is in it.
    #[must_use]
    pub fn last(&self) -> Option<Number> {
        self.ranges.last().and_then(|&(_, last)| Number::new(last))
    }

    /// Puts the number in.
    pub fn insert(&mut self, number: Number) {
        self.add(number.get(), number.get());
    }

    fn add(&mut self, first: u64, last: u64) {
        let from = self.ranges.partition_point(|&(_, other)| other.saturating_add(1) < first);
        let to = self.ranges.partition_point(|&(other, _)| other <= last.saturating_add(1));
        let joined = self.ranges[from..to].iter();
        let range = joined.fold((first, last), |(low, high), &(first, last)| (low.min(first), high.max(last)));
        self.ranges.splice(from..to, [range]);
        if self.ranges.len() > MOST_RANGES {
            let second = self.ranges.remove(1);
            self.ranges[0].1 = second.1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[u64]) -> Numbers {
        Numbers::from_ranges(numbers.iter().map(|&number| (number, number)))
    }

    fn ranges(numbers: &Numbers) -> Vec<(u64, u64)> {
        numbers.ranges().collect()
    }

    #[test]
    fn g3_numbers_in_a_row_are_one_range() {
        assert_eq!(ranges(&set(&[1, 3, 2, 9, 10, 2, u64::MAX])), [(1, 3), (9, 10), (u64::MAX, u64::MAX)]);
        assert_eq!((set(&[7, 3]).last(), Numbers::default().last()), (Number::new(7), None));
        assert_eq!(ranges(&Numbers::from_ranges([(5, 9), (1, 20), (22, 30)])), [(1, 20), (22, 30)]);
        let numbers = set(&[2, 4]);
        let contained: Vec<u64> = (1..6).filter(|&n| numbers.contains(Number::new(n).unwrap())).collect();
        assert_eq!(contained, [2, 4]);
    }

    #[test]
    fn g29_numbers_far_apart_take_bounded_memory_and_stay_used() {
        let numbers = Numbers::from_ranges((1..5_000).map(|n| (2 * n, 2 * n)));
        assert_eq!(numbers.ranges.len(), MOST_RANGES);
        assert!((1..5_000).all(|n| numbers.contains(Number::new(2 * n).unwrap())));
    }
}
