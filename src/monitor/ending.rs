//! The end: what is left is logged, the exit files appear, clients get a moment, the exit command runs.

use std::fs::File;
use std::mem;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use dunnage_runtime::reaper::{ChildId, ExitStatus, Failure};
use dunnage_runtime::sys::{Environment, InheritedFds, Program, Task, Ties};
use log::{error, info, warn};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{AccessFlags, Pid, access};

use super::{Monitor, Phase, failure_text};
use crate::FAILED;
use crate::control::reply::EventKind;
use crate::error::{Context, Error, Result};
use crate::exit::ExitFiles;

/// How long attach clients get at most to take the rest of the output.
const FLUSH_WAIT: Duration = Duration::from_secs(1);

/// How often the exit command is tried, and how long after each other: without it the container's networks and mounts
/// stay, and what keeps it from starting is mostly over soon, as a lack of descriptors or processes.
const COMMAND_ATTEMPTS: u32 = 50;
const COMMAND_PAUSE: Duration = Duration::from_millis(200);

/// How far the end is.
#[derive(Debug)]
pub(super) enum Ending {
    /// What others wait for is told; clients take what they have not read yet.
    Flushing { until: Instant, end: End },
    /// The log and the exit files are made durable, for as long as that takes; `until` then once the shim was told to
    /// end.
    Syncing { task: Task, until: Option<Instant>, end: End },
    /// `--exit-delay`, or the exit command could not be started so often: nothing is held but this process itself.
    Delaying { until: Instant, failures: u32, status: u8 },
    /// The exit command runs: for as long as it likes, or, once the shim was told to end, `until` then. After that it
    /// is killed, and once more waited for.
    Commanding { command: ChildId, until: Option<Instant>, killed: bool, status: u8 },
    /// The shim ends with this status.
    Done(u8),
}

/// What the end is to be.
#[derive(Debug, Default)]
pub(super) struct End {
    /// The shim's exit status, unless the exit command has one of its own.
    status: u8,
    /// What is still to be made durable.
    exit_files: ExitFiles,
    /// The shim was told to end: there is no exit delay.
    pub(super) hastened: bool,
}

impl Monitor {
    /// The process has ended. Its output is logged before anybody learns of its end.
    pub(super) fn end_exited(&mut self, status: ExitStatus, now: Instant) {
        info!("the process {status}");
        let end = self.write_end(status.code(), now);
        self.sync.ended(status.code());
        self.tell_ended(EventKind::Exited, status.code(), now);
        self.flush(end, now);
    }

    /// The process was killed at its timeout.
    pub(super) fn end_timed_out(&mut self, limit: Duration, now: Instant) {
        warn!("the process did not end within {limit:?} and was killed");
        let end = self.write_end(ExitStatus::Unknown.code(), now);
        // To the letter: callers compare it.
        self.sync.failed(b"command timed out");
        self.tell_ended(EventKind::TimedOut, ExitStatus::Unknown.code(), now);
        self.flush(end, now);
    }

    /// There is no process. The caller gets the reason, and no exit file is made.
    pub(super) fn end_failed(&mut self, failure: &Failure, now: Instant) {
        self.close_console();
        self.relay.drain(&self.event_loop, &mut self.log, now);
        let text = failure_text(failure, self.relay.take_stderr_tail());
        error!("{}", String::from_utf8_lossy(&text).trim_end());
        self.sync.failed(&text);
        self.inherited = InheritedFds::default();
        self.flush(End { status: FAILED, ..End::default() }, now);
    }

    /// The shutdown is over. Its deadline may have come with processes left that SIGKILL does not end (R20).
    pub(super) fn shut_down(&mut self, left: &[Pid], now: Instant) {
        self.answer_shutdowns(left, now);
        if left.is_empty() {
            return;
        }
        let left: Vec<String> = left.iter().map(Pid::to_string).collect();
        let text = format!("the shutdown left processes that do not end: {}", left.join(", "));
        error!("{text}");
        match &mut self.phase {
            // The container is gone, and what is left is beside it.
            Phase::Ending(Ending::Flushing { end, .. }) => end.status = FAILED,
            Phase::Ending(_) => {}
            _ => {
                self.relay.drain(&self.event_loop, &mut self.log, now);
                self.sync.failed(text.as_bytes());
                self.inherited = InheritedFds::default();
                self.flush(End { status: FAILED, ..End::default() }, now);
            }
        }
    }

    /// Nothing was started: there is nothing to log, to reap or to tell an exit command.
    pub(super) fn give_up(&mut self, failure: &Error) {
        error!("{failure}");
        self.sync.failed(failure.to_string().as_bytes());
        self.close_console();
        self.relay.close(&self.event_loop);
        self.finish(FAILED);
    }

    /// All that is to be there once the end is known: the mark of an OOM, the rest of the output in the log, and the
    /// exit files.
    fn write_end(&mut self, code: i32, now: Instant) -> End {
        // First of all, as the cgroup may vanish at any moment.
        self.look_for_oom(now);
        if let Some(notify) = &mut self.notify {
            notify.drain(now);
        }
        self.relay.drain(&self.event_loop, &mut self.log, now);
        self.inherited = InheritedFds::default();
        let exit_files = ExitFiles::write(&self.config.exit, &self.config.id, code);
        // From here on nobody waits.
        self.close_oom();
        // 0 to 255, and -1, which gives 255.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let status = code as u8;
        End { status, exit_files, hastened: false }
    }

    /// When [`Monitor::handle_ending_timeout`] is due.
    pub(super) fn ending_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Ending(Ending::Flushing { until, .. } | Ending::Delaying { until, .. }) => Some(*until),
            Phase::Ending(Ending::Syncing { until, .. } | Ending::Commanding { until, .. }) => *until,
            _ => None,
        }
    }

    /// Goes on to the next step of the end.
    pub(super) fn handle_ending_timeout(&mut self, now: Instant) {
        match self.take_ending() {
            // Until its deadline a shutdown waits for the execs as well (R19); else they get a moment to be killed.
            Some(Ending::Flushing { end, .. }) if self.awaits_execs() || self.cancel_execs(now) => {
                self.phase = Phase::Ending(Ending::Flushing { until: now + FLUSH_WAIT, end });
            }
            Some(Ending::Flushing { end, .. }) => {
                warn!("clients did not take everything in time, or execs go on");
                self.let_go(end, now);
            }
            Some(Ending::Syncing { task, end, .. }) => self.give_up_durable(&task, &end, now),
            Some(Ending::Delaying { failures, status, .. }) => self.start_command(failures, status, now),
            Some(Ending::Commanding { command, killed: false, status, .. }) => {
                warn!("the exit command does not end: killing it");
                self.driver.signal_child(&self.event_loop, now, command, Signal::SIGKILL);
                let until = Some(now + self.config.timing.runtime_grace);
                self.phase = Phase::Ending(Ending::Commanding { command, until, killed: true, status });
            }
            Some(Ending::Commanding { killed: true, .. }) => {
                error!("the exit command does not die of SIGKILL: it is not waited for");
                self.finish(FAILED);
            }
            Some(Ending::Done(_)) | None => {}
        }
    }

    /// A client that took all there is needs no more time.
    pub(super) fn go_on_if_flushed(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Ending(Ending::Flushing { .. }))
            && self.relay.flushed()
            && self.service_flushed()
            && let Some(Ending::Flushing { end, .. }) = self.take_ending()
        {
            self.let_go(end, now);
        }
    }

    /// The shim itself was told to end: nothing is waited for any longer than needed.
    pub(super) fn hasten_end(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Waiting(..) => self.give_up(&Error::new("it was told to end before it started anything")),
            Phase::Ending(Ending::Flushing { end, .. }) => end.hastened = true,
            Phase::Ending(Ending::Syncing { until, end, .. }) => {
                end.hastened = true;
                until.get_or_insert(now + self.config.timing.runtime_grace);
            }
            Phase::Ending(Ending::Delaying { until, .. }) => *until = now,
            Phase::Ending(Ending::Commanding { until, .. }) => {
                until.get_or_insert(now + self.config.timing.runtime_grace);
            }
            _ => {}
        }
    }

    /// A child that is not the container ended: the exit command.
    pub(super) fn handle_command_exit(&mut self, child: ChildId, status: ExitStatus) {
        match self.take_ending() {
            Some(Ending::Commanding { command, status: containers, .. }) if command == child => {
                let status = if status.success() {
                    containers
                } else {
                    warn!("the exit command {status}");
                    u8::try_from(status.code()).unwrap_or(FAILED)
                };
                self.finish(status);
            }
            Some(ending) => self.phase = Phase::Ending(ending),
            None => {}
        }
    }

    fn flush(&mut self, end: End, now: Instant) {
        // A shutdown with a deadline is no signal for the container alone.
        let end = End { hastened: self.driver.is_shutting_down(), ..end };
        self.phase = Phase::Ending(Ending::Flushing { until: now + FLUSH_WAIT, end });
    }

    /// Gives up all that belonged to the container, and turns to what follows it.
    fn let_go(&mut self, mut end: End, now: Instant) {
        self.relay.close(&self.event_loop);
        self.close_service(now);
        for fifo in self.fifos.drain(..) {
            fifo.close(&self.event_loop);
        }
        if let Some(notify) = self.notify.take() {
            notify.close(&self.event_loop);
        }
        self.sync.close();
        if let Some(attach) = &mut self.attach {
            attach.unlink_socket();
        }
        let log = mem::take(&mut self.log).close();
        let exit_files = mem::take(&mut end.exit_files);
        if self.config.log.sync {
            // An exec's log is its caller's answer, not a record.
            let log = log.filter(|_| !self.config.is_exec());
            self.make_durable(log, exit_files, end, now);
        } else {
            self.go_on_to_command(&end, now);
        }
    }

    /// All is there that others look for: what is left is the exit command.
    pub(super) fn go_on_to_command(&mut self, end: &End, now: Instant) {
        match &self.config.exit.command {
            Some(command) if command.delay.is_zero() || end.hastened => self.start_command(0, end.status, now),
            Some(command) => {
                let until = now + command.delay;
                self.phase = Phase::Ending(Ending::Delaying { until, failures: 0, status: end.status });
            }
            None => self.finish(end.status),
        }
    }

    fn start_command(&mut self, failures: u32, status: u8, now: Instant) {
        match self.spawn_command() {
            Ok(Some(command)) => {
                let until = self.driver.is_shutting_down().then(|| now + self.config.timing.runtime_grace);
                self.phase = Phase::Ending(Ending::Commanding { command, until, killed: false, status });
            }
            Ok(None) => self.finish(status),
            Err(failure) if failures + 1 < COMMAND_ATTEMPTS && !self.command_is_in_vain() => {
                warn!("{failure}: it is tried again");
                let until = now + COMMAND_PAUSE;
                self.phase = Phase::Ending(Ending::Delaying { until, failures: failures + 1, status });
            }
            // As conmon: the container's end is what counts where no command ran.
            Err(failure) => {
                error!("{failure}");
                self.finish(status);
            }
        }
    }

    /// Starts the exit command with nothing of the shim's but its environment and directory.
    fn spawn_command(&mut self) -> Result<Option<ChildId>> {
        let Some(command) = &self.config.exit.command else { return Ok(None) };
        let what = || format!("cannot start the exit command {}", command.path.display());
        // What keeps it from being executed is worth a message, and its own stderr is /dev/null.
        access(&command.path, AccessFlags::X_OK).context(what)?;
        // What it leaves behind is init's.
        prctl::set_child_subreaper(false).context(what)?;
        let input = File::open("/dev/null").context(what)?;
        let output = File::options().write(true).open("/dev/null").context(what)?;
        let program = Program {
            path: command.path.as_os_str(),
            args: command.args.clone(),
            stdio: [input.as_fd(), output.as_fd(), output.as_fd()],
            ties: Ties::None,
            mask: self.signals.original_mask(),
            oom_score_adj: self.oom_score.original,
            environment: Environment::Inherited,
        };
        self.driver.start_helper(&self.event_loop, &program).context(what).map(Some)
    }

    /// Whether the exit command is not to be had, or there is no time to try again.
    fn command_is_in_vain(&self) -> bool {
        let Some(command) = self.config.exit.command.as_ref().filter(|_| !self.driver.is_shutting_down()) else {
            return true;
        };
        let found = access(&command.path, AccessFlags::X_OK);
        matches!(found, Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP | Errno::ENAMETOOLONG))
    }

    pub(super) fn finish(&mut self, status: u8) {
        if let Some(attach) = &mut self.attach {
            attach.unlink_socket();
            attach.unlink_link();
        }
        self.phase = Phase::Ending(Ending::Done(status));
    }

    pub(super) fn end_with(&mut self, ending: Ending) {
        self.phase = Phase::Ending(ending);
    }

    pub(super) fn take_ending(&mut self) -> Option<Ending> {
        match &mut self.phase {
            // What takes its place is set by whoever takes it.
            Phase::Ending(ending) => Some(mem::replace(ending, Ending::Done(FAILED))),
            _ => None,
        }
    }
}
