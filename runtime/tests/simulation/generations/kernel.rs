//! Cgroups below one parent, and the processes in them.

use std::collections::{BTreeMap, BTreeSet};

use super::history::Time;
use crate::cgroup::Name;
use crate::generation::Role;

/// A process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) role: Role,
    pub(super) leader: bool,
    /// The cgroup that it is in; nothing for a leader that has left.
    pub(super) cgroup: Option<Name>,
    pub(super) state: State,
    /// When it ends by itself.
    pub(super) ends: Time,
    /// Until when it does not die.
    pub(super) stuck_until: Time,
    /// When it forks.
    pub(super) forks: Vec<Time>,
    killed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Alive,
    /// A child of the shim that was not reaped.
    Zombie,
    Gone,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Kernel {
    pub(super) processes: Vec<Process>,
    pub(super) cgroups: BTreeSet<Name>,
    /// Those that took a kill since they were made.
    pub(super) took_kill: BTreeSet<Name>,
    /// Those that are being killed until they are empty.
    pub(super) evicting: BTreeMap<Name, Role>,
    next_pid: i32,
}

impl Kernel {
    pub(super) fn born(&mut self, process: Process) -> i32 {
        self.next_pid += 1;
        let pid = 100 + self.next_pid;
        self.processes.push(Process { pid, ..process });
        pid
    }

    pub(super) fn populated(&self, cgroup: &Name) -> Vec<i32> {
        let inside = |process: &&Process| process.state == State::Alive && process.cgroup.as_ref() == Some(cgroup);
        self.processes.iter().filter(inside).map(|process| process.pid).collect()
    }

    pub(super) fn alive(&self, role: Role) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(move |process| process.role == role && process.state == State::Alive)
    }

    pub(super) fn by_pid(&mut self, pid: i32) -> Option<&mut Process> {
        self.processes.iter_mut().find(|process| process.pid == pid)
    }

    pub(super) fn kill(&mut self, pid: i32) {
        if let Some(process) = self.by_pid(pid) {
            process.killed = true;
        }
    }

    /// Makes a cgroup afresh. One that something is in cannot be removed.
    pub(super) fn make(&mut self, cgroup: &Name) -> Result<(), String> {
        if !self.populated(cgroup).is_empty() {
            return Err(format!("{cgroup} is populated"));
        }
        self.took_kill.remove(cgroup);
        self.cgroups.insert(cgroup.clone());
        Ok(())
    }

    pub(super) fn remove(&mut self, cgroup: &Name) {
        if self.populated(cgroup).is_empty() {
            self.cgroups.remove(cgroup);
            self.took_kill.remove(cgroup);
        }
    }

    /// What happens by itself until now.
    pub(super) fn advance(&mut self, now: Time) {
        let mut forked = Vec::new();
        for process in &mut self.processes {
            if process.state != State::Alive {
                continue;
            }
            let due = process.forks.iter().filter(|&&at| at <= now).count();
            process.forks.retain(|&at| at > now);
            for _ in 0..due {
                let ends = now + (process.ends.saturating_sub(now) / 2) * 3;
                // What a leader that has left forks is where it was before, or nobody could ever find it.
                let cgroup = process.cgroup.clone();
                forked.extend(cgroup.is_some().then(|| Process {
                    leader: false,
                    ends,
                    forks: Vec::new(),
                    cgroup,
                    killed: false,
                    ..process.clone()
                }));
            }
        }
        for process in forked {
            self.born(process);
        }
        let Self { processes, evicting, took_kill, .. } = self;
        for process in processes.iter_mut().filter(|process| process.state == State::Alive) {
            if let Some(cgroup) = process.cgroup.as_ref().filter(|cgroup| evicting.contains_key(*cgroup)) {
                took_kill.insert(cgroup.clone());
                process.killed = true;
            }
            let dies = process.ends <= now || (process.killed && process.stuck_until <= now);
            if dies {
                process.state = if process.leader { State::Zombie } else { State::Gone };
            }
        }
    }

    /// When something happens by itself next.
    pub(super) fn next(&self, now: Time) -> Option<Time> {
        let alive = self.processes.iter().filter(|process| process.state == State::Alive);
        let times = alive.flat_map(|process| {
            let stuck = process.killed.then_some(process.stuck_until);
            process.forks.iter().copied().chain([process.ends]).chain(stuck)
        });
        times.filter(|&at| at > now).min()
    }

    /// The shim is gone: its zombies are another's, who reaps them.
    pub(super) fn lose_parent(&mut self) {
        self.evicting.clear();
        for process in &mut self.processes {
            if process.state == State::Zombie {
                process.state = State::Gone;
            }
        }
    }
}

impl Process {
    pub(super) fn new(role: Role, cgroup: Name, ends: Time) -> Self {
        Self {
            pid: 0,
            role,
            leader: true,
            cgroup: Some(cgroup),
            state: State::Alive,
            ends,
            stuck_until: 0,
            forks: Vec::new(),
            killed: false,
        }
    }
}
