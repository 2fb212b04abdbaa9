//! The orphan sweep: zombies that nobody claims, and how long each is left alone.

use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::Timing;
use super::call::Call;
use super::types::CallId;

/// How long after one look the next one that SIGCHLD asks for comes at the earliest: with a flood of orphans, each
/// look lists them all (R8).
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// An unclaimed zombie.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    pid: Pid,
    first_seen: Instant,
    /// The newest call that was in progress then.
    newest_call: Option<CallId>,
}

/// What one look decided.
#[derive(Debug)]
pub(super) struct Due {
    /// To be reaped now.
    pub(super) orphans: Vec<Pid>,
    /// When to look again.
    pub(super) next: Option<Instant>,
}

/// The memory of the sweep.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// By PID.
    candidates: Vec<Candidate>,
    last_look: Option<Instant>,
}

impl Sweep {
    /// Until when a look that SIGCHLD asks for has to wait, if it has to.
    pub(super) fn hold_off(&self, now: Instant) -> Option<Instant> {
        let earliest = self.last_look? + LOOK_INTERVAL;
        (earliest > now).then_some(earliest)
    }

    /// Whether there are zombies that are left alone for now.
    pub(super) fn has_candidates(&self) -> bool {
        !self.candidates.is_empty()
    }

    /// Takes in which zombies have no owner now. Those that were not seen this time are forgotten.
    pub(super) fn look(&mut self, now: Instant, mut unclaimed: Vec<Pid>, calls: &[Call], timing: &Timing) -> Due {
        self.last_look = Some(now);
        unclaimed.sort_unstable_by_key(|pid| pid.as_raw());
        let newest_call = calls.iter().map(|call| call.id).max();
        let seen_before = std::mem::take(&mut self.candidates);
        let mut due = Due { orphans: Vec::new(), next: None };
        for pid in unclaimed {
            let candidate = match seen_before.binary_search_by_key(&pid.as_raw(), |old| old.pid.as_raw()) {
                Ok(position) => seen_before[position],
                Err(_) => Candidate { pid, first_seen: now, newest_call },
            };
            let when = candidate.due(calls, timing);
            if when <= now {
                due.orphans.push(pid);
            } else {
                self.candidates.push(candidate);
                due.next = Some(due.next.map_or(when, |next| next.min(when)));
            }
        }
        due
    }
}

impl Candidate {
    /// When it is reaped: after ORPHAN_GRACE (R3), or later for calls that may still claim it (R4).
    fn due(&self, calls: &[Call], timing: &Timing) -> Instant {
        let grace = self.first_seen + timing.orphan_grace;
        let deferral = calls
            .iter()
            .filter(|call| self.newest_call.is_some_and(|newest| call.id <= newest))
            .map(|call| call.runtime_deadline + timing.claim_margin())
            .max();
        match deferral {
            Some(until) => grace.max(until.min(self.first_seen + timing.orphan_max_defer)),
            None => grace,
        }
    }
}
