//! Carries the reaper's decisions out on real processes, and feeds it what the kernel says of them.

mod broadcast;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod kinship;
mod tree;
mod zombies;

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use log::{debug, warn};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpgid};

use crate::event_loop::{EventLoop, Interest, Source};
use crate::privileges;
use crate::reaper::{
    Action, CallId, CallSpec, ChildId, ExitStatus, InvalidBudget, Kinship, Outcome, PidFile, Reaper, Snapshot, Timing,
    Walk,
};
use crate::sys::{Answer, Pidfd, Program, Spawned, Task};
use broadcast::Broadcast;
use tree::{Tree, Way, share_of_turn};

pub use broadcast::{BroadcastId, Broadcasted, TooManyBroadcasts};

/// When a process that was not reaped started, in clock ticks since boot: with the PID, which process it is (R9).
#[must_use]
pub fn start_time(pid: Pid) -> Option<u64> {
    kinship::Stat::of(pid).map(|stat| stat.started)
}

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
    /// Whether the event loop tells of its end. If not, each SIGCHLD may be about it.
    is_watched: bool,
}

/// Whether a process has ended.
#[derive(Clone, Copy, Debug)]
enum End {
    NotYet,
    /// It is a zombie, which its own parent is to reap.
    Unreaped,
    /// It was reaped, by this process just now or by its own parent before.
    Gone(ExitStatus),
}

impl Process {
    /// Reaps the process if it is this one's child and has ended.
    fn end(&self) -> End {
        match self.pidfd.try_reap() {
            Ok(Some(status)) => End::Gone(status),
            Ok(None) => End::NotYet,
            Err(error) if error.raw_os_error() == Some(Errno::ECHILD as i32) => {
                if !self.pidfd.has_exited() {
                    End::NotYet
                } else if self.pidfd.is_unreaped() {
                    End::Unreaped
                } else {
                    End::Gone(self.pidfd.status_of_reaped().unwrap_or(ExitStatus::Unknown))
                }
            }
            Err(error) => {
                warn!("cannot learn how process {} ended: {error}", self.pid);
                End::Gone(ExitStatus::Unknown)
            }
        }
    }
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
    /// Of children that are killed with all that is below them.
    trees: Vec<(ChildId, Tree)>,
    /// Signals to all processes of a child; the first is on its way.
    broadcasts: VecDeque<Broadcast>,
    broadcasts_done: VecDeque<Broadcasted>,
    next_broadcast: u32,
    outcomes: VecDeque<Outcome>,
    next_watched: u32,
    /// A process is not watched whose SIGCHLD may have been seen before it was known.
    look_again: bool,
    orphans_swept: u64,
    runtimes_killed: u64,
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

/// Why a call was not started. Nothing ran.
#[derive(Debug)]
pub enum StartError {
    /// A shutdown has begun (R19).
    ShuttingDown,
    /// The runtime could not be started.
    Spawn(io::Error),
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Spawn(error)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShuttingDown => f.write_str("this monitor is shutting down"),
            Self::Spawn(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

impl Driver {
    /// A driver without processes. The caller is a subreaper already, so that what runtimes leave ends up here.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self {
            reaper: Reaper::new(timing),
            processes: Vec::new(),
            calls: Vec::new(),
            trees: Vec::new(),
            broadcasts: VecDeque::new(),
            broadcasts_done: VecDeque::new(),
            next_broadcast: 0,
            outcomes: VecDeque::new(),
            next_watched: 0,
            look_again: false,
            orphans_swept: 0,
            runtimes_killed: 0,
        }
    }

    /// Starts a runtime, which begins a call.
    pub fn start_call<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        now: Instant,
        call: RuntimeCall<'_>,
    ) -> Result<CallId, StartError> {
        if !self.reaper.accepts_calls() {
            return Err(StartError::ShuttingDown);
        }
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
        let spawned = program.spawn()?;
        let id = self.expect_child(spawned.pid);
        self.watch_child(event_loop, id, spawned);
        Ok(id)
    }

    /// Starts work that may wait for disk (R22). The task is its owner's, and killed with it; its process ends as a
    /// child does.
    pub fn start_task<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        kept: &[BorrowedFd<'_>],
        work: impl FnOnce() -> Result<Answer, String>,
    ) -> io::Result<Task> {
        let (task, spawned) = Task::start(kept, work)?;
        let id = self.expect_child(spawned.pid);
        self.watch_child(event_loop, id, spawned);
        Ok(task)
    }

    /// A child that was started elsewhere, and has an owner: it is no orphan. It is not reaped before
    /// [`Driver::watch_child`] was called for it, so that a [`Birth`](crate::sys::Birth) can tell what became of it.
    pub fn expect_child(&mut self, pid: Pid) -> ChildId {
        self.reaper.handle_helper_started(pid)
    }

    /// Watches an expected child from now on, and reports its end, also one that has come already.
    pub fn watch_child<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        child: ChildId,
        spawned: Spawned,
    ) {
        self.watch(event_loop, Role::Child(child), spawned.pid, spawned.pidfd);
    }

    /// What the owner of calls and children is to be told next. To be asked after each of the other methods.
    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// When [`Driver::handle_timeout`] is to be called at the latest.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        [self.reaper.next_timeout(), self.broadcast_due()].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn handle_timeout<S: Source + From<Watched>>(&mut self, event_loop: &EventLoop<S>, now: Instant) {
        self.reaper.handle_timeout(now);
        self.carry_out(event_loop, now);
        self.go_on_broadcasting(now);
    }

    /// A watched process ended.
    pub fn handle_exit<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        now: Instant,
        watched: Watched,
    ) {
        let Some(process) = self.processes.iter().find(|process| process.watched == watched) else { return };
        match process.role {
            // It is asked there alone: a status can be had only once (R2).
            Role::Child(child) => self.collect(event_loop, now, child),
            role @ Role::Runtime(call) => {
                let status = match process.end() {
                    End::NotYet => return,
                    End::Gone(status) => status,
                    // Not seen: a runtime is a child of this process.
                    End::Unreaped => ExitStatus::Unknown,
                };
                self.give_up(event_loop, role);
                self.reaper.handle_runtime_exit(now, call, status);
            }
            role @ Role::Leftover(call) => {
                if matches!(process.end(), End::NotYet) {
                    return;
                }
                self.give_up(event_loop, role);
                self.reaper.handle_process_exit(now, call);
            }
        }
        self.carry_out(event_loop, now);
    }

    /// SIGCHLD arrived. To be called after the exits of the same round, whose processes have their owners.
    pub fn handle_sigchld<S: Source + From<Watched>>(&mut self, event_loop: &EventLoop<S>, now: Instant) {
        self.look_at_unwatched(event_loop, now);
        self.reaper.handle_sigchld(now);
        self.carry_out(event_loop, now);
    }

    /// Sees which of the processes that the event loop cannot watch have ended.
    fn look_at_unwatched<S: Source + From<Watched>>(&mut self, event_loop: &EventLoop<S>, now: Instant) {
        let unwatched: Vec<Watched> =
            self.processes.iter().filter(|process| !process.is_watched).map(|process| process.watched).collect();
        for watched in unwatched {
            self.handle_exit(event_loop, now, watched);
        }
    }

    /// Whether a shutdown with a deadline has begun.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        !self.reaper.accepts_calls()
    }

    /// SIGTERM, SIGINT or SIGQUIT arrived (R18).
    pub fn handle_termination<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        now: Instant,
        signal: Signal,
    ) {
        self.reaper.handle_termination(now, signal);
        self.carry_out(event_loop, now);
    }

    /// A shutdown is to be over within `deadline` (R19).
    pub fn handle_shutdown<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        now: Instant,
        deadline: Duration,
    ) -> Result<(), InvalidBudget> {
        self.reaper.handle_shutdown(now, deadline)?;
        self.carry_out(event_loop, now);
        Ok(())
    }

    /// Sends `signal` to a child, if it was not reaped yet.
    pub fn signal_child<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        now: Instant,
        child: ChildId,
        signal: Signal,
    ) {
        self.reaper.handle_signal(child, signal);
        self.carry_out(event_loop, now);
    }

    /// Kills a child that nobody waits for any more, with all below it.
    pub fn cancel_child<S: Source + From<Watched>>(&mut self, event_loop: &EventLoop<S>, now: Instant, child: ChildId) {
        self.reaper.handle_cancel(child);
        self.carry_out(event_loop, now);
    }

    /// Gives up memory that is not needed for what there is now.
    pub fn shrink(&mut self) {
        self.reaper.shrink();
        self.processes.shrink_to_fit();
        self.calls.shrink_to_fit();
        self.trees.shrink_to_fit();
        self.broadcasts.shrink_to_fit();
        self.broadcasts_done.shrink_to_fit();
        self.outcomes.shrink_to_fit();
    }

    /// Whether it is over.
    #[must_use]
    pub fn shutdown_is_over(&self) -> bool {
        self.reaper.shutdown_is_over()
    }

    /// What the reaper knows.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.reaper.snapshot()
    }

    /// How many orphans were reaped so far.
    #[must_use]
    pub fn orphans_swept(&self) -> u64 {
        self.orphans_swept
    }

    /// How many runtimes were killed so far.
    #[must_use]
    pub fn runtimes_killed(&self) -> u64 {
        self.runtimes_killed
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
            let _raised = needs_privileges(&action).then(privileges::raise);
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
                Action::KillChild(child) => {
                    self.signal_group_of(child, Signal::SIGKILL);
                    self.signal(Role::Child(child), Signal::SIGKILL);
                }
                Action::Collect(child) => self.collect(event_loop, now, child),
                Action::ForgetChild(child) => self.give_up(event_loop, Role::Child(child)),
                Action::StopTree(child) => {
                    let walk = self.stop_tree(child);
                    self.reaper.handle_tree_stopped(now, child, walk);
                }
                Action::KillTree(child) => {
                    let walk = self.kill_tree(child);
                    self.reaper.handle_tree_killed(now, child, walk);
                }
                Action::ListZombies => match zombies::list() {
                    Ok(zombies) => self.reaper.handle_zombies(now, &zombies),
                    Err(error) => {
                        warn!("cannot list child processes: {error}");
                        self.reaper.handle_list_failure(now);
                    }
                },
                Action::ReapOrphan(pid) => self.reap_orphan(pid),
                Action::Report(outcome) => self.report(outcome),
            }
        }
        if mem::take(&mut self.look_again) {
            self.look_at_unwatched(event_loop, now);
        }
    }

    fn watch<S: Source + From<Watched>>(&mut self, event_loop: &EventLoop<S>, role: Role, pid: Pid, pidfd: Pidfd) {
        let watched = Watched(self.next_watched);
        self.next_watched += 1;
        let watch = event_loop.watch(&pidfd, S::from(watched), Interest::READABLE);
        if let Err(error) = &watch {
            // At the user's limit of watches, or without memory.
            warn!("cannot watch process {pid}, whose end is noticed at the next SIGCHLD: {error}");
            self.look_again = true;
        }
        self.processes.push(Process { watched, role, pid, pidfd, is_watched: watch.is_ok() });
    }

    /// Starts to watch the process that was examined for `call`. One that has exited already is reported at once.
    fn watch_examined<S: Source + From<Watched>>(&mut self, event_loop: &EventLoop<S>, call: CallId, role: Role) {
        if let Some((pid, pidfd)) = self.files_of(call).and_then(|files| files.examined.take()) {
            self.watch(event_loop, role, pid, pidfd);
        }
    }

    fn abandon<S: Source>(&mut self, event_loop: &EventLoop<S>, role: Role) {
        if let Some(process) = self.find(role) {
            warn!("process {} does not die of SIGKILL; it is reaped whenever it does", process.pid);
            self.give_up(event_loop, role);
        }
    }

    /// Stops watching the process in that role.
    fn give_up<S: Source>(&mut self, event_loop: &EventLoop<S>, role: Role) {
        if let Some(position) = self.processes.iter().position(|process| process.role == role) {
            let process = self.processes.remove(position);
            event_loop.unwatch(&process.pidfd);
        }
    }

    /// Sees whether the child has ended, and tells the reaper.
    fn collect<S: Source>(&mut self, event_loop: &EventLoop<S>, now: Instant, child: ChildId) {
        let Some(process) = self.find(Role::Child(child)) else { return };
        match process.end() {
            End::NotYet => self.reaper.handle_child_running(child),
            End::Unreaped => self.reaper.handle_child_ended(now, child),
            End::Gone(status) => {
                debug!("process {} {status}", process.pid);
                self.give_up(event_loop, Role::Child(child));
                self.reaper.handle_child_exit(child, status);
            }
        }
    }

    fn files_of(&mut self, call: CallId) -> Option<&mut CallFiles> {
        self.calls.iter_mut().find(|files| files.id == call)
    }

    fn find(&self, role: Role) -> Option<&Process> {
        self.processes.iter().find(|process| process.role == role)
    }

    fn kill_runtime(&mut self, call: CallId) {
        if let Some(process) = self.find(Role::Runtime(call)) {
            warn!("killing the runtime (process {}) and its group", process.pid);
            if let Err(error) = process.pidfd.signal_group(process.pid, Signal::SIGKILL) {
                // Before it made its own group it is on its own.
                debug!("cannot kill the group of process {}: {error}", process.pid);
            }
            self.signal(Role::Runtime(call), Signal::SIGKILL);
            self.runtimes_killed += 1;
        }
    }

    /// Signals the group that the child leads, if it does. One that is not this process's to reap may be reaped at any
    /// moment, and the number pass to another group.
    fn signal_group_of(&self, child: ChildId, signal: Signal) {
        if let Some(Process { pid, pidfd, .. }) = self.find(Role::Child(child))
            && pidfd.is_child().unwrap_or(false)
            && getpgid(Some(*pid)) == Ok(*pid)
            && let Err(error) = pidfd.signal_group(*pid, signal)
        {
            debug!("cannot send {signal} to the group of process {pid}: {error}");
        }
    }

    fn stop_tree(&mut self, child: ChildId) -> Walk {
        let role = Role::Child(child);
        let Some(root) = self.find(role).map(|process| process.pid) else { return Walk::Settled };
        if !self.trees.iter().any(|&(of, _)| of == child) {
            warn!("stopping process {root} and all below it, as its time is over");
            self.signal_group_of(child, Signal::SIGSTOP);
            self.signal(role, Signal::SIGSTOP);
            self.trees.extend(Tree::new(root, Way::Stop).map(|tree| (child, tree)));
        }
        let Some(position) = self.trees.iter().position(|&(of, _)| of == child) else { return Walk::Settled };
        let time = share_of_turn(self.trees.len());
        let (child, mut tree) = self.trees.swap_remove(position);
        let adopted = |root| if self.reaper.is_main(child) { self.adopted(root) } else { Vec::new() };
        let walk = tree.walk_slice(time, adopted);
        self.trees.push((child, tree));
        walk
    }

    /// The children that nobody started from here: daemons of the container's, which their parents left. What is above
    /// `root` is its runtime's.
    fn adopted(&self, root: Pid) -> Vec<Pid> {
        let above: Vec<Pid> = kinship::ancestors(root).take_while(|&pid| pid != Pid::this()).collect();
        let mut children = tree::children_of(Pid::this());
        children.retain(|pid| !above.contains(pid) && self.processes.iter().all(|process| process.pid != *pid));
        children
    }

    fn kill_tree(&mut self, child: ChildId) -> Walk {
        let Some(position) = self.trees.iter().position(|&(of, _)| of == child) else { return Walk::Settled };
        let time = share_of_turn(self.trees.len());
        let walk = self.trees[position].1.signal_slice_from_below(Signal::SIGKILL, time);
        if walk == Walk::Settled {
            self.trees.remove(position);
        }
        walk
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
        // Whatever is there is not waited for: it may be a fifo.
        let open = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&files.pid_file);
        match open {
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

/// Whether it reads files or signals processes, which may be another user's.
fn needs_privileges(action: &Action) -> bool {
    match action {
        Action::KillRuntime(_)
        | Action::SignalRuntime(..)
        | Action::ReadPidFile(_)
        | Action::Examine(..)
        | Action::KillProcess(_)
        | Action::SignalChild(..)
        | Action::KillChild(_)
        | Action::StopTree(_)
        | Action::KillTree(_)
        | Action::ListZombies => true,
        Action::AbandonRuntime(_)
        | Action::AbandonProcess(_)
        | Action::Register(..)
        | Action::Collect(_)
        | Action::ForgetChild(_)
        | Action::ReapOrphan(_)
        | Action::Report(_) => false,
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        debug!("{} orphans were reaped", self.orphans_swept);
    }
}
