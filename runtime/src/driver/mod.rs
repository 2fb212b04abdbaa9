//! Carries the reaper's decisions out on real processes, and feeds it what the kernel says of them.

mod kinship;
mod zombies;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Instant;

use log::{debug, warn};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::event_loop::{EventLoop, Interest, Source};
use crate::reaper::{Action, CallId, CallSpec, ChildId, ExitStatus, Kinship, Outcome, PidFile, Reaper, Timing};
use crate::sys::{Pidfd, Program, Spawned};

/// The name of a watched process in the event loop; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched(pub u32);

/// What a watched process is to the reaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The runtime of a call.
    Runtime(CallId),
    /// The process that the runtime of a failed call left, which was killed.
    Leftover(CallId),
    /// A registered child.
    Child(ChildId),
}

#[derive(Debug)]
struct Process {
    watched: Watched,
    role: Role,
    pid: Pid,
    pidfd: Pidfd,
}

/// What the driver keeps of a call.
#[derive(Debug)]
struct CallFiles {
    id: CallId,
    /// Where the runtime writes the PID of its process.
    pid_file: PathBuf,
    /// That process, from its examination until the reaper said what becomes of it.
    examined: Option<(Pid, Pidfd)>,
}

/// The processes of a shim.
#[derive(Debug)]
pub struct Driver {
    reaper: Reaper,
    processes: Vec<Process>,
    calls: Vec<CallFiles>,
    outcomes: VecDeque<Outcome>,
    next_watched: u32,
    /// Orphans reaped so far.
    orphans_swept: u64,
}

/// An OCI runtime's run.
#[derive(Debug)]
pub struct RuntimeCall<'a> {
    /// The runtime.
    pub program: Program<'a>,
    /// Where it writes the PID of the process it starts.
    pub pid_file: PathBuf,
    /// Its bounds.
    pub spec: CallSpec,
}

impl Driver {
    /// A driver without processes. The caller is a subreaper already, so that what runtimes leave ends up here.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self {
            reaper: Reaper::new(timing),
            processes: Vec::new(),
            calls: Vec::new(),
            outcomes: VecDeque::new(),
            next_watched: 0,
            orphans_swept: 0,
        }
    }

    /// Starts a runtime, which begins a call.
    pub fn start_call<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        now: Instant,
        call: RuntimeCall<'_>,
    ) -> io::Result<CallId> {
        let Spawned { pid, pidfd } = call.program.spawn()?;
        let id = self.reaper.handle_runtime_started(now, pid, &call.spec);
        self.calls.push(CallFiles { id, pid_file: call.pid_file, examined: None });
        self.watch(event_loop, Role::Runtime(id), pid, pidfd);
        Ok(id)
    }

    /// Starts a program that runs for the shim itself; its end is reported as a child's.
    pub fn start_helper<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        program: &Program<'_>,
    ) -> io::Result<ChildId> {
        let Spawned { pid, pidfd } = program.spawn()?;
        let id = self.reaper.handle_helper_started(pid);
        self.watch(event_loop, Role::Child(id), pid, pidfd);
        Ok(id)
    }

    /// What the owner of calls and children is to be told next. To be asked after each of the other methods.
    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// When [`Driver::handle_timeout`] is to be called at the latest.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.reaper.next_timeout()
    }

    /// Does what is due.
    pub fn handle_timeout<S: Source + From<Watched>>(&mut self, event_loop: &EventLoop<S>, now: Instant) {
        self.reaper.handle_timeout(now);
        self.carry_out(event_loop, now);
    }

    /// A watched process ended.
    pub fn handle_exit<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        now: Instant,
        watched: Watched,
    ) {
        let Some(position) = self.processes.iter().position(|process| process.watched == watched) else { return };
        let status = match self.processes[position].pidfd.try_reap() {
            Ok(Some(status)) => status,
            Ok(None) => return,
            // Not a child of this process, but below it: its parent has the status.
            Err(error) if error.raw_os_error() == Some(Errno::ECHILD as i32) => ExitStatus::Unknown,
            Err(error) => {
                warn!("cannot learn how process {} ended: {error}", self.processes[position].pid);
                ExitStatus::Unknown
            }
        };
        let process = self.processes.remove(position);
        event_loop.unwatch(&process.pidfd);
        debug!("process {} {status}", process.pid);
        match process.role {
            Role::Runtime(call) => self.reaper.handle_runtime_exit(now, call, status),
            Role::Leftover(call) => self.reaper.handle_process_exit(now, call),
            Role::Child(child) => self.reaper.handle_child_exit(child, status),
        }
        self.carry_out(event_loop, now);
    }

    /// SIGCHLD arrived. To be called after the exits of the same round, whose processes have their owners.
    pub fn handle_sigchld<S: Source + From<Watched>>(&mut self, event_loop: &EventLoop<S>, now: Instant) {
        self.reaper.handle_sigchld(now);
        self.carry_out(event_loop, now);
    }

    /// SIGTERM, SIGINT or SIGQUIT arrived (R18).
    pub fn handle_termination<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        now: Instant,
        signal: Signal,
    ) {
        self.reaper.handle_termination(signal);
        self.carry_out(event_loop, now);
    }

    /// The runtime of the call handed over the terminal.
    pub fn handle_terminal_connected<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        now: Instant,
        call: CallId,
    ) {
        self.reaper.handle_terminal_connected(call);
        self.carry_out(event_loop, now);
    }

    /// The terminal of the call can no longer be connected.
    pub fn handle_terminal_failed<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        now: Instant,
        call: CallId,
    ) {
        self.reaper.handle_terminal_failed(now, call);
        self.carry_out(event_loop, now);
    }

    /// Nobody holds the output of the call's runtime any more.
    pub fn handle_output_closed<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        now: Instant,
        call: CallId,
    ) {
        self.reaper.handle_output_closed(call);
        self.carry_out(event_loop, now);
    }

    fn carry_out<S: Source + From<Watched>>(&mut self, event_loop: &EventLoop<S>, now: Instant) {
        while let Some(action) = self.reaper.poll_action() {
            match action {
                Action::KillRuntime(call) => self.kill_runtime(call),
                Action::SignalRuntime(call, signal) => self.signal(Role::Runtime(call), signal),
                Action::AbandonRuntime(call) => self.abandon(event_loop, Role::Runtime(call)),
                Action::ReadPidFile(call) => {
                    let pid_file = self.read_pid_file(call);
                    self.reaper.handle_pid_file(now, call, pid_file);
                }
                Action::Examine(call, pid) => {
                    let kinship = self.examine(call, pid);
                    self.reaper.handle_kinship(now, call, kinship);
                }
                Action::KillProcess(call) => {
                    self.watch_examined(event_loop, call, Role::Leftover(call));
                    self.signal(Role::Leftover(call), Signal::SIGKILL);
                }
                Action::AbandonProcess(call) => self.abandon(event_loop, Role::Leftover(call)),
                Action::Register(call, child) => self.watch_examined(event_loop, call, Role::Child(child)),
                Action::SignalChild(child, signal) => self.signal(Role::Child(child), signal),
                Action::ListZombies => {
                    let zombies = zombies::list().unwrap_or_else(|error| {
                        warn!("cannot list child processes: {error}");
                        Vec::new()
                    });
                    self.reaper.handle_zombies(now, &zombies);
                }
                Action::ReapOrphan(pid) => self.reap_orphan(pid),
                Action::Report(outcome) => self.report(outcome),
            }
        }
    }

    fn watch<S: Source + From<Watched>>(&mut self, event_loop: &EventLoop<S>, role: Role, pid: Pid, pidfd: Pidfd) {
        let watched = Watched(self.next_watched);
        self.next_watched += 1;
        if let Err(error) = event_loop.watch(&pidfd, S::from(watched), Interest::READABLE) {
            // Without memory in the kernel; its end would go unnoticed.
            log::error!("cannot watch process {pid}: {error}");
        }
        self.processes.push(Process { watched, role, pid, pidfd });
    }

    /// Starts to watch the process that was examined for `call`. One that has exited already is reported at once.
    fn watch_examined<S: Source + From<Watched>>(&mut self, event_loop: &EventLoop<S>, call: CallId, role: Role) {
        if let Some((pid, pidfd)) = self.files_of(call).and_then(|files| files.examined.take()) {
            self.watch(event_loop, role, pid, pidfd);
        }
    }

    fn abandon<S: Source>(&mut self, event_loop: &EventLoop<S>, role: Role) {
        if let Some(process) = self.take(role) {
            warn!("process {} does not die of SIGKILL; it is reaped whenever it does", process.pid);
            event_loop.unwatch(&process.pidfd);
        }
    }

    fn take(&mut self, role: Role) -> Option<Process> {
        let position = self.processes.iter().position(|process| process.role == role)?;
        Some(self.processes.remove(position))
    }

    fn files_of(&mut self, call: CallId) -> Option<&mut CallFiles> {
        self.calls.iter_mut().find(|files| files.id == call)
    }

    fn find(&self, role: Role) -> Option<&Process> {
        self.processes.iter().find(|process| process.role == role)
    }

    fn kill_runtime(&self, call: CallId) {
        if let Some(process) = self.find(Role::Runtime(call)) {
            warn!("killing the runtime (process {}) and its group", process.pid);
            if let Err(error) = process.pidfd.signal_group(process.pid, Signal::SIGKILL) {
                // Before it made its own group it is on its own.
                debug!("cannot kill the group of process {}: {error}", process.pid);
            }
            self.signal(Role::Runtime(call), Signal::SIGKILL);
        }
    }

    fn signal(&self, role: Role, signal: Signal) {
        if let Some(process) = self.find(role) {
            debug!("{signal} to process {}", process.pid);
            match process.pidfd.signal(signal) {
                Ok(()) => {}
                // Reaped by its own parent.
                Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => {}
                Err(error) => warn!("cannot send {signal} to process {}: {error}", process.pid),
            }
        }
    }

    fn read_pid_file(&mut self, call: CallId) -> PidFile {
        let Some(files) = self.files_of(call) else { return PidFile::Absent };
        match File::open(&files.pid_file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => PidFile::Absent,
            Err(error) => PidFile::Invalid(error.to_string()),
            Ok(file) => {
                // A PID has at most ten digits.
                let mut text = Vec::with_capacity(32);
                match file.take(32).read_to_end(&mut text) {
                    Ok(_) => kinship::parse_pid_file(&text),
                    Err(error) => PidFile::Invalid(error.to_string()),
                }
            }
        }
    }

    fn examine(&mut self, call: CallId, pid: Pid) -> Kinship {
        let Some(files) = self.files_of(call) else { return Kinship::None };
        match Pidfd::open(pid) {
            Ok(pidfd) => {
                let kinship = kinship::examine(pid, &pidfd);
                files.examined = (kinship != Kinship::None).then_some((pid, pidfd));
                kinship
            }
            Err(error) => {
                debug!("cannot open process {pid}: {error}");
                Kinship::None
            }
        }
    }

    fn reap_orphan(&mut self, pid: Pid) {
        match zombies::reap(pid) {
            Ok(description) => {
                self.orphans_swept += 1;
                log::info!("reaped an orphan: {description}");
            }
            Err(error) => debug!("cannot reap process {pid}: {error}"),
        }
    }

    fn report(&mut self, outcome: Outcome) {
        if let Outcome::Started { call, .. } | Outcome::Failed { call, .. } = outcome {
            self.calls.retain(|files| files.id != call);
        }
        self.outcomes.push_back(outcome);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        debug!("{} orphans were reaped", self.orphans_swept);
    }
}
