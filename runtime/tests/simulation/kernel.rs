//! A kernel of the simulation's own: processes, groups, PIDs that come again soon, zombies, reparenting, PID namespaces,
//! PID files. The shim is [`SHIM`], a subreaper.
//!
//! A process is known by its place in the table, which is never used again; its PID is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::reaper::ExitStatus;

/// Milliseconds since the history began.
pub(super) type Time = u64;

/// A process by its place in the table.
pub(super) type Uid = usize;

pub(super) const SHIM: Uid = 0;

const SHIM_PID: i32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Stopped,
    /// The init of a PID namespace that waits for the last process in it to be reaped.
    Ending(ExitStatus),
    Zombie(ExitStatus),
    Gone(ExitStatus),
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// None: it has no relation to the shim.
    pub(super) parent: Option<Uid>,
    /// The process whose group it is in.
    pub(super) group: Uid,
    /// The init of its PID namespace.
    pub(super) namespace: Option<Uid>,
    pub(super) state: State,
    pub(super) plan: Plan,
    pub(super) exited_at: Option<Time>,
    /// When it last became the shim's own zombie.
    pub(super) zombie_since: Option<Time>,
    /// The call whose runtime, helper or process it is.
    pub(super) call: Option<usize>,
    /// SIGKILL came while it was stuck.
    killed: bool,
    stuck: bool,
}

/// What a process does, in milliseconds since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plan {
    /// It exits by itself.
    pub(super) exits: Option<(Time, i32)>,
    pub(super) ignores_term: bool,
    /// It is stuck in the kernel (from, to), and dies of nothing in that time.
    pub(super) stuck: Option<(Time, Time)>,
    /// It forks so many children, one by one at this interval, that live on.
    pub(super) forks: Option<(u8, Time)>,
    /// How long it takes to reap a child of its own; if at all.
    pub(super) reaps_after: Option<Time>,
    /// It holds the output of the runtime of its call open.
    pub(super) holds_output: bool,
    /// It leads a session and group of its own.
    pub(super) leads: bool,
}

impl Process {
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone(_))
    }

    pub(super) fn has_exited(&self) -> bool {
        matches!(self.state, State::Zombie(_) | State::Gone(_))
    }

    pub(super) fn status(&self) -> Option<ExitStatus> {
        match self.state {
            State::Zombie(status) | State::Gone(status) => Some(status),
            _ => None,
        }
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.stuck
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Exit(Uid, i32),
    Fork(Uid),
    Stick(Uid),
    Unstick(Uid),
    /// A process reaps a child of its own.
    Reap(Uid, Uid),
    /// Something of a call's plan, carried out by the world if the process is still there.
    Planned(Uid, usize),
}

#[derive(Debug, Default)]
pub(super) struct Kernel {
    pub(super) processes: Vec<Process>,
    /// Who has which PID now.
    pids: Vec<Option<Uid>>,
    last_pid: i32,
    queue: BinaryHeap<Reverse<(Time, u64, Event)>>,
    queued: u64,
    pub(super) now: Time,
    /// SIGCHLD for the shim.
    pub(super) sigchld: bool,
}

impl Kernel {
    pub(super) fn new(pid_max: i32) -> Self {
        let mut kernel = Self {
            pids: vec![None; usize::try_from(pid_max + 1).expect("a size")],
            last_pid: SHIM_PID - 1,
            ..Self::default()
        };
        kernel.spawn(None, None, Plan::default(), None);
        kernel
    }

    /// Starts a process; None if there is no free PID.
    pub(super) fn spawn(
        &mut self,
        parent: Option<Uid>,
        namespace: Option<Uid>,
        plan: Plan,
        call: Option<usize>,
    ) -> Option<Uid> {
        let pid_max = i32::try_from(self.pids.len()).expect("a PID") - 1;
        let mut pid = self.last_pid;
        loop {
            pid = if pid >= pid_max { SHIM_PID + 1 } else { pid + 1 };
            if self.pids[index(pid)].is_none() {
                break;
            }
            if pid == self.last_pid {
                return None;
            }
        }
        self.last_pid = pid;
        let uid = self.processes.len();
        self.pids[index(pid)] = Some(uid);
        let group = match parent {
            Some(parent) if !plan.leads => self.processes[parent].group,
            _ => uid,
        };
        self.processes.push(Process {
            pid,
            parent,
            group,
            namespace,
            state: State::Running,
            plan,
            exited_at: None,
            zombie_since: None,
            call,
            killed: false,
            stuck: false,
        });
        if let Some((after, code)) = plan.exits {
            self.at(after, Event::Exit(uid, code));
        }
        if let Some((from, to)) = plan.stuck {
            self.at(from, Event::Stick(uid));
            self.at(to.max(from), Event::Unstick(uid));
        }
        if let Some((count, interval)) = plan.forks {
            for number in 1..=Time::from(count) {
                self.at(number * interval, Event::Fork(uid));
            }
        }
        Some(uid)
    }

    pub(super) fn at(&mut self, after: Time, event: Event) {
        self.queued += 1;
        self.queue.push(Reverse((self.now + after, self.queued, event)));
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        self.queue.peek().map(|&Reverse((when, _, _))| when)
    }

    /// Lets the next thing happen that is due, and returns what the world is to do for it.
    pub(super) fn step(&mut self) -> Option<(Uid, usize)> {
        let &Reverse((when, _, event)) = self.queue.peek()?;
        if when > self.now {
            return None;
        }
        self.queue.pop();
        match event {
            Event::Exit(uid, code) if self.runs(uid) => self.exit(uid, ExitStatus::Code(code)),
            Event::Fork(uid) if self.runs(uid) => {
                let namespace = self.processes[uid].namespace;
                let leads = self.queued.is_multiple_of(3);
                let plan = Plan { leads, ignores_term: true, exits: Some((90_000, 0)), ..Plan::default() };
                self.spawn(Some(uid), namespace, plan, None);
            }
            Event::Stick(uid) if self.runs(uid) => self.processes[uid].stuck = true,
            Event::Unstick(uid) => {
                self.processes[uid].stuck = false;
                if self.processes[uid].killed {
                    self.exit(uid, ExitStatus::Signal(9));
                }
            }
            Event::Reap(parent, child) => {
                let theirs = self.processes[child].parent == Some(parent) && !self.processes[parent].has_exited();
                if theirs && matches!(self.processes[child].state, State::Zombie(_)) {
                    self.reap(child);
                }
            }
            Event::Planned(uid, number) if self.runs(uid) => return Some((uid, number)),
            _ => {}
        }
        None
    }

    pub(super) fn is_due(&self) -> bool {
        self.next_event().is_some_and(|when| when <= self.now)
    }

    fn runs(&self, uid: Uid) -> bool {
        self.processes[uid].state == State::Running && !self.processes[uid].stuck
    }

    pub(super) fn signal(&mut self, uid: Uid, signal: i32) {
        let process = &mut self.processes[uid];
        if !matches!(process.state, State::Running | State::Stopped) {
            return;
        }
        match signal {
            9 if process.stuck => process.killed = true,
            9 => self.exit(uid, ExitStatus::Signal(9)),
            19 => process.state = State::Stopped,
            _ if process.plan.ignores_term || process.state == State::Stopped || process.stuck => {}
            _ => self.exit(uid, ExitStatus::Signal(signal)),
        }
    }

    pub(super) fn signal_group(&mut self, leader: Uid, signal: i32) {
        for uid in 0..self.processes.len() {
            if self.processes[uid].group == leader {
                self.signal(uid, signal);
            }
        }
    }

    fn exit(&mut self, uid: Uid, status: ExitStatus) {
        if !matches!(self.processes[uid].state, State::Running | State::Stopped) {
            return;
        }
        // The init of a namespace takes all in it along.
        self.processes[uid].state = State::Ending(status);
        for other in self.children_in_namespace(uid) {
            self.signal(other, 9);
        }
        for child in 0..self.processes.len() {
            if self.processes[child].parent == Some(uid) && !self.processes[child].is_gone() {
                if self.processes[child].namespace == Some(uid) {
                    // It waits for its own, as far as they die.
                    self.reap(child);
                } else {
                    let heir = self.heir(uid, child);
                    self.adopt(child, heir);
                }
            }
        }
        self.end_if_alone(uid);
    }

    fn heir(&self, dying: Uid, child: Uid) -> Option<Uid> {
        let init = self.processes[child].namespace.filter(|&init| init != dying && !self.processes[init].has_exited());
        let init = init.filter(|&init| !matches!(self.processes[init].state, State::Ending(_)));
        if init.is_some() && init != Some(child) {
            return init;
        }
        self.descends(dying).then_some(SHIM)
    }

    fn adopt(&mut self, child: Uid, parent: Option<Uid>) {
        self.processes[child].parent = parent;
        if matches!(self.processes[child].state, State::Zombie(_)) {
            self.notify(child);
        }
    }

    fn children_in_namespace(&self, init: Uid) -> Vec<Uid> {
        let inside = |&uid: &Uid| uid != init && self.processes[uid].namespace == Some(init);
        (0..self.processes.len()).filter(inside).filter(|&uid| !self.processes[uid].is_gone()).collect()
    }

    /// A process becomes a zombie at its exit; the init of a namespace only once all in that were reaped.
    fn end_if_alone(&mut self, uid: Uid) {
        if let State::Ending(status) = self.processes[uid].state
            && self.children_in_namespace(uid).is_empty()
        {
            self.processes[uid].state = State::Zombie(status);
            self.processes[uid].exited_at = Some(self.now);
            self.notify(uid);
        }
    }

    /// The parent of a zombie learns of it.
    fn notify(&mut self, zombie: Uid) {
        match self.processes[zombie].parent {
            Some(SHIM) => {
                self.sigchld = true;
                self.processes[zombie].zombie_since = Some(self.now);
            }
            Some(parent) if matches!(self.processes[parent].state, State::Ending(_)) => {
                self.reap(zombie);
            }
            Some(parent) => {
                if let Some(after) = self.processes[parent].plan.reaps_after {
                    self.at(after, Event::Reap(parent, zombie));
                }
            }
            None => {
                self.reap(zombie);
            }
        }
    }

    /// Reaps a zombie: its PID is free.
    pub(super) fn reap(&mut self, uid: Uid) -> Option<ExitStatus> {
        let State::Zombie(status) = self.processes[uid].state else { return None };
        self.processes[uid].state = State::Gone(status);
        self.pids[index(self.processes[uid].pid)] = None;
        if let Some(init) = self.processes[uid].namespace.filter(|&init| init != uid) {
            self.end_if_alone(init);
        }
        Some(status)
    }

    pub(super) fn by_pid(&self, pid: i32) -> Option<Uid> {
        self.pids.get(usize::try_from(pid).ok()?).copied().flatten()
    }

    pub(super) fn is_child(&self, uid: Uid) -> bool {
        self.processes[uid].parent == Some(SHIM) && !self.processes[uid].is_gone()
    }

    /// Whether the parents of `uid` lead to the shim.
    pub(super) fn descends(&self, uid: Uid) -> bool {
        let mut at = Some(uid);
        while let Some(uid) = at {
            if uid == SHIM {
                return true;
            }
            at = self.processes[uid].parent;
        }
        false
    }

    /// Who is below `uid` by its parents.
    pub(super) fn is_below(&self, uid: Uid, root: Uid) -> bool {
        let mut at = self.processes[uid].parent;
        while let Some(parent) = at {
            if parent == root {
                return true;
            }
            at = self.processes[parent].parent;
        }
        false
    }

    pub(super) fn zombies_of_shim(&self) -> impl Iterator<Item = Uid> + '_ {
        (0..self.processes.len()).filter(|&uid| {
            self.processes[uid].parent == Some(SHIM) && matches!(self.processes[uid].state, State::Zombie(_))
        })
    }
}

fn index(pid: i32) -> usize {
    usize::try_from(pid).expect("PIDs are positive")
}
