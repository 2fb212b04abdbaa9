//! The orphan sweep: zombies that nobody claims, and how long each is left alone.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::call::Call;
use super::snapshot::Zombie;
use super::types::CallId;
use super::{Action, Reaper, SLICE_PAUSE, Timer, Timing};

/// How long after one look the next one that SIGCHLD asks for comes at the earliest: with a flood of orphans, each
/// look lists them all (R8).
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How many orphans are reaped before the loop sees to other things (R8).
const SLICE: usize = 256;

/// An unclaimed zombie.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    pid: Pid,
    first_seen: Instant,
    /// The newest call that was in progress then.
    newest_call: Option<CallId>,
}

/// The memory of the sweep.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// By PID; left alone for now.
    candidates: Vec<Candidate>,
    /// To be reaped, slice by slice.
    due: Vec<Candidate>,
    last_look: Option<Instant>,
    /// The last look saw a zombie with the PID of a registered child.
    collecting: bool,
    /// What was reaped without an owner, and the newest call that was in progress then. Kept while such a call is:
    /// at most one entry for each PID there can be.
    reaped: BTreeMap<i32, CallId>,
}

impl Sweep {
    /// Until when a look that SIGCHLD asks for has to wait, if it has to.
    fn hold_off(&self, now: Instant) -> Option<Instant> {
        let earliest = self.last_look? + LOOK_INTERVAL;
        (earliest > now).then_some(earliest)
    }

    /// Takes in which zombies have no owner now. Those that were not seen this time are forgotten. Returns when the
    /// next of them is due that is not due yet.
    fn look(&mut self, now: Instant, mut unclaimed: Vec<Pid>, calls: &[Call], timing: &Timing) -> Option<Instant> {
        self.last_look = Some(now);
        unclaimed.sort_unstable_by_key(|pid| pid.as_raw());
        let newest_call = newest(calls);
        let mut seen_before = std::mem::take(&mut self.candidates);
        seen_before.append(&mut self.due);
        seen_before.sort_unstable_by_key(|candidate| candidate.pid.as_raw());
        let mut next: Option<Instant> = None;
        for pid in unclaimed {
            let candidate = match seen_before.binary_search_by_key(&pid.as_raw(), |old| old.pid.as_raw()) {
                Ok(position) => seen_before[position],
                Err(_) => Candidate { pid, first_seen: now, newest_call },
            };
            let when = candidate.due(calls, timing);
            if when <= now {
                self.due.push(candidate);
            } else {
                self.candidates.push(candidate);
                next = Some(next.map_or(when, |next| next.min(when)));
            }
        }
        next
    }

    fn forget(&mut self, pid: Pid) {
        self.candidates.retain(|candidate| candidate.pid != pid);
        self.due.retain(|candidate| candidate.pid != pid);
    }

    /// Remembers that `pid` was reaped and may be another process's from now on.
    pub(super) fn remember_reaped(&mut self, pid: Pid, calls: &[Call]) {
        if let Some(newest_call) = newest(calls) {
            self.reaped.insert(pid.as_raw(), newest_call);
        }
    }

    /// Whether `pid` was reaped without an owner since `call` began: what `call` says of it is of a process that is
    /// gone (R4).
    pub(super) fn reaped_during(&self, call: CallId, pid: Pid) -> bool {
        self.reaped.get(&pid.as_raw()).is_some_and(|&newest_call| call <= newest_call)
    }

    /// Forgets what was reaped before the `oldest` call in progress began.
    pub(super) fn forget_reaped_before(&mut self, oldest: Option<CallId>) {
        match oldest {
            Some(oldest) => self.reaped.retain(|_, newest_call| *newest_call >= oldest),
            None => self.reaped.clear(),
        }
    }

    /// Whether there may be a zombie that was taken for a child, which is gone now.
    pub(super) fn take_collecting(&mut self) -> bool {
        std::mem::take(&mut self.collecting)
    }

    /// Gives up memory that is not needed now.
    pub(super) fn shrink(&mut self) {
        self.candidates.shrink_to_fit();
        self.due.shrink_to_fit();
    }

    /// What is left alone, or is to be reaped in one of the next slices.
    pub(super) fn zombies(&self) -> impl Iterator<Item = Zombie> {
        let seen = self.candidates.iter().chain(&self.due);
        seen.map(|&Candidate { pid, first_seen, .. }| Zombie { pid, first_seen })
    }

    fn has_candidates(&self) -> bool {
        !self.candidates.is_empty()
    }
}

fn newest(calls: &[Call]) -> Option<CallId> {
    calls.iter().map(|call| call.id).max()
}

impl Candidate {
    /// When it is reaped: after ORPHAN_GRACE (R3), or later for calls that may still claim it (R4).
    fn due(&self, calls: &[Call], timing: &Timing) -> Instant {
        let grace = self.first_seen + timing.orphan_grace;
        let deferral = calls
            .iter()
            .filter(|call| self.newest_call.is_some_and(|newest| call.id <= newest) && call.may_claim())
            .map(|call| call.runtime_deadline + timing.claim_margin())
            .max();
        match deferral {
            Some(until) => grace.max(until.min(self.first_seen + timing.orphan_max_defer)),
            None => grace,
        }
    }
}

impl Reaper {
    /// A child changed its state (SIGCHLD): there may be a zombie.
    pub fn handle_sigchld(&mut self, now: Instant) {
        match self.sweep.hold_off(now) {
            None => self.look(),
            Some(when) => self.bring_forward(Timer::Look, when),
        }
    }

    /// The answer to [`Action::ListZombies`].
    pub fn handle_zombies(&mut self, now: Instant, zombies: &[Pid]) {
        let mut unclaimed = Vec::new();
        self.sweep.collecting = false;
        for &pid in zombies {
            if let Some(child) = self.children.iter().find(|child| child.pid == Some(pid)) {
                // Its parent may have left it to this process after it had exited (R11). Or that reaped it, and
                // another process has the PID, which nobody claims.
                self.actions.push_back(Action::Collect(child.id));
                self.sweep.collecting = true;
            } else if !self.is_claimed(pid) {
                unclaimed.push(pid);
            }
        }
        self.deadlines.cancel(Timer::Look);
        // During a shutdown nothing is deferred (R5).
        let deferring = if self.shutdown.is_some() { &[][..] } else { &self.calls[..] };
        match self.sweep.look(now, unclaimed, deferring, &self.timing) {
            Some(when) => self.deadlines.set(Timer::Sweep, when),
            None => self.deadlines.cancel(Timer::Sweep),
        }
        self.sweep_slice(now);
    }

    /// [`Action::ListZombies`] failed, for want of memory or descriptors.
    pub fn handle_list_failure(&mut self, now: Instant) {
        self.bring_forward(Timer::Look, now + self.timing.orphan_grace);
    }

    /// Reaps some of what is due. The PID files of calls are read before that; what they name is claimed by the time
    /// its turn comes (see [`Reaper::poll_action`]).
    pub(super) fn sweep_slice(&mut self, now: Instant) {
        if self.sweep.due.is_empty() {
            return;
        }
        let calls = self.calls.iter().filter(|call| call.may_claim());
        self.actions.extend(calls.map(|call| Action::ReadPidFile(call.id)));
        let rest = self.sweep.due.len().saturating_sub(SLICE);
        self.actions.extend(self.sweep.due.drain(rest..).map(|candidate| Action::ReapOrphan(candidate.pid)));
        if rest > 0 {
            self.deadlines.set(Timer::Slice, now + SLICE_PAUSE);
        }
    }

    /// Somebody owns `pid` now: it may come back as another process.
    pub(super) fn take_from_sweep(&mut self, pid: Pid) {
        self.sweep.forget(pid);
        if !self.sweep.has_candidates() {
            self.deadlines.cancel(Timer::Sweep);
        }
    }

    pub(super) fn look(&mut self) {
        if !self.actions.contains(&Action::ListZombies) {
            self.actions.push_back(Action::ListZombies);
        }
    }

    /// Looks at what was left alone for a call that may claim it no longer (R4).
    pub(super) fn look_again(&mut self) {
        if self.sweep.has_candidates() {
            self.look();
        }
    }

    fn is_claimed(&self, pid: Pid) -> bool {
        self.children.iter().any(|child| child.pid == Some(pid)) || self.calls.iter().any(|call| call.claims(pid))
    }

    /// Whether the zombie is still an orphan now that its turn has come; if so it is about to be reaped.
    pub(super) fn give_up_orphan(&mut self, pid: Pid) -> bool {
        let orphan = !self.is_claimed(pid);
        if orphan {
            self.sweep.remember_reaped(pid, &self.calls);
            self.abandoned.retain(|&abandoned| abandoned != pid);
            self.go_on_shutting_down();
        }
        orphan
    }
}
