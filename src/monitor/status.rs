//! What the shim knows, for clients that ask.

use std::path::Path;
use std::time::{Instant, SystemTime};

use nix::unistd::Pid;

use super::service::CONTAINER;
use super::{Monitor, Phase};
use crate::cli::Stdio;
use crate::control;
use crate::control::reply::{Call, Counters, Process, State, Status, Zombie};
use crate::exec::State as ExecState;
use crate::limits::LimitFiles;
use crate::log::rfc3339;
use crate::relay::AttachSocket;

/// What is remembered of the container.
#[derive(Debug, Default)]
pub(super) struct Container {
    pub(super) process: Option<(Pid, SystemTime)>,
    pub(super) exit_code: Option<i32>,
    pub(super) limits: LimitFiles,
}

impl Monitor {
    pub(super) fn status(&self, now: Instant) -> Status {
        let state = match self.phase {
            Phase::Waiting(..) => State::Waiting,
            Phase::Starting(_) => State::Starting,
            Phase::Running(_) => State::Running,
            Phase::Ending(_) => State::Ended,
        };
        let mut status = Status::new(self.config.id.to_string_lossy().into_owned(), state);
        self.describe_container(&mut status);
        let Some(service) = &self.service else { return status };
        let snapshot = self.driver.snapshot();
        let process =
            |target: String, pid: Pid, started| Process { target, pid: pid.as_raw(), started: rfc3339(started) };
        status.exit_code = service.container.exit_code;
        status.shutting_down = self.driver.is_shutting_down();
        if let (Phase::Running(_), Some((pid, started))) = (&self.phase, service.container.process) {
            status.processes.push(process(CONTAINER.to_owned(), pid, started));
        }
        for exec in service.execs.iter() {
            if let ExecState::Running { pid, started, .. } = exec.state {
                status.processes.push(process(exec.id.to_string(), pid, started));
            }
        }
        let clock = SystemTime::now();
        let time = |then| rfc3339(clock - now.saturating_duration_since(then));
        for call in &snapshot.calls {
            let exec = service.execs.iter().find(|exec| exec.call() == Some(call.id));
            status.calls.push(Call {
                target: exec.map_or_else(|| CONTAINER.to_owned(), |exec| exec.id.to_string()),
                runtime_pid: call.runtime.map(Pid::as_raw),
                process_pid: call.process.map(Pid::as_raw),
                started: time(call.started),
            });
        }
        let zombies = snapshot.zombies.iter().take(control::MAX_ZOMBIES);
        status.zombies =
            zombies.map(|zombie| Zombie { pid: zombie.pid.as_raw(), first_seen: time(zombie.first_seen) }).collect();
        status.limits = service.container.limits.read();
        let logged = self.log.totals();
        status.counters = Counters {
            output_bytes: self.relay.bytes_read(),
            lines_logged: logged.lines_logged,
            bytes_dropped: logged.bytes_dropped,
            orphans_swept: self.driver.orphans_swept(),
            runtimes_killed: self.driver.runtimes_killed(),
        };
        status
    }

    /// What the container was started with.
    fn describe_container(&self, status: &mut Status) {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        status.name = self.config.name.as_ref().map(|name| name.to_string_lossy().into_owned());
        status.terminal = self.config.stdio == Stdio::Terminal;
        status.logs = self.config.log.names();
        if let Some(bundle) = self.config.bundle() {
            status.bundle = text(bundle);
            status.attach = self.attach.as_ref().map(|_| text(&bundle.join(AttachSocket::NAME)));
        }
    }
}
