//! Limits of a cgroup, written in the order that harms nobody.

use std::cmp::Ordering;
use std::io::{self, ErrorKind};

use log::debug;
use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::controllers::Controllers;
use super::error::CgroupError;
use super::node::Cgroup;
use crate::generation::{CpuMax, Limit, Tier};

/// How often the kernel is asked to reclaim: it may give up before it has reached what was asked for.
const RECLAIMS: u32 = 4;

/// One limit of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    CpuWeight(u64),
    CpuMax(CpuMax),
    PidsMax(Limit),
    MemoryMax(Limit),
    MemoryHigh(Limit),
}

impl Setting {
    fn all(tier: &Tier) -> [Self; 5] {
        [
            Self::CpuWeight(tier.cpu_weight),
            Self::CpuMax(tier.cpu_max),
            Self::PidsMax(tier.pids_max),
            // Before memory.high, so that where this one cannot be lowered (G12) that one does not throttle.
            Self::MemoryMax(tier.memory_max),
            Self::MemoryHigh(tier.memory_high),
        ]
    }

    fn file(self) -> &'static str {
        match self {
            Self::CpuWeight(_) => "cpu.weight",
            Self::CpuMax(_) => "cpu.max",
            Self::PidsMax(_) => "pids.max",
            Self::MemoryMax(_) => "memory.max",
            Self::MemoryHigh(_) => "memory.high",
        }
    }

    fn value(self) -> String {
        match self {
            Self::CpuWeight(weight) => weight.to_string(),
            Self::CpuMax(max) => max.to_string(),
            Self::PidsMax(limit) | Self::MemoryMax(limit) | Self::MemoryHigh(limit) => limit.to_string(),
        }
    }

    /// Whether it gives more than `old`, the same limit before.
    fn raises(self, old: Self) -> bool {
        let more = |new: Limit, old: Limit| as_number(new) > as_number(old);
        match (self, old) {
            (Self::CpuWeight(new), Self::CpuWeight(old)) => new > old,
            (Self::CpuMax(new), Self::CpuMax(old)) => compare_quotas(new, old) == Ordering::Greater,
            (Self::PidsMax(new), Self::PidsMax(old))
            | (Self::MemoryMax(new), Self::MemoryMax(old))
            | (Self::MemoryHigh(new), Self::MemoryHigh(old)) => more(new, old),
            _ => false,
        }
    }
}

fn as_number(limit: Limit) -> u64 {
    match limit {
        Limit::Max => u64::MAX,
        Limit::Value(value) => value,
    }
}

/// By how much of the time they give.
fn compare_quotas(one: CpuMax, two: CpuMax) -> Ordering {
    let share = |max: CpuMax, other: CpuMax| match max.quota {
        Limit::Max => u128::MAX,
        Limit::Value(quota) => u128::from(quota) * u128::from(other.period),
    };
    share(one, two).cmp(&share(two, one))
}

/// What has to be written, in order: what raises first, what lowers last (G13).
fn plan(old: &Tier, new: &Tier) -> Vec<Setting> {
    let changes = Setting::all(new).into_iter().zip(Setting::all(old)).filter(|(new, old)| new != old);
    let (raised, lowered): (Vec<_>, Vec<_>) = changes.partition(|(new, old)| new.raises(*old));
    raised.into_iter().chain(lowered).map(|(new, _)| new).collect()
}

impl Cgroup {
    /// The limits as the files say; a limit whose controller is not there is none. The kernel rounds memory to pages.
    pub fn limits(&self) -> Result<Tier, CgroupError> {
        // In a removed one, files are missing as those of controllers are.
        self.must_exist()?;
        let none = Tier::UNLIMITED;
        Ok(Tier {
            memory_max: self.read_limit("memory.max", none.memory_max)?,
            memory_high: self.read_limit("memory.high", none.memory_high)?,
            cpu_max: self.read_limit("cpu.max", none.cpu_max)?,
            cpu_weight: self.read_limit("cpu.weight", none.cpu_weight)?,
            pids_max: self.read_limit("pids.max", none.pids_max)?,
        })
    }

    /// Makes the limits those of `tier`: what raises first, what lowers last (G13). The first failure ends it; what the
    /// limits are then, [`Cgroup::limits`] tells.
    ///
    /// **May block**, where a memory limit is lowered: the kernel reclaims memory before it answers, for seconds.
    ///
    /// `memory.max` is lowered only to what is not in use, after a reclaim, as the kernel would kill otherwise (G12).
    pub fn set_limits(&self, tier: &Tier) -> Result<(), CgroupError> {
        for setting in plan(&self.limits()?, tier) {
            match setting {
                Setting::MemoryMax(Limit::Value(limit)) => self.set_memory_max(limit)?,
                // What is above it is not killed, but has to reclaim.
                _ => self.set(setting)?,
            }
        }
        Ok(())
    }

    /// How many bytes are charged to it and all below; nothing without the controller.
    pub fn memory_current(&self) -> Result<Option<u64>, CgroupError> {
        self.read_value("memory.current")
    }

    /// Has the kernel reclaim so many bytes, from Linux 5.19 on; on older ones, and without the controller, it does
    /// nothing. Less may be reclaimed.
    ///
    /// **May block**, for seconds.
    pub fn reclaim(&self, bytes: u64) -> Result<(), CgroupError> {
        match self.directory.write("memory.reclaim", &bytes.to_string()) {
            // It could not do all.
            Err(error) if error.raw_os_error() == Some(Errno::EAGAIN as i32) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result.map_err(|error| self.refusal("memory.reclaim", &bytes.to_string(), error)),
        }
    }

    fn set_memory_max(&self, limit: u64) -> Result<(), CgroupError> {
        let mut current = self.memory_current()?.unwrap_or(0);
        for _ in 0..RECLAIMS {
            if current <= limit {
                break;
            }
            debug!("{}: reclaiming {} bytes", self.path().display(), current - limit);
            self.reclaim(current - limit)?;
            current = self.memory_current()?.unwrap_or(0);
        }
        if current > limit {
            let file = self.directory.path_of("memory.max");
            return Err(CgroupError::MemoryInUse { file, wanted: limit, current });
        }
        self.set(Setting::MemoryMax(Limit::Value(limit)))
    }

    fn set(&self, setting: Setting) -> Result<(), CgroupError> {
        let (file, value) = (setting.file(), setting.value());
        // From Linux 6.16 on the kernel neither reclaims nor kills in a write of a memory limit then. Others ignore it.
        self.directory.write_with(file, &value, OFlag::O_NONBLOCK).map_err(|error| {
            if error.kind() != ErrorKind::NotFound {
                return self.refusal(file, &value, error);
            }
            self.must_exist().err().unwrap_or_else(|| self.no_controller(Controllers::needed_for(file)))
        })
    }

    pub(super) fn no_controller(&self, missing: Controllers) -> CgroupError {
        CgroupError::NoController { cgroup: self.path().to_owned(), missing }
    }

    fn read_limit<T: std::str::FromStr>(&self, file: &str, without: T) -> Result<T, CgroupError> {
        Ok(self.read_value(file)?.unwrap_or(without))
    }

    /// Nothing without the controller.
    fn read_value<T: std::str::FromStr>(&self, file: &str) -> Result<Option<T>, CgroupError> {
        let text = match self.directory.read(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            result => result,
        };
        text.and_then(|text| text.trim_end().parse().map_err(|_| io::Error::from(ErrorKind::InvalidData)))
            .map(Some)
            .map_err(CgroupError::io("read", &self.directory.path_of(file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn tier(memory: u64, cpu: &str, pids: u64) -> Tier {
        Tier {
            memory_max: Limit::Value(memory),
            memory_high: Limit::Value(memory / 2),
            cpu_max: cpu.parse().unwrap(),
            cpu_weight: 100,
            pids_max: Limit::Value(pids),
        }
    }

    fn files(old: &Tier, new: &Tier) -> Vec<&'static str> {
        plan(old, new).into_iter().map(Setting::file).collect()
    }

    #[test]
    fn g13_what_raises_comes_first_and_what_lowers_last() {
        let old = tier(64 * MIB, "50000", 100);
        assert_eq!(files(&old, &old), [""; 0]);
        assert_eq!(files(&old, &tier(128 * MIB, "20000", 200)), ["pids.max", "memory.max", "memory.high", "cpu.max"]);
        assert_eq!(files(&old, &tier(32 * MIB, "max", 50)), ["cpu.max", "pids.max", "memory.max", "memory.high"]);
        assert_eq!(files(&old, &Tier { cpu_weight: 200, ..old }), ["cpu.weight"]);
    }

    #[test]
    fn g13_quotas_compare_by_the_time_they_give() {
        let raises =
            |new: &str, old: &str| Setting::CpuMax(new.parse().unwrap()).raises(Setting::CpuMax(old.parse().unwrap()));
        assert!(raises("max", "1000000 1000000"));
        assert!(raises("6000 10000", "50000 100000"));
        assert!(!raises("5000 10000", "50000 100000"));
        assert!(!raises("4000 10000", "50000 100000"));
        assert!(!raises("1000", "max"));
        assert!(!raises("max 1000", "max"));
    }

    #[test]
    fn no_limit_is_more_than_any() {
        let raises = |new, old| Setting::PidsMax(new).raises(Setting::PidsMax(old));
        assert!(raises(Limit::Max, Limit::Value(5)));
        assert!(!raises(Limit::Value(5), Limit::Max));
        assert!(!raises(Limit::Max, Limit::Max));
    }
}
