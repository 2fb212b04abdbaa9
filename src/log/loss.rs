//! What of the container's output is not in the log.

use std::fmt;
use std::ops::Add;
use std::time::{Duration, Instant};

use nix::errno::Errno;

/// Attempts to write again may take this part of the time: a full disk can take long to say so.
const ATTEMPTS_SHARE: u32 = 20;
/// The longest that output is dropped without an attempt to write it.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// How long to wait for more output before the loss is told without: at first, and at most.
const QUIET_MIN: Duration = Duration::from_secs(1);
const QUIET_MAX: Duration = Duration::from_secs(60);

/// What became of the output since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Lines that are in the log with their ends.
    pub(crate) lines_logged: u64,
    /// What was dropped.
    pub(crate) bytes_dropped: u64,
}

impl Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            lines_logged: self.lines_logged + other.lines_logged,
            bytes_dropped: self.bytes_dropped + other.bytes_dropped,
        }
    }
}

/// Output that was dropped, until the log says so.
pub(super) struct Loss {
    bytes: u64,
    records: u64,
    reason: Errno,
    since: Instant,
    tried: Instant,
    pause: Duration,
}

impl Loss {
    /// A loss that begins with a write that failed at `now`.
    pub(super) fn new(reason: Errno, now: Instant) -> Self {
        Self { bytes: 0, records: 0, reason, since: now, tried: now, pause: Duration::ZERO }
    }

    /// Counts output that was dropped, also in the totals.
    pub(super) fn add(&mut self, bytes: usize, records: usize, totals: &mut Totals) {
        self.bytes += bytes as u64;
        self.records += records as u64;
        totals.bytes_dropped += bytes as u64;
    }

    /// Another attempt failed, from `start` to `end`.
    pub(super) fn attempted(&mut self, reason: Errno, start: Instant, end: Instant) {
        self.reason = reason;
        self.tried = end;
        self.pause = ((end - start) * ATTEMPTS_SHARE).min(PAUSE_MAX);
    }

    /// When output may be written again.
    pub(super) fn retry_at(&self) -> Instant {
        self.tried + self.pause
    }

    /// When to try without output: the longer it goes on, the more rarely.
    pub(super) fn tell_at(&self) -> Instant {
        self.tried + (self.tried - self.since).clamp(QUIET_MIN, QUIET_MAX)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, records, .. } = self;
        let lines = if *records == 1 { "line" } else { "lines" };
        write!(f, "{bytes} bytes of output ({records} {lines}) were not logged: {}", self.reason.desc())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f07_a_loss_says_how_much_and_why() {
        let mut loss = Loss::new(Errno::ENOSPC, Instant::now());
        let mut totals = Totals::default();
        loss.add(4, 1, &mut totals);
        assert_eq!(loss.to_string(), "4 bytes of output (1 line) were not logged: No space left on device");
        loss.add(9, 2, &mut totals);
        assert_eq!(loss.to_string(), "13 bytes of output (3 lines) were not logged: No space left on device");
        assert_eq!(totals, Totals { lines_logged: 0, bytes_dropped: 13 });
    }

    #[test]
    fn attempts_take_a_twentieth_of_the_time_and_come_five_times_a_second_at_least() {
        let start = Instant::now();
        let mut loss = Loss::new(Errno::ENOSPC, start);
        assert_eq!(loss.retry_at(), start, "how long an attempt takes is not known yet");
        for (took, pause) in [(1, 20), (5, 100), (9, 180), (11, 200), (700, 200)] {
            let end = start + Duration::from_millis(took);
            loss.attempted(Errno::EIO, start, end);
            assert_eq!(loss.retry_at(), end + Duration::from_millis(pause));
        }
    }

    #[test]
    fn without_output_attempts_grow_rare() {
        let start = Instant::now();
        let mut loss = Loss::new(Errno::ENOSPC, start);
        for (at, wait) in [(0, 1), (1, 1), (2, 2), (4, 4), (50, 50), (1000, 60)] {
            let now = start + Duration::from_secs(at);
            loss.attempted(Errno::ENOSPC, now, now);
            assert_eq!(loss.tell_at(), now + Duration::from_secs(wait));
        }
    }
}
