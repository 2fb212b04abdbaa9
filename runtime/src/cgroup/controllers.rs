//! The controllers that limits need.

use std::fmt;

use crate::generation::{Limit, Tier};

/// Those of the controllers that a tier can need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Controllers {
    /// For `memory.max` and `memory.high`.
    pub memory: bool,
    /// For `cpu.max` and `cpu.weight`.
    pub cpu: bool,
    /// For `pids.max`.
    pub pids: bool,
}

impl Controllers {
    /// Reads `cgroup.controllers` or `cgroup.subtree_control`; other controllers are left out.
    pub(super) fn parse(text: &str) -> Self {
        let has = |name| text.split_ascii_whitespace().any(|word| word == name);
        Self { memory: has("memory"), cpu: has("cpu"), pids: has("pids") }
    }

    /// What the tier needs: nothing for what it does not limit (G14).
    #[must_use]
    pub fn needed_by(tier: &Tier) -> Self {
        Self {
            memory: tier.memory_max != Limit::Max || tier.memory_high != Limit::Max,
            cpu: tier.cpu_max.quota != Limit::Max || tier.cpu_weight != Tier::UNLIMITED.cpu_weight,
            pids: tier.pids_max != Limit::Max,
        }
    }

    /// What the file of a limit belongs to: its name begins with it.
    pub(super) fn needed_for(file: &str) -> Self {
        Self::parse(file.split('.').next().unwrap_or(file))
    }

    /// Those that `others` has not.
    pub(super) fn without(self, others: Self) -> Self {
        Self { memory: self.memory && !others.memory, cpu: self.cpu && !others.cpu, pids: self.pids && !others.pids }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Their names.
    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        [(self.memory, "memory"), (self.cpu, "cpu"), (self.pids, "pids")]
            .into_iter()
            .filter_map(|(is_in, name)| is_in.then_some(name))
    }
}

impl fmt::Display for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Controllers = Controllers { memory: true, cpu: true, pids: true };

    #[test]
    fn controllers_are_whole_words() {
        assert_eq!(Controllers::parse("cpuset cpu io memory hugetlb pids rdma misc\n"), ALL);
        assert!(Controllers::parse("cpuset memory_x hugetlb\n").is_empty());
        assert!(Controllers::parse("\n").is_empty());
    }

    #[test]
    fn g14_a_tier_needs_the_controllers_of_its_limits_alone() {
        let needed = |tier: Tier| Controllers::needed_by(&tier).to_string();
        assert_eq!(needed(Tier::UNLIMITED), "");
        assert_eq!(needed(Tier { memory_max: Limit::Value(1), ..Tier::UNLIMITED }), "memory");
        assert_eq!(needed(Tier { memory_high: Limit::Value(1), ..Tier::UNLIMITED }), "memory");
        assert_eq!(needed(Tier { cpu_weight: 99, ..Tier::UNLIMITED }), "cpu");
        // Another period without a quota limits nothing.
        assert_eq!(needed(Tier { cpu_max: "max 1000".parse().unwrap(), ..Tier::UNLIMITED }), "");
        let whole = Tier { cpu_max: "1000 1000".parse().unwrap(), pids_max: Limit::Value(0), ..Tier::UNLIMITED };
        assert_eq!(needed(whole), "cpu, pids");
    }

    #[test]
    fn g14_what_is_missing_is_named() {
        let available = Controllers { cpu: true, ..Controllers::default() };
        assert_eq!(ALL.without(available).to_string(), "memory, pids");
        assert!(available.without(ALL).is_empty());
    }
}
