//! Limits of a generation and of the service's own cgroup, as the kernel reads and writes them.

use std::fmt;
use std::str::FromStr;

/// A number, or `max` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No limit.
    Max,
    /// This many bytes, processes or microseconds.
    Value(u64),
}

impl Limit {
    /// Both together: none if either has none.
    fn sum(self, other: Self) -> Self {
        match (self, other) {
            (Self::Value(one), Self::Value(two)) => one.checked_add(two).map_or(Self::Max, Self::Value),
            _ => Self::Max,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Value(value) => value.fmt(f),
        }
    }
}

/// What is no limit as the kernel writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidLimit;

impl fmt::Display for InvalidLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is neither a number nor \"max\"")
    }
}

impl std::error::Error for InvalidLimit {}

impl FromStr for Limit {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        match text {
            "max" => Ok(Self::Max),
            // The kernel takes no sign.
            _ if text.starts_with('+') => Err(InvalidLimit),
            _ => text.parse().map(Self::Value).map_err(|_| InvalidLimit),
        }
    }
}

/// `cpu.max`: how many microseconds of processor time in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMax {
    /// The time.
    pub quota: Limit,
    /// The period in microseconds: the kernel takes 1 ms to 1 s.
    pub period: u64,
}

impl CpuMax {
    /// The kernel's own period.
    pub const USUAL_PERIOD: u64 = 100_000;

    /// No limit.
    pub const MAX: Self = Self { quota: Limit::Max, period: Self::USUAL_PERIOD };

    /// Both together, in the usual period unless both have the same one (G11). Rounded up, so that neither gets less
    /// beside the other than alone.
    fn sum(self, other: Self) -> Self {
        let period = if self.period == other.period { self.period } else { Self::USUAL_PERIOD };
        Self { quota: self.quota_in(period).sum(other.quota_in(period)), period }
    }

    fn quota_in(self, period: u64) -> Limit {
        match self.quota {
            Limit::Value(quota) if self.period != period => {
                let scaled = (u128::from(quota) * u128::from(period)).div_ceil(u128::from(self.period.max(1)));
                u64::try_from(scaled).map_or(Limit::Max, Limit::Value)
            }
            quota => quota,
        }
    }
}

impl fmt::Display for CpuMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.quota, self.period)
    }
}

impl FromStr for CpuMax {
    type Err = InvalidLimit;

    /// As the kernel reads it: the period may be left out.
    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let (quota, period) = text.split_once(' ').map_or((text, None), |(quota, period)| (quota, Some(period)));
        let period = match period.map(str::parse) {
            None => Self::USUAL_PERIOD,
            Some(Ok(Limit::Value(period @ 1_000..=1_000_000))) => period,
            Some(_) => return Err(InvalidLimit),
        };
        Ok(Self { quota: quota.parse()?, period })
    }
}

/// The largest `cpu.weight`; the smallest is 1.
pub const MAX_WEIGHT: u64 = 10_000;

/// The limits of one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// `memory.max`
    pub memory_max: Limit,
    /// `memory.high`
    pub memory_high: Limit,
    /// `cpu.max`
    pub cpu_max: CpuMax,
    /// `cpu.weight`, 1 to [`MAX_WEIGHT`].
    pub cpu_weight: u64,
    /// `pids.max`
    pub pids_max: Limit,
}

impl Tier {
    /// No limits: the kernel's own values.
    pub const UNLIMITED: Self = Self {
        memory_max: Limit::Max,
        memory_high: Limit::Max,
        cpu_max: CpuMax::MAX,
        cpu_weight: 100,
        pids_max: Limit::Max,
    };

    /// What the parent of both needs (G11).
    #[must_use]
    pub fn sum(self, other: Self) -> Self {
        Self {
            memory_max: self.memory_max.sum(other.memory_max),
            memory_high: self.memory_high.sum(other.memory_high),
            cpu_max: self.cpu_max.sum(other.cpu_max),
            cpu_weight: self.cpu_weight.max(other.cpu_weight),
            pids_max: self.pids_max.sum(other.pids_max),
        }
    }
}

impl Default for Tier {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(text: &str) -> CpuMax {
        text.parse().unwrap()
    }

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        for text in ["max", "0", "18446744073709551615"] {
            assert_eq!(text.parse::<Limit>().unwrap().to_string(), text);
        }
        for text in ["", "Max", "-1", "+1", "1M", " 1", "18446744073709551616"] {
            assert_eq!(text.parse::<Limit>(), Err(InvalidLimit), "{text:?}");
        }
        for (text, whole) in [("max", "max 100000"), ("5000", "5000 100000"), ("max 1000", "max 1000")] {
            assert_eq!(cpu(text).to_string(), whole);
        }
        for text in ["", "1 ", "1 max", "1 0", "1 999", "1 1000001", "1 1000 1000"] {
            assert_eq!(text.parse::<CpuMax>(), Err(InvalidLimit), "{text:?}");
        }
    }

    #[test]
    fn g11_the_sum_adds_each_limit_and_takes_the_larger_weight() {
        let one =
            Tier { memory_max: Limit::Value(3), cpu_weight: 50, pids_max: Limit::Value(u64::MAX), ..Tier::UNLIMITED };
        let two = Tier { memory_max: Limit::Value(4), cpu_weight: 200, pids_max: Limit::Value(1), ..Tier::UNLIMITED };
        let sum = Tier { memory_max: Limit::Value(7), cpu_weight: 200, ..Tier::UNLIMITED };
        assert_eq!(one.sum(two), sum);
        assert_eq!(one.sum(Tier::UNLIMITED).memory_max, Limit::Max);
    }

    #[test]
    fn g11_quotas_are_brought_to_one_period_first() {
        for (one, two, sum) in [
            ("50000 100000", "100000 100000", "150000 100000"),
            ("5000 10000", "5000 10000", "10000 10000"),
            ("5000 10000", "50000 100000", "100000 100000"),
            ("1 3000", "0 100000", "34 100000"),
            ("max 10000", "5000", "max 100000"),
        ] {
            assert_eq!(cpu(one).sum(cpu(two)).to_string(), sum, "{one} and {two}");
            assert_eq!(cpu(two).sum(cpu(one)).to_string(), sum, "{two} and {one}");
        }
    }
}
