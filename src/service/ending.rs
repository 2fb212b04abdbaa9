//! The end: all is told to end, killed when it must be, and proven gone (R18 to R20).

use std::time::{Duration, Instant};

use dunnage_runtime::generation::Left;
use dunnage_runtime::reaper::InvalidBudget;
use log::{error, warn};

use super::Shim;
use super::cgroups::NEVER;
use crate::FAILED;
use crate::control::reply::{Done, Event, EventKind};

/// How long clients, the record and the removal of cgroups have at the end.
const FLUSH_WAIT: Duration = Duration::from_secs(1);

/// How far the shim's life is.
#[derive(Debug)]
pub(super) enum Phase {
    Serving,
    /// All is told to end.
    ShuttingDown,
    /// All is over; what has to be told is told.
    Flushing {
        until: Instant,
        status: u8,
    },
    Done(u8),
}

impl Phase {
    pub(super) fn is_serving(&self) -> bool {
        matches!(self, Self::Serving | Self::ShuttingDown)
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Flushing { until, .. } => Some(*until),
            _ => None,
        }
    }
}

impl Shim {
    pub(super) fn is_shutting_down(&self) -> bool {
        !matches!(self.phase, Phase::Serving)
    }

    /// SIGTERM, SIGINT or SIGQUIT: all is told to end. Only --shutdown-timeout says when that must be.
    pub(super) fn terminate(&mut self, now: Instant) {
        match self.config.timing.shutdown_timeout {
            // Its bounds were checked.
            Some(timeout) => drop(self.begin_shutdown(timeout, now)),
            None => self.shut_down_by(now + NEVER, now + NEVER, now),
        }
    }

    /// A shutdown within `timeout` (R19).
    pub(super) fn begin_shutdown(&mut self, timeout: Duration, now: Instant) -> Result<(), InvalidBudget> {
        self.config.timing.validate_shutdown(timeout)?;
        let kill_at = now + timeout.saturating_sub(self.config.timing.stop_budget);
        self.shut_down_by(kill_at, now + timeout, now);
        Ok(())
    }

    fn shut_down_by(&mut self, kill_at: Instant, end_at: Instant, now: Instant) {
        if let Phase::Serving = self.phase {
            self.phase = Phase::ShuttingDown;
            self.control.tell(Event::now(EventKind::ShuttingDown), now);
        }
        self.generations.handle_shutdown(now, kill_at, end_at);
    }

    /// The shutdown is over, but for what is `left`.
    pub(super) fn shut_down(&mut self, left: &[Left], now: Instant) {
        let status = if left.is_empty() {
            0
        } else {
            let left: Vec<String> = left.iter().map(ToString::to_string).collect();
            error!("the shutdown left what does not end: {}", left.join("; "));
            FAILED
        };
        for caller in self.callers.take_shutdown() {
            if left.is_empty() {
                self.control.answer(caller, &Done {}, now);
            } else {
                let refusal = self.unproven_left(left);
                self.control.refuse(caller, &refusal, now);
            }
        }
        // A runtime dies with the shim, and would leave what it knows of its container.
        let wait =
            if self.deletions.is_empty() { FLUSH_WAIT } else { self.config.timing.runtime_grace.max(FLUSH_WAIT) };
        self.phase = Phase::Flushing { until: now + wait, status };
    }

    /// Ends once all that is to be told is told, and what can be removed is.
    pub(super) fn go_on_ending(&mut self, now: Instant) {
        let Phase::Flushing { until, status } = self.phase else { return };
        let flushed = self.control.flushed()
            && self.generations.is_settled()
            && self.cgroups.removals.is_empty()
            && self.deletions.is_empty();
        if flushed || until <= now {
            self.phase = Phase::Done(status);
        }
    }

    /// Tells subscribers of what is known by being looked for.
    pub(super) fn tell_news(&mut self, now: Instant) {
        let swept = self.driver.orphans_swept();
        if swept > self.orphans_told {
            let count = Some(swept - self.orphans_told);
            self.orphans_told = swept;
            self.control.tell(Event { count, ..Event::now(EventKind::OrphanSwept) }, now);
        }
    }

    /// Gives all up, at the very end.
    pub(super) fn close(self) {
        let Self { control, event_loop, output, config, .. } = self;
        control.close(&event_loop);
        // Nothing is left that this could hold up.
        if let Some(log) = output.log.close().filter(|_| config.log.sync)
            && let Err(error) = log.sync_data()
        {
            warn!("the log is not known to be on the disk: {error}");
        }
    }
}
