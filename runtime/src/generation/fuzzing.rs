//! What limits are held to.

use super::{CpuMax, Limit, Tier};

/// Two limits as the kernel or an operator writes them, on a line each.
pub(crate) fn limits(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut lines = text.splitn(2, '\n').map(str::parse::<CpuMax>);
    let (Some(Ok(one)), Some(Ok(two))) = (lines.next(), lines.next()) else { return };
    for limit in [one, two] {
        assert_eq!(limit.to_string().parse(), Ok(limit));
        assert!((1_000..=1_000_000).contains(&limit.period), "{limit}");
    }

    let tier = |cpu_max| Tier { cpu_max, ..Tier::UNLIMITED };
    let sum = tier(one).sum(tier(two)).cpu_max;
    let (Limit::Value(first), Limit::Value(second)) = (one.quota, two.quota) else {
        return assert_eq!(sum.quota, Limit::Max);
    };
    // In time for each product of the three periods, so that nothing is rounded.
    let [one, two, both] = [one.period, two.period, sum.period].map(u128::from);
    let needed = u128::from(first) * two * both + u128::from(second) * one * both;
    let quota = |quota| u128::from(quota) * one * two;
    match sum.quota {
        Limit::Max => assert!(needed > quota(u64::MAX - 2), "there is a number for it"),
        Limit::Value(value) => {
            assert!(quota(value) >= needed, "one gets less than alone");
            assert!(quota(value.saturating_sub(2)) < needed.max(1), "more than rounding asks for");
        }
    }
}
