//! What the shim knows, for those who ask.

use std::time::{Instant, SystemTime};

use dunnage_runtime::generation::{Number, Progress, Role, Run};

use super::Shim;
use super::calls::layout_kind;
use super::starting::Starting;
use crate::control::MAX_ZOMBIES;
use crate::control::reply::{
    Counters, Generation, GenerationState, HeldBuild, Service, Sidecar, State, Status, TierLimits, Worker, Zombie,
};
use crate::log::rfc3339;

impl Shim {
    pub(super) fn status(&self, now: Instant) -> Status {
        let state = if self.phase.is_serving() { State::Running } else { State::Ended };
        let mut status = Status::new(self.config.name.clone(), state);
        status.shutting_down = self.is_shutting_down();
        let snapshot = self.driver.snapshot();
        let clock = SystemTime::now();
        let zombies = snapshot.zombies.iter().take(MAX_ZOMBIES);
        let time = |then| rfc3339(clock - now.saturating_duration_since(then));
        status.zombies =
            zombies.map(|zombie| Zombie { pid: zombie.pid.as_raw(), first_seen: time(zombie.first_seen) }).collect();
        let logged = self.output.log.totals();
        status.counters = Counters {
            output_bytes: self.output.bytes_read,
            lines_logged: logged.lines_logged,
            bytes_dropped: logged.bytes_dropped,
            orphans_swept: self.driver.orphans_swept(),
            runtimes_killed: self.driver.runtimes_killed(),
        };
        status.service = Some(self.service_status());
        status
    }

    fn service_status(&self) -> Service {
        let record = self.generations.record();
        let recorded = record.generations.iter().map(|(&number, run)| self.generation(number, run));
        let unrecorded = self.starts.iter().filter_map(|start| self.unrecorded(start));
        Service {
            layout: layout_kind(&self.config.service.layout),
            current: record.current.map(Number::get),
            generations: recorded.chain(unrecorded).collect(),
            refused: record.refused.iter().map(|number| number.get()).collect(),
            last: record.last_used().map(Number::get),
            tier: TierLimits(self.config.service.tier),
            sidecar: record.sidecar.as_ref().map(|sidecar| Sidecar {
                n: sidecar.of.get(),
                pid: sidecar.run.as_ref().and_then(Run::process).map(|process| process.pid),
                restarts: self.restarts,
            }),
            worker: record.worker.as_ref().map(|run| self.worker(run)),
            holds: record
                .holds
                .iter()
                .map(|(build, reason)| HeldBuild { build: build.clone(), reason: reason.clone() })
                .collect(),
            parent: record.parent.map(TierLimits),
        }
    }

    fn generation(&self, number: Number, run: &Run) -> Generation {
        let role = Role::Generation(number);
        let own = self.runs.get(&role);
        let sockets = self.config.service.layout.sockets(number);
        let text = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
        Generation {
            n: number.get(),
            build: run.build.clone(),
            path: own.map(|own| own.particulars.path.to_string_lossy().into_owned()),
            digest: run.digest.clone(),
            state: self.state(role, run),
            current: self.generations.record().current == Some(number),
            ready: own.is_some_and(|own| own.ready),
            killing: self.generations.is_killing(role),
            tier: TierLimits(run.tier),
            cgroups: run.cgroups.iter().map(|cgroup| cgroup.as_str().to_owned()).collect(),
            pid: run.process().map(|process| process.pid),
            started: own.and_then(|own| own.particulars.started.clone()),
            socket: sockets.as_ref().map(|sockets| text(sockets.socket.clone())),
            control_socket: sockets.map(|sockets| text(sockets.control)),
            status: self.voices.status(number),
        }
    }

    /// One whose number is not used up yet.
    fn unrecorded(&self, start: &Starting) -> Option<Generation> {
        let Role::Generation(number) = start.role else { return None };
        if self.generations.record().generations.contains_key(&number) {
            return None;
        }
        let path = Some(start.path.to_string_lossy().into_owned()).filter(|path| !path.is_empty());
        Some(Generation {
            n: number.get(),
            build: start.build.clone(),
            path,
            digest: None,
            state: GenerationState::Starting,
            current: false,
            ready: false,
            killing: false,
            tier: TierLimits(start.tier.unwrap_or(self.config.service.tier)),
            cgroups: Vec::new(),
            pid: None,
            started: None,
            socket: None,
            control_socket: None,
            status: None,
        })
    }

    fn state(&self, role: Role, run: &Run) -> GenerationState {
        match run.progress {
            _ if self.generations.is_starting(role) => GenerationState::Starting,
            Progress::Running(_) => GenerationState::Running,
            Progress::Pending | Progress::Exited => GenerationState::Unproven,
        }
    }

    fn worker(&self, run: &Run) -> Worker {
        let own = self.runs.get(&Role::Worker);
        Worker {
            build: run.build.clone(),
            path: own.map(|own| own.particulars.path.to_string_lossy().into_owned()).unwrap_or_default(),
            state: self.state(Role::Worker, run),
            tier: TierLimits(run.tier),
            pid: run.process().map(|process| process.pid),
            started: own.and_then(|own| own.particulars.started.clone()),
        }
    }
}
