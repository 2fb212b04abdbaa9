//! The rules, one by one, on the decider alone.

mod calls;
mod children;
mod shutdown;
mod sweep;

use std::time::Duration;

use nix::sys::signal::Signal;

use super::*;

const RUNTIME: Pid = Pid::from_raw(100);
const PROCESS: Pid = Pid::from_raw(200);
const ORPHAN: Pid = Pid::from_raw(300);

const PIPES: CallSpec = CallSpec { job: Job::Create, main: true, terminal: false, timeout: None };
const TERMINAL: CallSpec = CallSpec { terminal: true, ..PIPES };
const EXEC: CallSpec = CallSpec { job: Job::Exec, main: false, ..PIPES };

/// A reaper and its clock.
struct Play {
    reaper: Reaper,
    now: Instant,
}

impl Play {
    fn new() -> Self {
        Self { reaper: Reaper::new(Timing::default()), now: Instant::now() }
    }

    fn start(&mut self, spec: &CallSpec) -> CallId {
        self.reaper.handle_runtime_started(self.now, RUNTIME, spec)
    }

    /// All that is to be done now.
    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.reaper.poll_action()).collect()
    }

    fn advance(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
        if self.reaper.next_timeout().is_some_and(|at| at <= self.now) {
            self.reaper.handle_timeout(self.now);
        }
    }

    fn runtime_exits(&mut self, call: CallId, code: i32) {
        self.reaper.handle_runtime_exit(self.now, call, ExitStatus::Code(code));
    }

    fn pid_file(&mut self, call: CallId, pid_file: PidFile) {
        assert_eq!(self.actions(), [Action::ReadPidFile(call)]);
        self.reaper.handle_pid_file(self.now, call, pid_file);
    }

    fn kinship(&mut self, call: CallId, kinship: Kinship) {
        assert_eq!(self.actions(), [Action::Examine(call, PROCESS)]);
        self.reaper.handle_kinship(self.now, call, kinship);
    }

    /// A container, created.
    fn registered(&mut self) -> ChildId {
        self.registered_as(&PIPES, RUNTIME, PROCESS)
    }

    /// A look at these zombies, and what comes of it. PID files that are read before the sweep reaps are absent.
    fn zombies(&mut self, zombies: &[Pid]) -> Vec<Action> {
        self.zombies_with(zombies, &PidFile::Absent)
    }

    /// The same with what these PID files hold.
    fn zombies_with(&mut self, zombies: &[Pid], pid_file: &PidFile) -> Vec<Action> {
        self.reaper.handle_zombies(self.now, zombies);
        let mut actions = Vec::new();
        while let Some(action) = self.reaper.poll_action() {
            match action {
                Action::ReadPidFile(call) => self.reaper.handle_pid_file(self.now, call, pid_file.clone()),
                other => actions.push(other),
            }
        }
        actions
    }

    /// A call of this kind that goes well, to its registration.
    fn registered_as(&mut self, spec: &CallSpec, runtime: Pid, process: Pid) -> ChildId {
        let call = self.reaper.handle_runtime_started(self.now, runtime, spec);
        self.runtime_exits(call, 0);
        self.pid_file(call, PidFile::Pid(process));
        assert_eq!(self.actions(), [Action::Examine(call, process)]);
        self.reaper.handle_kinship(self.now, call, Kinship::Child);
        match self.actions()[..] {
            [Action::Register(_, child), Action::Report(Outcome::Started { .. }), ..] => child,
            ref other => panic!("not registered: {other:?}"),
        }
    }

    fn child_exits(&mut self, child: ChildId, code: i32) {
        self.reaper.handle_child_exit(child, ExitStatus::Code(code));
    }
}

fn exited(child: ChildId, status: ExitStatus) -> Action {
    Action::Report(Outcome::Exited { child, status })
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn failed(call: CallId, failure: Failure) -> Vec<Action> {
    vec![Action::Report(Outcome::Failed { call, failure }), Action::ListZombies]
}
