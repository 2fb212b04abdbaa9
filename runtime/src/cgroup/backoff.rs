//! When to look again at what the kernel does not notify of.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(500);

/// Waits that double, from 5 ms to half a second.
#[derive(Debug)]
pub(super) struct Backoff {
    wait: Duration,
    due: Instant,
}

impl Backoff {
    /// Due at once.
    pub(super) fn new(now: Instant) -> Self {
        Self { wait: FIRST, due: now }
    }

    /// Waits once more, and longer than before.
    pub(super) fn wait(&mut self, now: Instant) {
        self.due = now + self.wait;
        self.wait = (self.wait * 2).min(LONGEST);
    }

    /// Due at once: there is more to do than one call may.
    pub(super) fn go_on(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// When it is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound() {
        let now = Instant::now();
        let mut backoff = Backoff::new(now);
        assert_eq!(backoff.due(), now);
        let mut waits = Vec::new();
        for _ in 0..10 {
            backoff.wait(now);
            waits.push((backoff.due() - now).as_millis());
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 500, 500, 500]);
        backoff.go_on(now);
        assert_eq!(backoff.due(), now);
    }
}
