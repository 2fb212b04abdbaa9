//! From what the start hands over until the process runs.

use std::mem;
use std::os::fd::AsFd;
use std::process;
use std::time::Instant;

use dunnage_runtime::driver::{Driver, RuntimeCall};
use dunnage_runtime::event_loop::{EventLoop, Interest};
use dunnage_runtime::privileges;
use dunnage_runtime::reaper::{self, CallId, CallSpec, ChildId, Timeout};
use dunnage_runtime::sys::{self, Environment, InheritedFds, Program, Signals, Ties};
use log::{info, warn};
use nix::unistd::Pid;

use super::ending::Ending;
use super::service::Service;
use super::{Monitor, Phase};
use crate::FAILED;
use crate::cli::{Config, Stdio};
use crate::error::{Context, Result};
use crate::log::Log;
use crate::notify::NotifyProxy;
use crate::oom::{self, OomWatch};
use crate::relay::{AttachSocket, ChildStdio, ControlFifo, Fifo, Relay};
use crate::source::{Source, Target};
use crate::start::{
    AttachPipe, CallerPipes, Console, Dialect, GoAhead, Handover, OomScore, StartPipe, SyncPipe, let_go_of_stdio,
    passes_to_runtime, runtime_args,
};

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
    pub(super) fn handle_start_pipe(&mut self, now: Instant) {
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

    /// The container's process is there.
    pub(super) fn begin_running(&mut self, child: ChildId, pid: Pid, now: Instant) {
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
    pub(super) fn tell_output_closed(&mut self, now: Instant) {
        if let Phase::Starting(call) = self.phase
            && self.relay.output_closed()
        {
            self.driver.handle_output_closed(&self.event_loop, now, call);
        }
    }

    pub(super) fn accept_console(&mut self, now: Instant) {
        let Some(console) = &mut self.console else { return };
        if let Err(error) = console.accept(&self.event_loop) {
            warn!("cannot accept the runtime's connection to the console socket: {error}");
            if let Phase::Starting(call) = self.phase {
                self.driver.handle_terminal_failed(&self.event_loop, now, call);
            }
        }
    }

    pub(super) fn receive_terminal(&mut self, now: Instant) {
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

    pub(super) fn close_console(&mut self) {
        if let Some(console) = self.console.take() {
            console.close(&self.event_loop);
        }
    }
}
