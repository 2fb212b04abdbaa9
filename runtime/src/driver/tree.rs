//! What is below a process, stopped and then killed (R17).
//!
//! A process that runs may fork while its children are listed. So each is told to stop, and the whole is walked again
//! until a walk finds all of it stopped and nothing new. Only PIDs are remembered, as there may be more processes than
//! descriptors; each is told from a later one of the same number by its start time and its parent, looked up after its
//! pidfd was opened (R9).

use std::fs;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::kinship::{Stat, is_descendant};
use crate::reaper::Walk;
use crate::sys::Pidfd;

/// How many processes are seen to before the loop has its turn.
const SLICE: usize = 128;

/// A process and all that is below it; for the shim's main process also what its daemons left to the shim.
#[derive(Debug)]
pub(super) struct Tree {
    /// The root first, and each before those below it.
    members: Vec<Member>,
    /// How far this walk is.
    position: usize,
    /// Whether this walk found nothing but what was stopped already.
    settled: bool,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    pid: Pid,
    started: u64,
    /// Its place among the members; the root's is its own.
    parent: usize,
}

impl Tree {
    /// The tree below `root`, which the caller holds a pidfd of.
    pub(super) fn new(root: Pid) -> Option<Self> {
        let started = Stat::of(root)?.started;
        Some(Self { members: vec![Member { pid: root, started, parent: 0 }], position: 0, settled: true })
    }

    /// Goes on with the walk for one slice. What was `adopted` by this process belongs to the tree as well.
    pub(super) fn stop_slice(&mut self, adopted: &[Pid]) -> Walk {
        if self.position == 0 {
            self.find(adopted, 0);
        }
        for _ in 0..SLICE {
            if self.position == self.members.len() {
                self.position = 0;
                let settled = std::mem::replace(&mut self.settled, true);
                return if settled { Walk::Settled } else { Walk::Unfinished };
            }
            self.visit(self.position);
            self.position += 1;
        }
        Walk::Unfinished
    }

    /// Kills one slice of what is below the root, what is deepest first.
    pub(super) fn kill_slice(&mut self) -> Walk {
        for _ in 0..SLICE {
            if self.members.len() <= 1 {
                return Walk::Settled;
            }
            if let Some(member) = self.members.pop() {
                self.signal(member, Signal::SIGKILL);
            }
        }
        Walk::Unfinished
    }

    fn visit(&mut self, place: usize) {
        let member = self.members[place];
        let Some(stat) = Stat::of(member.pid).filter(|stat| stat.started == member.started) else { return };
        match stat.state {
            b'X' => return,
            // A zombie may be the first thread of a process that lives on.
            b'T' | b't' | b'Z' => {}
            _ => {
                self.settled = false;
                // The root is stopped by the pidfd that the driver holds.
                if place > 0 {
                    self.signal(member, Signal::SIGSTOP);
                }
            }
        }
        self.find(&children_of(member.pid), place);
    }

    /// Takes in and stops what is not known yet. Who was adopted has no parent among the members.
    fn find(&mut self, pids: &[Pid], parent: usize) {
        for &pid in pids {
            if self.members.iter().any(|known| known.pid == pid && is(known)) {
                continue;
            }
            let Some(Stat { started, .. }) = Stat::of(pid) else { continue };
            let found = Member { pid, started, parent };
            self.members.push(found);
            self.settled = false;
            self.signal(found, Signal::SIGSTOP);
        }
    }

    /// Signals a member that is still the process that was found, and still below.
    fn signal(&self, member: Member, signal: Signal) {
        let Ok(pidfd) = Pidfd::open(member.pid) else { return };
        let Some(stat) = Stat::of(member.pid).filter(|stat| stat.started == member.started) else { return };
        let parent = self.members[member.parent];
        let below = (stat.parent == parent.pid && is(&parent)) || is_descendant(member.pid);
        // It being there after that says that what was looked up was its own.
        if below && pidfd.is_unreaped() {
            // Fails only for one that is gone.
            let _ = pidfd.signal(signal);
        }
    }
}

/// Whether the PID is still that process's.
fn is(member: &Member) -> bool {
    Stat::of(member.pid).is_some_and(|stat| stat.started == member.started)
}

/// The children of all threads of `pid`.
pub(super) fn children_of(pid: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut children = Vec::new();
    for thread in threads.flatten() {
        if let Ok(list) = fs::read(thread.path().join("children")) {
            children.extend(super::zombies::parse_pids(&list));
        }
    }
    children
}
