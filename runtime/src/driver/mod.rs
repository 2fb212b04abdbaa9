//! Carries the reaper's decisions out on real processes, and feeds it what the kernel says of them.

mod broadcast;
mod call;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod killing;
mod kinship;
mod processes;
mod tree;
mod zombies;

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use log::{debug, warn};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::event_loop::{EventLoop, Source};
use crate::privileges;
use crate::reaper::{
    Action, CallId, ChildId, ExitStatus, InvalidBudget, Kinship, Outcome, PidFile, Reaper, Snapshot, Timing,
};
use crate::sys::{Answer, Program, Spawned, Task};
use broadcast::Broadcast;
use call::Call;
use processes::{End, Processes, Role};
use tree::Tree;

pub use broadcast::{BroadcastId, Broadcasted, TooManyBroadcasts};
pub use call::{RuntimeCall, StartError};
pub use processes::Watched;

/// When a process that was not reaped started, in clock ticks since boot: with the PID, which process it is (R9).
#[must_use]
pub fn start_time(pid: Pid) -> Option<u64> {
    kinship::Stat::of(pid).map(|stat| stat.started)
}

/// The processes of a shim.
#[derive(Debug)]
pub struct Driver {
    reaper: Reaper,
    processes: Processes,
    calls: Vec<Call>,
    /// Of children that are killed with all that is below them.
    trees: Vec<(ChildId, Tree)>,
    /// Signals to all processes of a child; the first is on its way.
    broadcasts: VecDeque<Broadcast>,
    broadcasts_done: VecDeque<Broadcasted>,
    next_broadcast: u32,
    outcomes: VecDeque<Outcome>,
    orphans_swept: u64,
    runtimes_killed: u64,
}

impl Driver {
    /// A driver without processes. The caller is a subreaper already, so that what runtimes leave ends up here.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self {
            reaper: Reaper::new(timing),
            processes: Processes::default(),
            calls: Vec::new(),
            trees: Vec::new(),
            broadcasts: VecDeque::new(),
            broadcasts_done: VecDeque::new(),
            next_broadcast: 0,
            outcomes: VecDeque::new(),
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
        self.calls.push(Call { id, pid_file: call.pid_file, examined: None });
        self.processes.watch(event_loop, Role::Runtime(id), pid, pidfd);
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
        self.processes.watch(event_loop, Role::Child(child), spawned.pid, spawned.pidfd);
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
        let Some(process) = self.processes.named(watched) else { return };
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
                self.processes.give_up(event_loop, role);
                self.reaper.handle_runtime_exit(now, call, status);
            }
            role @ Role::Leftover(call) => {
                if matches!(process.end(), End::NotYet) {
                    return;
                }
                self.processes.give_up(event_loop, role);
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
        for watched in self.processes.unwatched() {
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
        self.processes.shrink();
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
                Action::KillRuntime(call) => self.runtimes_killed += u64::from(self.processes.kill_runtime(call)),
                Action::SignalRuntime(call, signal) => self.processes.signal(Role::Runtime(call), signal),
                Action::AbandonRuntime(call) => self.abandon(event_loop, Role::Runtime(call)),
                Action::ReadPidFile(call) => {
                    let pid_file = self.call(call).map_or(PidFile::Absent, |call| call.read_pid_file());
                    self.reaper.handle_pid_file(now, call, pid_file);
                }
                Action::Examine(call, pid) => {
                    let kinship = self.call(call).map_or(Kinship::None, |call| call.examine(pid));
                    self.reaper.handle_kinship(now, call, kinship);
                }
                Action::KillProcess(call) => {
                    self.watch_examined(event_loop, call, Role::Leftover(call));
                    self.processes.signal(Role::Leftover(call), Signal::SIGKILL);
                }
                Action::AbandonProcess(call) => self.abandon(event_loop, Role::Leftover(call)),
                Action::Register(call, child) => self.watch_examined(event_loop, call, Role::Child(child)),
                Action::SignalChild(child, signal) => self.processes.signal(Role::Child(child), signal),
                Action::KillChild(child) => self.processes.signal_with_group(Role::Child(child), Signal::SIGKILL),
                Action::Collect(child) => self.collect(event_loop, now, child),
                Action::ForgetChild(child) => self.processes.give_up(event_loop, Role::Child(child)),
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
        if self.processes.take_look_again() {
            self.look_at_unwatched(event_loop, now);
        }
    }

    /// Starts to watch the process that was examined for `call`. One that has exited already is reported at once.
    fn watch_examined<S: Source + From<Watched>>(&mut self, event_loop: &EventLoop<S>, call: CallId, role: Role) {
        if let Some((pid, pidfd)) = self.call(call).and_then(|call| call.examined.take()) {
            self.processes.watch(event_loop, role, pid, pidfd);
        }
    }

    fn abandon<S: Source>(&mut self, event_loop: &EventLoop<S>, role: Role) {
        if let Some(process) = self.processes.find(role) {
            warn!("process {} does not die of SIGKILL; it is reaped whenever it does", process.pid);
            self.processes.give_up(event_loop, role);
        }
    }

    /// Sees whether the child has ended, and tells the reaper.
    fn collect<S: Source>(&mut self, event_loop: &EventLoop<S>, now: Instant, child: ChildId) {
        let Some(process) = self.processes.find(Role::Child(child)) else { return };
        match process.end() {
            End::NotYet => self.reaper.handle_child_running(child),
            End::Unreaped => self.reaper.handle_child_ended(now, child),
            End::Gone(status) => {
                debug!("process {} {status}", process.pid);
                self.processes.give_up(event_loop, Role::Child(child));
                self.reaper.handle_child_exit(child, status);
            }
        }
    }

    fn call(&mut self, id: CallId) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| call.id == id)
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
            self.calls.retain(|known| known.id != call);
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
