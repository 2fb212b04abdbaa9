//! What must hold in every history, whatever the reaper decides. A fault names the rule.

use std::collections::BTreeMap;

use nix::unistd::Pid;

use super::kernel::{State, Time, Uid};
use super::reaper::{ExitStatus, Failure, Kinship, PidFile};
use super::search::Fault;
use super::world::{Role, World};

/// How much later than its bound a thing may be seen: a flood of SIGCHLD is looked at every 50 ms, a tree is stopped in
/// 200 ms, and slices take a moment.
const SLACK: Time = 60;
const TREE: Time = 20;

/// What is remembered for the checks.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// When a process was first listed as a zombie.
    first_listed: BTreeMap<Uid, Time>,
    /// Since when a zombie has had no owner.
    unclaimed: BTreeMap<Uid, Time>,
}

impl Checks {
    pub(super) fn listed(&mut self, now: Time, zombies: &[Uid]) {
        for &uid in zombies {
            self.first_listed.entry(uid).or_insert(now);
        }
    }
}

macro_rules! must {
    ($holds:expr, $($fault:tt)*) => {
        if !$holds {
            return Err(format!($($fault)*));
        }
    };
}

impl World<'_> {
    /// Whether something that was to happen at `bound`, in one step, is overdue.
    fn is_overdue(&self, bound: Time) -> bool {
        self.is_overdue_since(bound, bound)
    }

    /// The same of what began at `start` and takes several steps, each of which the loop may have been held up at.
    fn is_overdue_since(&self, start: Time, bound: Time) -> bool {
        self.kernel.now > bound + self.stalled_since(start) + SLACK
    }

    /// How long the loop was held up since then.
    fn stalled_since(&self, start: Time) -> Time {
        self.stalls.iter().map(|&(from, until)| until.min(self.kernel.now).saturating_sub(from.max(start))).sum()
    }

    /// After every round of the loop.
    pub(super) fn check(&mut self) -> Result<(), Fault> {
        self.check_zombies()?;
        for number in 0..self.calls.len() {
            self.check_call(number)?;
        }
        for child in 0..self.children.len() {
            self.check_child(child)?;
        }
        if let Some(shutdown) = self.shutdown {
            must!(
                !self.is_overdue_since(shutdown.ends, shutdown.ends),
                "R19: the shutdown did not end at its deadline"
            );
        }
        self.check_idle()
    }

    fn check_zombies(&mut self) -> Result<(), Fault> {
        let zombies: Vec<Uid> = self.kernel.zombies_of_shim().collect();
        self.checks.unclaimed.retain(|uid, _| zombies.contains(uid));
        for uid in zombies {
            let process = &self.kernel.processes[uid];
            let (pid, since) = (process.pid, process.zombie_since.unwrap_or(0));
            if let Some(watched) = self.watched_since(uid) {
                self.checks.unclaimed.remove(&uid);
                must!(!self.is_overdue(since.max(watched)), "R2: process {pid} ended, and its owner does not know");
                continue;
            }
            let mut in_progress = self.calls.iter().filter(|call| call.ended.is_none());
            if in_progress.any(|call| call.named.contains(&pid)) {
                self.checks.unclaimed.remove(&uid);
                continue;
            }
            let unclaimed = *self.checks.unclaimed.entry(uid).or_insert(self.kernel.now);
            self.check_unclaimed(uid, unclaimed)?;
        }
        Ok(())
    }

    fn check_unclaimed(&self, uid: Uid, unclaimed: Time) -> Result<(), Fault> {
        let bounds = &self.history.bounds;
        let pid = self.kernel.processes[uid].pid;
        must!(
            self.checks.first_listed.contains_key(&uid) || !self.is_overdue(unclaimed),
            "R7: zombie {pid} is not looked at"
        );
        let seen = self.checks.first_listed.get(&uid).map_or(unclaimed, |&listed| listed.max(unclaimed));
        if !self.is_overdue_since(seen, seen + bounds.orphan_grace) {
            return Ok(());
        }
        let deferred = self.calls.iter().any(|call| {
            let ended = call.ended.is_some_and(|ended| self.is_overdue(ended));
            let until = (call.deadline + bounds.claim_margin()).min(seen + bounds.orphan_max_defer);
            call.started <= seen && !ended && !self.is_overdue_since(seen, until)
        });
        let shutting_down = self.shutdown.is_some_and(|shutdown| self.is_overdue(shutdown.began));
        must!(deferred, "R3: zombie {pid} was not reaped in time");
        must!(!shutting_down, "R5: zombie {pid} is deferred in a shutdown");
        Ok(())
    }

    fn check_call(&self, number: usize) -> Result<(), Fault> {
        let call = &self.calls[number];
        if call.ended.is_some() {
            return Ok(());
        }
        let bounds = &self.history.bounds;
        let runtime = &self.kernel.processes[call.runtime];
        let runs = matches!(runtime.state, State::Running | State::Stopped) && !runtime.is_stuck();
        must!(!runs || !self.is_overdue(call.deadline), "R12: the runtime of call {number} outlives its deadline");
        // A shutdown may stop it just before its deadline, with waits of its own.
        let stopping = if self.shutdown.is_some() { bounds.stop_budget } else { 0 };
        must!(
            !self.is_overdue_since(call.started, call.deadline + 3 * bounds.runtime_grace + stopping),
            "R12: call {number} did not end after its deadline and graces"
        );
        if let Some(shutdown) = self.shutdown {
            let stopped = shutdown.stop_at.max(call.started);
            // For its runtime, for its process, and for its output.
            let waits = 2 * bounds.stopped_exit_wait.max(bounds.stopped_output_wait) + bounds.stopped_output_wait;
            must!(
                !self.is_overdue_since(shutdown.began, stopped + waits.min(bounds.stop_budget)),
                "R21: call {number} did not end within STOP_BUDGET"
            );
        }
        Ok(())
    }

    fn check_child(&self, number: usize) -> Result<(), Fault> {
        let child = &self.children[number];
        if child.over {
            return Ok(());
        }
        let process = &self.kernel.processes[child.uid];
        let stuck = process.is_stuck() || matches!(process.state, State::Ending(_));
        if let Some(deadline) = child.deadline {
            let bound = deadline.max(child.registered) + TREE;
            must!(
                stuck || process.has_exited() || !self.is_overdue_since(deadline, bound),
                "R17: child {number} outlives its timeout"
            );
        }
        if let Some(exited) = process.exited_at {
            let seen = exited.max(child.registered);
            // Its tree may still be killed; and where it is not the shim's, its own parent may be slow.
            let killing = if child.deadline.is_some_and(|deadline| deadline <= self.kernel.now) { TREE } else { 0 };
            let waiting = if process.zombie_since == Some(exited) { 0 } else { self.history.bounds.runtime_grace };
            must!(
                !self.is_overdue_since(exited, seen + killing + waiting),
                "R2: child {number} ended, and nobody is told"
            );
        }
        if let Some(shutdown) = self.shutdown.filter(|_| child.call.is_some()) {
            must!(
                stuck
                    || process.has_exited()
                    || !self.is_overdue_since(shutdown.kill_at, shutdown.kill_at.max(child.registered) + TREE),
                "R19: child {number} outlives the kill"
            );
        }
        Ok(())
    }

    /// Without anything to wait for there is no timer (R7).
    fn check_idle(&self) -> Result<(), Fault> {
        let Some(at) = self.reaper.next_timeout() else { return Ok(()) };
        let waits = self.shutdown.is_some()
            || self.calls.iter().any(|call| call.ended.is_none())
            || self.children.iter().any(|child| !child.over && child.deadline.is_some())
            || self.children.iter().any(|child| !child.over && self.kernel.processes[child.uid].has_exited())
            || self.kernel.zombies_of_shim().next().is_some();
        let grace = std::time::Duration::from_millis(self.history.bounds.orphan_grace + SLACK);
        must!(waits || at <= self.now() + grace, "R7: there is a timer, and nothing to wait for");
        Ok(())
    }

    /// When nothing happens any more.
    pub(super) fn check_the_end(&mut self) -> Result<(), Fault> {
        must!(self.shutdown.is_none(), "R19: the shutdown never ended");
        for (number, call) in self.calls.iter().enumerate() {
            must!(call.ended.is_some(), "R12: call {number} never ended");
        }
        for (number, child) in self.children.iter().enumerate() {
            let exited = self.kernel.processes[child.uid].has_exited();
            must!(child.over || !exited, "R2: the status of child {number} was lost");
        }
        must!(self.kernel.zombies_of_shim().next().is_none(), "R3: a zombie was left");
        must!(self.reaper.next_timeout().is_none(), "R7: there is a timer, and nothing to wait for");
        // All that it still knows of are children that run; a fresh one knows of none.
        let kept = format!("{:?}", self.reaper).len();
        let left = self.children.iter().filter(|child| !child.over).count();
        must!(kept < 1_100 + 150 * left, "the reaper keeps {kept} characters of {left} children: {:?}", self.reaper);
        Ok(())
    }

    /// The process that a failed call is about to kill.
    pub(super) fn check_leftover(&self, number: usize) -> Result<Uid, Fault> {
        let call = &self.calls[number];
        let Some((uid, kinship)) = call.examined else { return Err("R10: a kill without a check".into()) };
        must!(kinship != Kinship::None, "R10: a process is killed that is not below the shim");
        must!(!self.is_watched(uid), "R15: a process is killed that has another owner");
        let pid = self.kernel.processes[uid].pid;
        must!(call.last_read == PidFile::Pid(Pid::from_raw(pid)), "R15: a process is killed that was not reported");
        must!(!call.swept.contains(&pid), "R4: a process is killed under a PID that the sweep reaped");
        Ok(uid)
    }

    pub(super) fn check_registration(&self, number: usize) -> Result<Uid, Fault> {
        let call = &self.calls[number];
        let Some((uid, kinship)) = call.examined else { return Err("R10: registered without a check".into()) };
        must!(kinship != Kinship::None, "R10: a process is registered that is not below the shim");
        must!(!self.is_watched(uid), "R2: a process is registered twice");
        let pid = self.kernel.processes[uid].pid;
        must!(!call.swept.contains(&pid), "R4: a PID is accepted that the sweep reaped during the call");
        Ok(uid)
    }

    /// The zombie that the sweep is about to reap.
    pub(super) fn check_orphan(&self, pid: Pid) -> Result<Uid, Fault> {
        let now = self.kernel.now;
        let bounds = &self.history.bounds;
        let uid = self.kernel.by_pid(pid.as_raw());
        let zombie = |uid: &Uid| self.kernel.is_child(*uid) && self.kernel.processes[*uid].has_exited();
        let Some(uid) = uid.filter(zombie) else { return Err(format!("R3: {pid} is reaped and is no zombie")) };
        must!(!self.is_watched(uid), "R1: {pid} is reaped, which has an owner");
        let since = self.kernel.processes[uid].zombie_since.unwrap_or(0);
        must!(now >= since + bounds.orphan_grace, "R3: zombie {pid} is reaped before its grace");
        let listed = self.checks.first_listed.get(&uid).copied().unwrap_or(now);
        for call in self.calls.iter().filter(|call| call.ended.is_none()) {
            let number = self.calls.iter().position(|other| other.id == call.id).unwrap_or(0);
            // Once its runtime is gone it may still claim while the terminal is awaited; nothing else takes time then.
            let awaits_terminal = call.plan.terminal
                && call.runtime_seen.is_some_and(|seen| now < seen + bounds.runtime_grace)
                && call.runtime_status.is_some_and(ExitStatus::success)
                && call.connected.is_none()
                && call.plan.terminal_fails.is_none();
            if self.watch(Role::Runtime(number)).is_none() && !awaits_terminal {
                continue;
            }
            let named = call.file.parse() == Ok(pid.as_raw()) && !call.swept.contains(&pid.as_raw());
            must!(!named, "R4: zombie {pid} is reaped, which call {number} has named");
            let until = (call.deadline + bounds.claim_margin()).min(listed + bounds.orphan_max_defer);
            let deferred = call.started < listed && now < until && self.shutdown.is_none();
            must!(!deferred, "R4: zombie {pid} is reaped, which call {number} may still claim");
        }
        Ok(uid)
    }

    pub(super) fn check_started(&self, number: usize, child: usize, pid: Pid) -> Result<(), Fault> {
        let (call, child) = (&self.calls[number], &self.children[child]);
        must!(self.pid(child.uid) == pid, "R2: another PID is reported than is watched");
        // Nobody can tell a PID from that of an earlier process that another parent reaped, or that the shim reaped for
        // another call which named it as well.
        let lost = |uid: Uid| {
            let process = &self.kernel.processes[uid];
            let for_another = match self.reaped_for.get(&uid) {
                Some(&Role::Child(child)) => self.children[child].call != Some(number),
                Some(&(Role::Leftover(call) | Role::Runtime(call))) => call != number,
                None => false,
            };
            process.is_gone() && (process.zombie_since.is_none() || for_another)
        };
        if call.last_read_is_true && !call.process.is_some_and(lost) {
            must!(call.process == Some(child.uid), "R2: call {number} was given another process than its own");
        }
        Ok(())
    }

    /// A call may fail for the reason that it gives, and for no other.
    pub(super) fn check_failed(&self, number: usize, failure: &Failure) -> Result<(), Fault> {
        let now = self.kernel.now;
        let call = &self.calls[number];
        let reason = match failure {
            Failure::Runtime(status) => {
                let pid_was_refused = !matches!(call.last_read, PidFile::Pid(_));
                call.runtime_status == Some(*status) && !status.success() && (!call.plan.exec || pid_was_refused)
            }
            Failure::TimedOut(_) => now >= call.deadline,
            Failure::NoTerminal => {
                call.plan.terminal
                    && (call.plan.terminal_fails.is_some()
                        || call.connected.is_none_or(|at| at >= call.started + self.history.bounds.runtime_grace))
            }
            Failure::NoPid => call.last_read == PidFile::Absent,
            Failure::InvalidPid(_) => matches!(call.last_read, PidFile::Invalid(_)),
            Failure::Swept(pid) => call.last_read == PidFile::Pid(*pid) && call.swept.contains(&pid.as_raw()),
            Failure::NotOurs(pid) => call.last_read == PidFile::Pid(*pid) && self.is_not_its(number, *pid),
            Failure::ShuttingDown => self.shutdown.is_some_and(|shutdown| now >= shutdown.stop_at),
        };
        must!(reason, "call {number} failed without reason: {failure:?}");
        self.check_cleaned_up(number, failure)
    }

    /// Whether it is right that `pid` was refused.
    fn is_not_its(&self, number: usize, pid: Pid) -> bool {
        let call = &self.calls[number];
        match call.examined {
            _ if call.refused => true,
            Some((uid, _)) if self.pid(uid) == pid => false,
            // It was not even looked at: another's, by what its own call or its watcher says, now or a moment ago.
            _ => {
                let registered = self.children.iter().any(|child| self.pid(child.uid) == pid);
                let others = self.calls.iter().enumerate().any(|(other, another)| {
                    other != number && (self.pid(another.runtime) == pid || another.named.contains(&pid.as_raw()))
                });
                registered || others || self.kernel.by_pid(pid.as_raw()).is_none()
            }
        }
    }

    /// Whether the file of another call ever named `pid`.
    fn is_named_by_others(&self, number: usize, pid: i32) -> bool {
        self.calls.iter().enumerate().any(|(other, another)| other != number && another.named.contains(&pid))
    }

    fn check_cleaned_up(&self, number: usize, failure: &Failure) -> Result<(), Fault> {
        let call = &self.calls[number];
        // Its file is what it was when the call looked.
        let settled =
            self.kernel.processes[call.runtime].has_exited() && !call.plan.writes.iter().any(|write| write.late);
        let Some(uid) = call.process.filter(|_| call.file_is_true && settled) else { return Ok(()) };
        let process = &self.kernel.processes[uid];
        let refused = matches!(failure, Failure::Swept(_) | Failure::NotOurs(_))
            || call.swept.contains(&process.pid)
            || self.is_watched(uid)
            || call.examined.is_some_and(|(examined, kinship)| examined != uid || kinship == Kinship::None);
        let shared = self.is_named_by_others(number, process.pid);
        let given_time_to_die = process.is_stuck() || matches!(process.state, State::Ending(_)) || refused || shared;
        // A loop that was held up while calls were to be stopped may have time for nothing more when the shutdown is over.
        let over = self.shutdown.is_some_and(|shutdown| {
            let held_up = self.stalls.iter().any(|&(from, until)| from <= shutdown.ends && until > shutdown.stop_at);
            self.kernel.now >= shutdown.ends && held_up
        });
        let given_time_to_die = given_time_to_die || over;
        let own = self.kernel.descends(uid) || process.has_exited();
        must!(given_time_to_die || !own || process.has_exited(), "R15: the process of call {number} was left running");
        // What was another's to reap then may come down to the shim later: that is the sweep's.
        let own_child = !call.abandoned && call.examined.is_some_and(|(_, kinship)| kinship == Kinship::Child);
        let unreaped = own_child && self.kernel.is_child(uid) && matches!(process.state, State::Zombie(_));
        must!(given_time_to_die || !unreaped, "R15: the process of call {number} was left a zombie");
        Ok(())
    }

    pub(super) fn check_exited(&self, number: usize, status: ExitStatus) -> Result<(), Fault> {
        let child = &self.children[number];
        let process = &self.kernel.processes[child.uid];
        let Some(truth) = process.status() else { return Err(format!("R2: child {number} has not ended")) };
        if status == ExitStatus::Unknown {
            let told = process.is_gone() && !self.history.old_kernel;
            let waited = process
                .exited_at
                .is_some_and(|at| self.kernel.now >= at.max(child.registered) + self.history.bounds.runtime_grace);
            must!(process.parent != Some(super::kernel::SHIM) || waited, "R2: the status of child {number} was lost");
            must!(!told || waited, "R11: the status of child {number} was there and is not told");
        } else {
            must!(status == truth, "R2: child {number} was given {status:?} instead of {truth:?}");
        }
        let killed = child.signals.contains(&9);
        if let (Some(deadline), Some(exited)) = (child.deadline, process.exited_at) {
            let late = exited > deadline.max(child.registered) + self.stalled_since(deadline) + SLACK + TREE;
            must!(!late || killed, "R17: child {number} was not held to its timeout");
        }
        Ok(())
    }

    pub(super) fn check_timed_out(&self, number: usize) -> Result<(), Fault> {
        let child = &self.children[number];
        let process = &self.kernel.processes[child.uid];
        let Some(deadline) = child.deadline else { return Err("R17: timed out without a timeout".into()) };
        must!(process.has_exited(), "R17: child {number} is said to have timed out, and is not dead");
        let unreaped = self.kernel.is_child(child.uid) && !process.is_gone();
        must!(!unreaped, "R17: child {number} is said to have timed out, and was not reaped");
        must!(
            process.exited_at.is_some_and(|exited| exited >= deadline),
            "R17: child {number} ended in time, and is said to have timed out"
        );
        must!(child.killed_alive.is_some(), "R17: child {number} timed out, and what is below it was not looked for");
        let mut tree = child.tree.clone().unwrap_or_default();
        // Where somebody else killed some of it during the walk, what was not seen yet is no longer below.
        let from_outside = |uid: &Uid| self.killed.get(uid).is_some_and(|&killed| killed >= child.expired);
        if child.killed_alive == Some(true) && !child.below.iter().any(from_outside) {
            tree.extend(&child.below);
        }
        let born_of = |uid: Uid| self.kernel.processes[uid].parent;
        for uid in child.uid + 1..self.kernel.processes.len() {
            let process = &self.kernel.processes[uid];
            let below = tree.contains(&uid) || born_of(uid).is_some_and(|parent| tree.contains(&parent));
            let may_live = process.has_exited() || process.is_stuck() || matches!(process.state, State::Ending(_));
            must!(!below || may_live, "R17: process {} below child {number} lives on", process.pid);
        }
        Ok(())
    }

    pub(super) fn check_shut_down(&self, left: &[Pid]) -> Result<(), Fault> {
        let Some(shutdown) = self.shutdown else { return Err("R19: a shutdown ended that never began".into()) };
        let awaited = self.children.iter().filter(|child| !child.over && child.call.is_some());
        let mut expected: Vec<Pid> = awaited.map(|child| self.pid(child.uid)).collect();
        // An abandoned runtime; what is a zombie by now may have been seen as gone.
        let stuck = self.abandoned.iter().filter(|&&uid| self.kernel.is_child(uid));
        expected.extend(stuck.filter(|&&uid| !self.kernel.processes[uid].has_exited()).map(|&uid| self.pid(uid)));
        if left.is_empty() {
            must!(expected.is_empty(), "R20: {expected:?} were not named");
            must!(self.calls.iter().all(|call| call.ended.is_some()), "R19: a call was still in progress");
            return Ok(());
        }
        must!(self.kernel.now >= shutdown.ends, "R19: the shutdown ended before its deadline with {left:?} left");
        // What did not die for its call either; or what did, and whose end was not seen yet.
        let lives = |pid: &Pid| self.kernel.by_pid(pid.as_raw()).is_some_and(|uid| self.kernel.is_child(uid));
        let watched = |pid: &Pid| self.watches.iter().any(|watch| self.pid(watch.uid) == *pid);
        expected.retain(|pid| !left.contains(pid));
        must!(expected.is_empty(), "R20: {expected:?} were not named");
        let named_twice = left.windows(2).any(|pair| pair[0] == pair[1]);
        must!(!named_twice, "R20: {left:?} names one twice");
        must!(left.iter().all(|pid| lives(pid) || watched(pid)), "R20: {left:?} names what is not left");
        Ok(())
    }
}
