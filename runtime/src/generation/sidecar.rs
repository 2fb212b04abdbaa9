//! The sidecar: it runs as long as its generation does, and is started again when it ends (G26, G27).

use std::time::{Duration, Instant};

use super::record::Sidecar;
use super::types::{Failure, RequestId, Role, Source};
use super::{Generations, Number, Timer, refused};

/// How long the first wait before a start is, and the longest.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// After how long a life the waits begin anew.
const LONG_LIFE: Duration = Duration::from_secs(60);

/// How long the next start waits.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// The last wait.
    last: Option<Duration>,
    /// Since when it has run.
    since: Option<Instant>,
}

impl Backoff {
    pub(super) fn begin_life(&mut self, now: Instant) {
        self.since = Some(now);
    }

    pub(super) fn end_life(&mut self, now: Instant) {
        if self.since.take().is_some_and(|since| now.duration_since(since) >= LONG_LIFE) {
            self.last = None;
        }
    }

    fn next(&mut self) -> Duration {
        *self.last.insert(self.last.map_or(SHORTEST, |last| (last * 2).min(LONGEST)))
    }
}

impl Generations {
    pub(super) fn start_sidecar(&mut self, request: RequestId, number: Number) -> Result<(), Failure> {
        self.check_startable()?;
        if self.record.sidecar.is_some() || self.evictions.contains_key(&Role::Sidecar) {
            return Err(Failure::Busy("there is a sidecar".into()));
        }
        if !self.is_serving(number) {
            return Err(Failure::NotFound(format!("running process of generation {number}")));
        }
        if self.open_sidecar(Some(request), number) {
            self.record.sidecar = Some(Sidecar { of: number, run: None, wanted: true });
            return Ok(());
        }
        refused(format!("generation {number} has no staged path to start a sidecar from"))
    }

    /// Starts it from the path that its generation was staged at, never from the live link.
    fn open_sidecar(&mut self, request: Option<RequestId>, number: Number) -> bool {
        let Some(run) = self.record.generations.get(&number) else { return false };
        let Some(path) = run.staged.clone() else { return false };
        let source = Source::Sidecar { build: run.build.clone(), path };
        let tier = Some(run.tier);
        self.open(request, Role::Sidecar, source, tier, None);
        true
    }

    /// The wait is over.
    pub(super) fn restart_sidecar(&mut self) {
        let Some(sidecar) = self.record.sidecar.as_ref().filter(|sidecar| sidecar.wanted && sidecar.run.is_none())
        else {
            return;
        };
        let number = sidecar.of;
        if self.shutdown.is_none() && self.start_of(Role::Sidecar).is_none() {
            self.open_sidecar(None, number);
        }
    }

    /// Nothing of it is left; the wait counts from here.
    pub(super) fn sidecar_ended(&mut self, now: Instant) {
        match &self.record.sidecar {
            Some(sidecar) if sidecar.wanted => {
                let wait = self.backoff.next();
                self.deadlines.set(Timer::Sidecar, now + wait);
            }
            _ => self.forget_sidecar(),
        }
    }

    /// A start of it came to nothing. One that a caller asked for is the caller's to ask for again.
    pub(super) fn sidecar_failed(&mut self, now: Instant, asked: bool) {
        if asked && let Some(sidecar) = &mut self.record.sidecar {
            sidecar.wanted = false;
        }
        if self.record.run(Role::Sidecar).is_none() {
            self.sidecar_ended(now);
        }
    }

    /// Nobody can tell whether it runs: then it is to be gone first.
    pub(super) fn clear_sidecar(&mut self, now: Instant, asked: bool) {
        if asked && let Some(sidecar) = &mut self.record.sidecar {
            sidecar.wanted = false;
        }
        self.start_kill(now, Role::Sidecar);
    }

    /// It is not to be started again. What runs of it runs on.
    pub(super) fn dismiss_sidecar(&mut self, now: Instant) {
        self.deadlines.cancel(Timer::Sidecar);
        let starting = self.start_of(Role::Sidecar).filter(|start| start.is_cancellable()).map(|start| start.id);
        if let Some(sidecar) = &mut self.record.sidecar {
            sidecar.wanted = false;
            self.save();
        }
        if let Some(id) = starting {
            self.fail_start(now, id, Failure::Refused("it was stopped before it was started".into()));
        }
        if self.record.run(Role::Sidecar).is_none() && self.start_of(Role::Sidecar).is_none() {
            self.forget_sidecar();
        }
    }

    /// Its generation has ended, or is about to.
    pub(super) fn stop_sidecar_of(&mut self, now: Instant, number: Number) {
        if self.record.sidecar.as_ref().is_some_and(|sidecar| sidecar.of == number && sidecar.wanted) {
            self.dismiss_sidecar(now);
            if self.record.sidecar.is_some() && !self.is_killing(Role::Sidecar) {
                self.start_kill(now, Role::Sidecar);
            }
        }
    }

    fn forget_sidecar(&mut self) {
        self.backoff = Backoff::default();
        self.deadlines.cancel(Timer::Sidecar);
        if self.record.sidecar.take().is_some() {
            self.save();
        }
    }
}
