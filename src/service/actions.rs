//! Each decision, carried out by whose it is.

use std::time::Instant;

use dunnage_runtime::generation::Action;
use dunnage_runtime::privileges;
use dunnage_runtime::reaper::{self, ExitStatus};
use nix::sys::signal::Signal;

use super::Shim;

impl Shim {
    pub(super) fn carry_out(&mut self, action: Action, now: Instant) {
        // Cgroups, sockets and processes may be other users'.
        let _raised = privileges::raise();
        match action {
            Action::Open { start, role, source, tier } => self.open(start, role, source, tier, now),
            Action::Prepare(start, _, tier) => self.prepare_start(start, tier, now),
            Action::Launch(start, _) => self.launch(start, now),
            Action::Discard(start, _) => self.discard(start, now),
            Action::WriteRecord(serial) => self.write_record(serial, now),
            Action::Inspect(role, cgroup) => self.inspect(role, &cgroup, now),
            Action::Evict(role, cgroup) => self.evict(role, cgroup, now),
            Action::EndEviction(cgroup) => self.end_eviction(&cgroup),
            Action::Terminate(role) => self.signal_leader(role, Signal::SIGTERM, now),
            Action::KillLeader(role) => self.signal_leader(role, Signal::SIGKILL, now),
            Action::Retire(role, cgroups) => self.retire(role, &cgroups, now),
            Action::Widen(request, number) => self.widen(request, number),
            Action::Switch(number) => self.switch(number, now),
            Action::RunHook(number) => self.run_hook(number, now),
            Action::ReadLink => self.read_link(),
            Action::ReadParent => self.read_parent(),
            Action::SetParent { tier, keep_memory_max } => self.set_parent(tier, keep_memory_max),
            Action::ReadMemory => self.read_memory(),
            Action::Reclaim(bytes) => self.reclaim(bytes),
            Action::Move { number, from, to, tier } => self.begin_move(number, from, to, tier, now),
            Action::EndMove(number) => self.end_move(number),
            Action::Adopt(role, process) => self.adopt(role, process),
            Action::Report(outcome) => self.report(outcome, now),
        }
    }

    /// A process of this shim's has ended: what runs, a hook, or a task, whose owner has its answer.
    pub(super) fn handle_outcome(&mut self, outcome: &reaper::Outcome, now: Instant) {
        if self.handle_runtime(outcome, now) {
            return;
        }
        let (child, status) = match *outcome {
            reaper::Outcome::Exited { child, status } => (child, status),
            reaper::Outcome::TimedOut { child, .. } => (child, ExitStatus::Unknown),
            // Shutdowns are those of generations.
            _ => return,
        };
        let role = self.runs.iter().find(|(_, run)| run.leader == Some(child)).map(|(&role, _)| role);
        match role {
            Some(role) => self.handle_leader_exit(role, status, now),
            None => self.handle_hook_exit(child, status),
        }
    }
}
