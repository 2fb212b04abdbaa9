//! The shim's life once it stays: it owns all parts, and routes each event to the one it concerns.

mod durable;
mod ending;
mod execs;
mod service;
mod signal;

use std::mem;
use std::os::fd::AsFd;
use std::path::Path;
use std::process;
use std::time::Instant;

use dunnage_runtime::driver::{Driver, RuntimeCall};
use dunnage_runtime::event_loop::{Event, EventLoop, Interest};
use dunnage_runtime::privileges;
use dunnage_runtime::reaper::{self, CallId, CallSpec, ChildId, ExitStatus, Failure, Outcome, Timeout};
use dunnage_runtime::sys::{self, Environment, InheritedFds, Program, Signals, Ties};
use log::{info, warn};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::FAILED;
use crate::cli::{Config, Stdio};
use crate::error::{Context, Result};
use crate::log::Log;
use crate::notify::NotifyProxy;
use crate::oom::{self, OomWatch};
use crate::relay::{AttachSocket, ChildStdio, ControlFifo, Fifo, Relay, Request};
use crate::rounds::{self, Owner, Parts};
use crate::source::{Source, Target};
use crate::start::{
    AttachPipe, CallerPipes, Console, Dialect, GoAhead, Handover, OomScore, StartPipe, SyncPipe, let_go_of_stdio,
    passes_to_runtime, runtime_args,
};

use ending::Ending;
use service::Service;

/// What the start hands over.
pub(crate) struct Handed {
    pub(crate) config: Box<Config>,
    pub(crate) log: Log,
    pub(crate) pipes: CallerPipes,
    pub(crate) inherited: InheritedFds,
    pub(crate) oom_score: OomScore,
    pub(crate) signals: Signals,
    /// The PID that this process, or the one it was forked from, was started as.
    pub(crate) short_side: u32,
    pub(crate) go_ahead: GoAhead,
}

/// Makes all that the process needs and has the runtime start it. What fails here, the caller is told. Without the short
/// side's word there is nothing to stay for.
pub(crate) fn start(mut handed: Handed) -> Result<Option<Box<Monitor>>> {
    let CallerPipes { sync, attach, start } = mem::take(&mut handed.pipes);
    let mut sync = SyncPipe::new(sync, Dialect::of(&handed.config));
    let attach_pipe = AttachPipe::new(attach);
    let go_ahead = mem::take(&mut handed.go_ahead);
    let prepared = Monitor::prepare(handed);
    if !go_ahead.wait() {
        // The short side has said why.
        if let Ok(mut monitor) = prepared {
            monitor.finish(FAILED);
        }
        return Ok(None);
    }
    match prepared {
        Ok(mut monitor) => {
            monitor.sync = sync;
            attach_pipe.ready();
            monitor.begin(start);
            Ok(Some(monitor))
        }
        Err(failure) => {
            let text = failure.to_string();
            attach_pipe.failed(text.as_bytes());
            sync.failed(text.as_bytes());
            Err(failure)
        }
    }
}

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
    /// Makes all that the process needs.
    fn prepare(handed: Handed) -> Result<Box<Self>> {
        let Handed { config, log, inherited, oom_score, signals, short_side, .. } = handed;
        let event_loop = EventLoop::new().context(|| "cannot make an event loop")?;
        event_loop.watch(&signals, Source::Signals, Interest::READABLE).context(|| "cannot watch signals")?;
        let console = match config.stdio {
            Stdio::Terminal => Some(Console::listen(&event_loop, Target::Container)?),
            Stdio::Pipes | Stdio::PipesWithStdin | Stdio::Passthrough => None,
        };
        let (mut relay, child_stdio) = Relay::new(
            &event_loop,
            Target::Container,
            config.stdio,
            config.leave_stdin_open,
            config.attach.stall_timeout,
        )
        .context(|| "cannot make the pipes")?;
        if config.stdio == Stdio::Passthrough {
            // They are the runtime's from now on: who reads them learns of the container's end, not of this one's.
            let_go_of_stdio()?;
        }
        let mut attach = None;
        let mut fifos = Vec::new();
        if let Some(bundle) = config.bundle().filter(|_| !config.log.passthrough) {
            let link_dir = config.attach.link_dir.as_deref();
            let (socket, listener) = AttachSocket::create(bundle, link_dir, &config.uuid)?;
            attach = Some(socket);
            relay.listen(&event_loop, listener).context(|| "cannot watch the attach socket")?;
            for fifo in [Fifo::Ctl, Fifo::Winsz] {
                fifos.push(ControlFifo::create(&event_loop, bundle, fifo)?);
            }
        }
        let notify = match (config.bundle(), config.sdnotify_socket) {
            (Some(bundle), Some(host)) => Some(
                NotifyProxy::create(&event_loop, bundle, host)
                    .context(|| "cannot pass on the container's notifications")?,
            ),
            _ => None,
        };
        let service = config.control_socket.as_deref().map(|path| Service::open(&event_loop, path)).transpose()?;
        Ok(Box::new(Self {
            driver: Driver::new(config.timing),
            sync: SyncPipe::new(None, Dialect::of(&config)),
            config,
            event_loop,
            signals,
            relay,
            log,
            attach,
            fifos,
            console,
            notify,
            oom_places: None,
            oom: None,
            service,
            inherited,
            oom_score,
            short_side,
            phase: Phase::Waiting(StartPipe::default(), child_stdio),
        }))
    }

    /// Starts the runtime: at once, or for an exec with clients once they have attached and the caller says so.
    fn begin(&mut self, pipe: StartPipe) {
        let Phase::Waiting(start, _) = &mut self.phase else { return };
        if self.config.waits_for_clients() {
            *start = pipe;
        }
        match start.watch(&self.event_loop) {
            Ok(true) => {}
            Ok(false) => self.start_runtime(Instant::now()),
            Err(error) => self.give_up(&error),
        }
    }

    /// The start pipe has something to say.
    fn handle_start_pipe(&mut self, now: Instant) {
        let Phase::Waiting(start, _) = &self.phase else { return };
        match start.wait() {
            Ok(()) => self.start_runtime(now),
            Err(failure) => self.give_up(&failure),
        }
    }

    fn start_runtime(&mut self, now: Instant) {
        let ended = Phase::Ending(Ending::Done(FAILED));
        let Phase::Waiting(start, child_stdio) = mem::replace(&mut self.phase, ended) else { return };
        start.close(&self.event_loop);
        match self.call_runtime(&child_stdio, now) {
            Ok(call) => {
                self.phase = Phase::Starting(call);
                // While the runtime runs, nobody waits for this.
                if self.oom_directories().next().is_some() {
                    self.oom_places = Some(oom::Places::find());
                }
                self.tell_output_closed(now);
            }
            Err(failure) => self.give_up(&failure),
        }
    }

    fn call_runtime(&mut self, child_stdio: &ChildStdio, now: Instant) -> Result<CallId> {
        let runtime = &self.config.runtime;
        let console_path = self.console.as_ref().map(Console::path);
        let program = Program {
            path: runtime.path.as_os_str(),
            args: runtime_args(&self.config, console_path.as_deref()),
            stdio: [child_stdio.stdin.as_fd(), child_stdio.stdout.as_fd(), child_stdio.stderr.as_fd()],
            ties: Ties::OwnGroupDiesWithParent,
            mask: self.signals.original_mask(),
            oom_score_adj: self.oom_score.original,
            environment: if passes_to_runtime(self.config.replace_listen_pid, [self.short_side, process::id()])? {
                Environment::OwnListenPid
            } else {
                Environment::Inherited
            },
        };
        let spec = CallSpec {
            job: if self.config.is_exec() { reaper::Job::Exec } else { reaper::Job::Create },
            terminal: self.config.stdio == Stdio::Terminal,
            main: true,
            timeout: self.config.timeout.map(Timeout::SinceKnown),
        };
        let pid_file = self.config.container_pid_file.clone();
        self.driver
            .start_call(&self.event_loop, now, RuntimeCall { program, pid_file, spec })
            .context(|| format!("cannot start the runtime {}", runtime.path.display()))
    }

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

    /// The container's process is there.
    fn begin_running(&mut self, child: ChildId, pid: Pid, now: Instant) {
        info!("the process is {pid}");
        self.close_console();
        self.relay.take_stderr_tail();
        // Before the caller lets it run.
        if let Some(places) = self.oom_places.take() {
            self.oom = OomWatch::start(&self.event_loop, places, pid.as_raw());
        }
        self.sync.started(pid.as_raw());
        self.phase = Phase::Running(child);
        self.tell_started(pid, now);
        // Here, as from here on what comes in is the container's and its clients'.
        privileges::lay_down();
        sys::give_back_memory();
    }

    /// Lets a failed call end early where nobody holds the runtime's output any more (R16).
    fn tell_output_closed(&mut self, now: Instant) {
        if let Phase::Starting(call) = self.phase
            && self.relay.output_closed()
        {
            self.driver.handle_output_closed(&self.event_loop, now, call);
        }
    }

    fn accept_console(&mut self, now: Instant) {
        let Some(console) = &mut self.console else { return };
        if let Err(error) = console.accept(&self.event_loop) {
            warn!("cannot accept the runtime's connection to the console socket: {error}");
            if let Phase::Starting(call) = self.phase {
                self.driver.handle_terminal_failed(&self.event_loop, now, call);
            }
        }
    }

    fn receive_terminal(&mut self, now: Instant) {
        let Some(console) = &mut self.console else { return };
        let Handover::Terminal(master) = console.receive(&self.event_loop) else { return };
        let connected = self.relay.connect_terminal(&self.event_loop, master);
        self.close_console();
        let Phase::Starting(call) = self.phase else { return };
        match connected {
            Ok(()) => self.driver.handle_terminal_connected(&self.event_loop, now, call),
            Err(error) => {
                warn!("cannot set up the terminal: {error}");
                self.driver.handle_terminal_failed(&self.event_loop, now, call);
            }
        }
    }

    fn close_console(&mut self) {
        if let Some(console) = self.console.take() {
            console.close(&self.event_loop);
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
