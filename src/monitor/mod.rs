//! The shim's life once it stays: it owns all parts, and routes each event to the one it concerns.

mod durable;
mod ending;
mod execs;
mod news;
mod service;
mod signal;
mod starting;
mod status;

use std::path::Path;
use std::time::Instant;

use dunnage_runtime::driver::Driver;
use dunnage_runtime::event_loop::{Event, EventLoop};
use dunnage_runtime::reaper::{CallId, ChildId, ExitStatus, Failure, Outcome};
use dunnage_runtime::sys::{InheritedFds, Signals};
use nix::sys::signal::Signal;

use crate::cli::Config;
use crate::log::Log;
use crate::notify::NotifyProxy;
use crate::oom::{self, OomWatch};
use crate::relay::{AttachSocket, ChildStdio, ControlFifo, Relay, Request};
use crate::rounds::{self, Owner, Parts};
use crate::source::{Source, Target};
use crate::start::{Console, OomScore, StartPipe, SyncPipe};

use ending::Ending;
use service::Service;
pub(crate) use starting::{Handed, start};

/// How far the process is.
#[derive(Debug)]
enum Phase {
    /// The caller is still to say that it may start: what it needs for that is there.
    Waiting(StartPipe, ChildStdio),
    /// Its runtime runs.
    Starting(CallId),
    /// It was started.
    Running(ChildId),
    /// It has ended, or never began.
    Ending(Ending),
}

/// The shim that stays, from just before its runtime is started.
pub(crate) struct Monitor {
    config: Box<Config>,
    event_loop: EventLoop<Source>,
    signals: Signals,
    driver: Driver,
    relay: Relay,
    log: Log,
    attach: Option<AttachSocket>,
    fifos: Vec<ControlFifo>,
    console: Option<Console>,
    notify: Option<NotifyProxy>,
    /// Where to watch for it, from when the runtime was started until it is known which cgroup to watch.
    oom_places: Option<oom::Places>,
    oom: Option<OomWatch>,
    service: Option<Box<Service>>,
    sync: SyncPipe,
    inherited: InheritedFds,
    oom_score: OomScore,
    short_side: u32,
    phase: Phase,
}

impl Monitor {
    /// Stays with the process until all is done. Returns the shim's exit status.
    pub(crate) fn run(mut self: Box<Self>) -> u8 {
        rounds::run(&mut *self)
    }

    fn handle_timeouts(&mut self, now: Instant) {
        if self.driver.next_timeout().is_some_and(|at| at <= now) {
            self.driver.handle_timeout(&self.event_loop, now);
        }
        if self.relay.next_timeout().is_some_and(|at| at <= now) {
            self.relay.handle_timeout(&self.event_loop, &self.log, now);
            self.log.release();
        }
        if self.log.deadline().is_some_and(|at| at <= now) {
            self.log.handle_deadline();
        }
        if self.oom.as_ref().and_then(OomWatch::next_timeout).is_some_and(|at| at <= now) {
            self.look_for_oom(now);
        }
        if let Some(service) = &mut self.service {
            service.handle_timeout(&self.event_loop, now);
        }
        if self.ending_timeout().is_some_and(|at| at <= now) {
            self.handle_ending_timeout(now);
        }
    }

    fn handle_outcomes(&mut self, now: Instant) {
        while let Some(outcome) = self.driver.poll_outcome() {
            match outcome {
                Outcome::Started { call, child, pid } => match self.phase {
                    Phase::Starting(containers) if containers == call => self.begin_running(child, pid, now),
                    _ => self.exec_started(call, child, pid, now),
                },
                Outcome::Failed { call, failure } => match self.phase {
                    Phase::Starting(containers) if containers == call => self.end_failed(&failure, now),
                    _ => self.exec_failed(call, &failure, now),
                },
                Outcome::Exited { child, status } => match self.phase {
                    Phase::Running(container) if container == child => self.end_exited(status, now),
                    Phase::Ending(Ending::Commanding { .. }) => self.handle_command_exit(child, status),
                    _ => self.exec_ended(child, status.code(), false, now),
                },
                Outcome::TimedOut { child, limit } => match self.phase {
                    Phase::Running(container) if container == child => self.end_timed_out(limit, now),
                    _ => self.exec_ended(child, ExitStatus::Unknown.code(), true, now),
                },
                Outcome::ShutDown { left } => self.shut_down(&left, now),
            }
        }
    }

    /// Marks an OOM of the container, once.
    fn look_for_oom(&mut self, now: Instant) {
        if let Some(watch) = &mut self.oom
            && watch.look(now)
        {
            oom::mark(self.oom_directories());
            self.close_oom();
            self.tell_oom(now);
        }
    }

    /// Where the caller looks for the mark of an OOM.
    fn oom_directories(&self) -> impl Iterator<Item = &Path> {
        self.config.exit.persist_dir.as_deref().into_iter().chain(self.config.bundle())
    }

    fn close_oom(&mut self) {
        if let Some(watch) = self.oom.take() {
            watch.close(&self.event_loop);
        }
    }

    fn pass_notifications(&mut self, now: Instant) {
        if let Some(notify) = &mut self.notify {
            notify.handle(&self.event_loop, now);
        }
    }

    fn handle_requests(&mut self, source: Source) {
        let relay = &mut self.relay;
        let mut reopen = false;
        for fifo in self.fifos.iter_mut().filter(|fifo| fifo.source() == source) {
            fifo.handle(&self.event_loop, |request| match request {
                Request::Resize { height, width } => relay.resize(height, width),
                Request::ReopenLogs => reopen = true,
            });
        }
        // Once for all that came at once: what was read before goes to the old file in any case.
        if reopen {
            self.log.reopen();
        }
    }
}

impl Owner for Monitor {
    fn exit_status(&self) -> Option<u8> {
        match self.phase {
            Phase::Ending(Ending::Done(status)) => Some(status),
            _ => None,
        }
    }

    fn parts(&mut self) -> Parts<'_> {
        Parts { event_loop: &mut self.event_loop, signals: &mut self.signals, driver: &mut self.driver }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let oom = self.oom.as_ref().and_then(OomWatch::next_timeout);
        let service = self.service.as_ref().and_then(|service| service.next_timeout());
        let log = self.log.deadline();
        [self.driver.next_timeout(), self.relay.next_timeout(), log, oom, service, self.ending_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    fn handle(&mut self, event: Event<Source>, now: Instant) {
        match event.source {
            // The loop's own. Nothing of a service is watched here.
            Source::Signals | Source::Service(_) => {}
            Source::Process(watched) => self.driver.handle_exit(&self.event_loop, now, watched),
            Source::Relay(Target::Exec(exec), source) => {
                let event = Event { source, readable: event.readable, writable: event.writable };
                self.handle_exec_relay(exec, event, now);
            }
            Source::Relay(Target::Container, source) => {
                let event = Event { source, readable: event.readable, writable: event.writable };
                self.relay.handle(&self.event_loop, &mut self.log, event, now);
                self.tell_output_closed(now);
            }
            Source::Journal => self.log.handle_writable(),
            Source::StartPipe => self.handle_start_pipe(now),
            Source::ConsoleListener(Target::Container) => self.accept_console(now),
            Source::ConsoleConnection(Target::Container) => self.receive_terminal(now),
            Source::ConsoleListener(Target::Exec(exec)) => self.accept_exec_console(exec, now),
            Source::ConsoleConnection(Target::Exec(exec)) => self.receive_exec_terminal(exec, now),
            Source::ControlListener | Source::ControlConnection(_) => {
                if let Some(service) = &mut self.service {
                    service.control.handle(&self.event_loop, event, now);
                }
            }
            Source::Ctl | Source::Winsz => self.handle_requests(event.source),
            Source::Oom => self.look_for_oom(now),
            Source::Notify => self.pass_notifications(now),
            Source::Durable => self.handle_durable(now),
        }
    }

    fn settle(&mut self, now: Instant) {
        self.handle_outcomes(now);
    }

    fn handle_termination(&mut self, signal: Signal, now: Instant) {
        self.driver.handle_termination(&self.event_loop, now, signal);
        self.hasten_end(now);
    }

    fn reopen_log(&mut self) {
        self.log.reopen();
    }

    fn end_round(&mut self, now: Instant) {
        self.handle_timeouts(now);
        self.handle_calls(now);
        self.handle_outcomes(now);
        self.settle_execs(now);
        self.answer_signallers(now);
        self.go_on_if_flushed(now);
        self.tell_news(now);
        // Anything may have given the log room, or taken it.
        self.log.watch(&self.event_loop);
        self.relay.resume(&self.event_loop, &self.log);
    }
}

/// What the caller is told of a failed call: the runtime's own words where they say it all.
fn failure_text(failure: &Failure, stderr: Vec<u8>) -> Vec<u8> {
    let said_something = !stderr.trim_ascii().is_empty();
    match failure {
        Failure::Runtime(_) if said_something => stderr,
        _ if said_something => {
            let mut text = failure.to_string().into_bytes();
            text.extend_from_slice(b": ");
            text.extend_from_slice(&stderr);
            text
        }
        _ => failure.to_string().into_bytes(),
    }
}
