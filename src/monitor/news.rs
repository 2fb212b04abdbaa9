//! What subscribers are told, and what else is known by being looked for after each round.

use std::time::{Duration, Instant, SystemTime};

use dunnage_runtime::sys;
use nix::unistd::Pid;

use super::Monitor;
use super::service::CONTAINER;
use crate::control::reply::{Event, EventKind};
use crate::limits::LimitFiles;

/// How often subscribers are told of output that was dropped, at most.
const DROPPED_INTERVAL: Duration = Duration::from_secs(1);

/// What subscribers heard of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    orphans_swept: u64,
    shutting_down: bool,
    bytes_dropped: u64,
    /// When they may hear of more that was dropped, if more was.
    pub(super) dropped_again: Option<Instant>,
}

impl Monitor {
    /// Tells subscribers.
    pub(super) fn tell(&mut self, event: Event, now: Instant) {
        if let Some(service) = &mut self.service {
            service.control.tell(event, now);
        }
    }

    /// The container has started.
    pub(super) fn tell_started(&mut self, pid: Pid, now: Instant) {
        if let Some(service) = &mut self.service {
            service.container.process = Some((pid, SystemTime::now()));
            service.container.limits = LimitFiles::of(pid.as_raw());
            let event = Event::now(EventKind::Started);
            service.control.tell(Event { target: Some(CONTAINER.into()), pid: Some(pid.as_raw()), ..event }, now);
        }
    }

    /// The container has ended.
    pub(super) fn tell_ended(&mut self, kind: EventKind, exit_code: i32, now: Instant) {
        self.tell_dropped(now);
        if let Some(service) = &mut self.service {
            service.container.exit_code = Some(exit_code);
            let pid = service.container.process.map(|(pid, _)| pid.as_raw());
            let event = Event { target: Some(CONTAINER.into()), pid, exit_code: Some(exit_code), ..Event::now(kind) };
            service.control.tell(event, now);
        }
    }

    /// The container ran out of memory.
    pub(super) fn tell_oom(&mut self, now: Instant) {
        self.tell(Event { target: Some(CONTAINER.into()), ..Event::now(EventKind::Oom) }, now);
    }

    /// Tells subscribers how much output was dropped since they were told last.
    fn tell_dropped(&mut self, now: Instant) {
        let dropped = self.log.totals().bytes_dropped;
        let Some(service) = &mut self.service else { return };
        let count = dropped - service.told.bytes_dropped;
        if count > 0 {
            service.told.bytes_dropped = dropped;
            service.told.dropped_again = Some(now + DROPPED_INTERVAL);
            service.control.tell(Event { count: Some(count), ..Event::now(EventKind::LogDropped) }, now);
        }
    }

    /// Tells subscribers of what is known by being looked for.
    pub(super) fn tell_news(&mut self, now: Instant) {
        if self.service.as_ref().is_some_and(|service| service.told.dropped_again.is_none_or(|at| at <= now)) {
            if let Some(service) = &mut self.service {
                service.told.dropped_again = None;
            }
            self.tell_dropped(now);
        }
        let Some(service) = &mut self.service else { return };
        if service.idle.is_some_and(|at| at <= now) {
            service.idle = None;
            if service.execs.is_empty() {
                service.execs.shrink();
                service.signallers.shrink();
                self.driver.shrink();
                sys::give_back_memory();
            }
        }
        let swept = self.driver.orphans_swept();
        if swept > service.told.orphans_swept {
            let count = Some(swept - service.told.orphans_swept);
            service.told.orphans_swept = swept;
            service.control.tell(Event { count, ..Event::now(EventKind::OrphanSwept) }, now);
        }
        if self.driver.is_shutting_down() && !service.told.shutting_down {
            service.told.shutting_down = true;
            service.control.tell(Event::now(EventKind::ShuttingDown), now);
        }
    }
}
