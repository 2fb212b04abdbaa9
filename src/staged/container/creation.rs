//! From a private bundle to a running container: the runtime creates it, it is found in its cgroup, and the runtime is
//! told to have it execute its program.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use dunnage_runtime::driver::{Driver, Watched, start_time};
use dunnage_runtime::event_loop::{EventLoop, Source};
use dunnage_runtime::reaper::{CallId, ChildId, ExitStatus, Outcome};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::call::{Caller, Container};
use super::log::last_error;
use crate::cgroup::{Cgroup, Controller, Version};
use crate::staged::{NotStarted, Started};

/// What a creation goes on in.
#[derive(Debug)]
pub(crate) struct Context<'a, S> {
    pub(crate) driver: &'a mut Driver,
    pub(crate) event_loop: &'a EventLoop<S>,
    pub(crate) caller: Caller<'a>,
    pub(crate) now: Instant,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) result: Result<Started, NotStarted>,
    /// When its process started, if /proc told.
    pub(crate) start_time: Option<u64>,
    /// How its process ended, if it has already.
    pub(crate) ended: Option<ExitStatus>,
}

/// A creation on its way.
#[derive(Debug)]
pub(crate) struct Creation {
    container: Container,
    /// Where the runtime is to have put it.
    cgroup: String,
    /// How long the runtime gets for each of its calls.
    limit: Duration,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The runtime creates it.
    Creating(CallId),
    /// The runtime starts it.
    Starting {
        process: Process,
        runtime: ChildId,
        until: Instant,
        in_time: bool,
    },
    /// Its process was killed before it executed anything.
    Undoing {
        process: Process,
        reason: String,
    },
    Over,
}

/// The container's first process.
#[derive(Clone, Copy, Debug)]
struct Process {
    child: ChildId,
    pid: Pid,
    start_time: Option<u64>,
    ended: Option<ExitStatus>,
}

impl Creation {
    /// Begins. What comes of it, [`Creation::handle`] tells.
    pub(crate) fn begin<S: Source + From<Watched>>(
        cx: &mut Context<'_, S>,
        container: Container,
        cgroup: String,
        stdio: &[OwnedFd; 3],
        limit: Duration,
    ) -> Result<Self, String> {
        let call = container.create(cx.driver, cx.event_loop, &cx.caller, stdio, cx.now);
        let call = call.map_err(|error| format!("cannot start {}: {error}", cx.caller.runtime.path.display()))?;
        Ok(Self { container, cgroup, limit, stage: Stage::Creating(call) })
    }

    /// A process of the shim's has ended, or a call of a runtime: what came of the creation, if that decides it. Nothing
    /// too if it is about another one, which [`Creation::concerns`] tells.
    pub(crate) fn handle<S: Source + From<Watched>>(
        &mut self,
        cx: &mut Context<'_, S>,
        outcome: &Outcome,
    ) -> Option<Created> {
        match (std::mem::replace(&mut self.stage, Stage::Over), outcome) {
            (Stage::Creating(_), &Outcome::Started { child, pid, .. }) => {
                // It is not reaped before the next turn, so what is there now is its own.
                let process = Process { child, pid, start_time: start_time(pid), ended: None };
                self.handle_created(cx, process)
            }
            (Stage::Creating(_), Outcome::Failed { failure, .. }) => Some(failed(self.describe("create", failure))),
            (Stage::Undoing { reason, .. }, _) => Some(failed(reason)),
            (Stage::Starting { process, runtime, until, in_time }, outcome) => {
                let (child, status) = end_of(outcome)?;
                if child == process.child {
                    let process = Process { ended: Some(status), ..process };
                    self.stage = Stage::Starting { process, runtime, until, in_time };
                    return None;
                }
                Some(self.decide(process, status, in_time))
            }
            (stage, _) => {
                self.stage = stage;
                None
            }
        }
    }

    /// Whether the outcome is that of a process or a call of this creation's.
    pub(crate) fn concerns(&self, outcome: &Outcome) -> bool {
        match (&self.stage, outcome) {
            (Stage::Creating(own), Outcome::Started { call, .. } | Outcome::Failed { call, .. }) => own == call,
            (Stage::Starting { process, runtime, .. }, outcome) => {
                end_of(outcome).is_some_and(|(child, _)| child == process.child || child == *runtime)
            }
            (Stage::Undoing { process, .. }, outcome) => {
                end_of(outcome).is_some_and(|(child, _)| child == process.child)
            }
            _ => false,
        }
    }

    /// When [`Creation::handle_timeout`] is due. The reaper sees to the call that creates.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match self.stage {
            Stage::Starting { until, in_time: true, .. } => Some(until),
            _ => None,
        }
    }

    /// Ends a runtime that has had its time (R12).
    pub(crate) fn handle_timeout<S: Source + From<Watched>>(&mut self, cx: &mut Context<'_, S>) {
        if let Stage::Starting { runtime, until, in_time, .. } = &mut self.stage
            && *in_time
            && *until <= cx.now
        {
            *in_time = false;
            cx.driver.cancel_child(cx.event_loop, cx.now, *runtime);
        }
    }

    /// It waits for the runtime's word to execute its program. If it is not in its cgroup, it never gets that.
    fn handle_created<S: Source + From<Watched>>(
        &mut self,
        cx: &mut Context<'_, S>,
        process: Process,
    ) -> Option<Created> {
        let checked = match Cgroup::of(process.pid.as_raw(), Controller::Pids) {
            Ok(found) if is_within(found.as_ref(), &self.cgroup) => Ok(()),
            Ok(found) => Err(format!(
                "{} has put the container into cgroup {}, not {}: is it told to use another cgroup manager?",
                cx.caller.runtime.path.display(),
                found.map(|found| found.path).unwrap_or_default().display(),
                self.cgroup
            )),
            Err(error) => Err(format!("cannot tell which cgroup process {} is in: {error}", process.pid)),
        };
        let started = checked.and_then(|()| {
            let runtime = self.container.call(cx.driver, cx.event_loop, &cx.caller, &["start"]);
            runtime.map_err(|error| format!("cannot start {}: {error}", cx.caller.runtime.path.display()))
        });
        match started {
            Ok(runtime) => {
                self.stage = Stage::Starting { process, runtime, until: cx.now + self.limit, in_time: true };
            }
            Err(reason) => {
                cx.driver.signal_child(cx.event_loop, cx.now, process.child, Signal::SIGKILL);
                self.stage = Stage::Undoing { process, reason };
            }
        }
        None
    }

    /// The runtime that was to start it has ended.
    fn decide(&self, process: Process, status: ExitStatus, in_time: bool) -> Created {
        let Process { child, pid, start_time, ended } = process;
        let started = Started { child, pid };
        let result = match (in_time, status.success()) {
            (true, true) => Ok(started),
            (true, false) => Err(self.describe("start", &format_args!("the runtime {status}"))),
            (false, _) => {
                let limit = self.limit;
                Err(self.describe("start", &format_args!("the runtime did not end within {limit:?} and was killed")))
            }
        };
        // It may have told the container to go on all the same.
        Created { result: result.map_err(|reason| NotStarted::Uncertain(reason, started)), start_time, ended }
    }

    /// What failed, with the runtime's own words.
    fn describe(&self, subcommand: &str, failure: &dyn std::fmt::Display) -> String {
        let id = self.container.id.display();
        match last_error(&self.container.bundle.log()) {
            Some(error) => format!("cannot {subcommand} container {id}: {failure}: {error}"),
            None => format!("cannot {subcommand} container {id}: {failure}"),
        }
    }
}

/// Whether it is that cgroup, or one below it.
fn is_within(found: Option<&Cgroup>, cgroup: &str) -> bool {
    found.is_some_and(|found| found.version == Version::V2 && found.path.starts_with(cgroup))
}

fn failed(reason: String) -> Created {
    Created { result: Err(NotStarted::Failed(reason)), start_time: None, ended: None }
}

/// Which child has ended, and how.
pub(super) fn end_of(outcome: &Outcome) -> Option<(ChildId, ExitStatus)> {
    match *outcome {
        Outcome::Exited { child, status } => Some((child, status)),
        Outcome::TimedOut { child, .. } => Some((child, ExitStatus::Unknown)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g3_only_its_own_cgroup_and_those_below_are_a_generations() {
        let within = |text: &str| is_within(Cgroup::parse(text.as_bytes(), Controller::Pids).as_ref(), "/web/gen-7");
        assert!(within("0::/web/gen-7\n"));
        assert!(within("12:memory:/x\n0::/web/gen-7/container\n"));
        for elsewhere in
            ["0::/\n", "0::/web\n", "0::/web/gen-70\n", "0::/system.slice/web/gen-7\n", "0::\n", "4:pids:/web/gen-7\n"]
        {
            assert!(!within(elsewhere), "{elsewhere}");
        }
    }
}
