//! What the kernel says of a cgroup's memory, and whether that means that it ran out.

use std::time::{Duration, Instant};

/// On v1 the kernel tells of an OOM before it chooses a victim and counts the kill. Whether the counter moves is looked
/// at once more after so long; if it does not, the victim was somebody else's.
const KILL_WAIT: Duration = Duration::from_secs(1);

/// The part of `memory.events` (v2) or `memory.oom_control` (v1) that counts. What the kernel does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// v2: how often a limit was reached and nothing could be reclaimed.
    pub(super) ooms: Option<u64>,
    /// How many processes were killed for that; on v1 since Linux 4.13.
    pub(super) kills: Option<u64>,
    /// v1: processes wait for memory now, as the cgroup has killing disabled.
    pub(super) stalled: bool,
}

impl Counters {
    /// Reads either file: they have no key in common that means two things. What is not understood is left out.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut counters = Self::default();
        let (mut disabled, mut under_oom) = (false, false);
        for line in text.split(|&byte| byte == b'\n') {
            let Some((key, value)) = str::from_utf8(line).ok().and_then(|line| line.split_once(' ')) else { continue };
            let value = value.parse().ok();
            match key {
                "oom" => counters.ooms = value,
                "oom_kill" => counters.kills = value,
                "oom_kill_disable" => disabled = value == Some(1),
                "under_oom" => under_oom = value == Some(1),
                _ => {}
            }
        }
        Self { stalled: disabled && under_oom, ..counters }
    }

    /// Whether memory ran out since `start`.
    fn tell_oom_since(&self, start: &Self) -> bool {
        // Nothing known is less than any number; so only numbers are compared with each other.
        let rose = |now: Option<u64>, then: Option<u64>| then.is_some() && now > then;
        rose(self.ooms, start.ooms) || rose(self.kills, start.kills) || self.stalled
    }
}

/// Decides whether a container's memory ran out.
#[derive(Debug)]
pub(super) struct Judge {
    start: Counters,
    /// Until when a kill may follow that the kernel has told of.
    expecting: Option<Instant>,
}

impl Judge {
    /// `start` is what the counters were before the container ran.
    pub(super) fn new(start: Counters) -> Self {
        Self { start, expecting: None }
    }

    /// Whether memory has run out, given how often the kernel has signalled since the last look (v1 alone), and the
    /// counters, unless the cgroup is gone.
    ///
    /// On v1 a signal does not yet mean an OOM of this cgroup: all below the one whose limit was reached are told,
    /// whoever is killed, and a removal is told as well.
    pub(super) fn decide(&mut self, signals: u64, counters: Option<Counters>, now: Instant) -> bool {
        let expected = self.expecting.take().is_some();
        match counters {
            Some(counters) if counters.tell_oom_since(&self.start) => true,
            Some(counters) if signals > 0 => {
                self.expecting = Some(now + KILL_WAIT);
                // An old kernel does not tell more. It was no removal, as the counters are still there.
                counters.kills.is_none()
            }
            Some(_) => false,
            // One of them was the removal.
            None => expected || signals > 1,
        }
    }

    /// When to look without a signal.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.expecting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(ooms: u64, kills: u64) -> Counters {
        Counters { ooms: Some(ooms), kills: Some(kills), stalled: false }
    }

    fn v1(kills: u64) -> Counters {
        Counters { ooms: None, kills: Some(kills), stalled: false }
    }

    /// Of a kernel before 4.13.
    const OLD: Counters = Counters { ooms: None, kills: None, stalled: false };

    #[test]
    fn both_files_are_understood_on_old_and_new_kernels() {
        for (text, expected) in [
            ("low 0\nhigh 7\nmax 18\noom 2\noom_kill 1\noom_group_kill 5\n", v2(2, 1)),
            ("low 0\nhigh 0\nmax 0\noom 3\n", Counters { ooms: Some(3), kills: None, stalled: false }),
            ("oom_kill_disable 0\nunder_oom 1\noom_kill 4\n", v1(4)),
            ("oom_kill_disable 0\nunder_oom 0\n", OLD),
            ("oom_kill_disable 1\nunder_oom 1\noom_kill 0\n", Counters { stalled: true, ..v1(0) }),
            ("oom_kill_disable 1\nunder_oom 0\noom_kill 0\n", v1(0)),
            ("oom 18446744073709551615\noom_kill 0", v2(u64::MAX, 0)),
        ] {
            assert_eq!(Counters::parse(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_counts_nothing() {
        let hostile: [&[u8]; 9] = [
            b"",
            b"\n\n\n",
            b"oom",
            b"oom \noom_kill -1\n",
            b"oom  1\n",
            b"oom 18446744073709551616\n",
            b"oom_killer 1\nmy_oom 1\n oom 1\nOOM 1\n",
            b"oom 1x\noom_kill 0x1\n",
            b"\xff\xfe 1\noom\xff 1\noom_kill\0 1\n",
        ];
        for text in hostile {
            assert_eq!(Counters::parse(text), OLD, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn h02_either_counter_tells_and_what_was_before_does_not() {
        let now = Instant::now();
        for (start, later, oom) in [
            (v2(0, 0), v2(0, 0), false),
            (v2(0, 0), v2(1, 0), true),
            (v2(0, 0), v2(0, 1), true),
            (v2(3, 2), v2(3, 2), false),
            (v2(3, 2), v2(3, 3), true),
            // One rose to what the other was.
            (v2(2, 0), v2(2, 2), true),
            // Never seen: a counter that falls is no kill.
            (v2(3, 2), v2(0, 0), false),
            // Appeared from nowhere: nothing to compare with.
            (OLD, v2(1, 1), false),
            (v1(1), v1(1), false),
            (v1(1), v1(2), true),
            (v1(0), Counters { stalled: true, ..v1(0) }, true),
        ] {
            assert_eq!(Judge::new(start).decide(0, Some(later), now), oom, "{start:?} {later:?}");
        }
    }

    #[test]
    fn h01_a_cgroup_that_is_gone_tells_nothing_new() {
        assert!(!Judge::new(v2(0, 0)).decide(0, None, Instant::now()));
    }

    #[test]
    fn h04_the_signal_of_a_removal_is_no_oom() {
        assert!(!Judge::new(v1(0)).decide(1, None, Instant::now()));
        assert!(!Judge::new(OLD).decide(1, None, Instant::now()));
    }

    #[test]
    fn h01_an_oom_signalled_together_with_the_removal_counts() {
        assert!(Judge::new(v1(0)).decide(2, None, Instant::now()));
        assert!(Judge::new(OLD).decide(2, None, Instant::now()));
    }

    #[test]
    fn an_old_kernel_tells_by_the_signal_alone() {
        assert!(Judge::new(OLD).decide(1, Some(OLD), Instant::now()));
        assert!(!Judge::new(OLD).decide(0, Some(OLD), Instant::now()));
    }

    #[test]
    fn a_kill_that_is_counted_after_its_signal_is_looked_for() {
        let now = Instant::now();
        let mut judge = Judge::new(v1(0));
        assert_eq!(judge.next_timeout(), None);
        assert!(!judge.decide(1, Some(v1(0)), now));
        assert_eq!(judge.next_timeout(), Some(now + KILL_WAIT));
        assert!(judge.decide(0, Some(v1(1)), now + KILL_WAIT));
    }

    #[test]
    fn h01_a_cgroup_removed_after_a_signal_and_before_the_count_was_killed_in() {
        let now = Instant::now();
        let mut judge = Judge::new(v1(0));
        assert!(!judge.decide(1, Some(v1(0)), now));
        assert!(judge.decide(1, None, now));
    }

    #[test]
    fn h03_a_siblings_kill_is_forgotten() {
        let now = Instant::now();
        let mut judge = Judge::new(v1(0));
        assert!(!judge.decide(1, Some(v1(0)), now));
        assert!(!judge.decide(0, Some(v1(0)), now + KILL_WAIT));
        assert_eq!(judge.next_timeout(), None);
        assert!(!judge.decide(1, None, now + KILL_WAIT));
    }
}
