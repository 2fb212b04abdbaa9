//! What is below a process: stopped and killed (R17), or signalled.
//!
//! A process that runs may fork while its children are listed. So the whole is walked again until a walk finds nothing
//! new, and where all of it is to die, each is told to stop first. Only PIDs are remembered, as there may be more
//! processes than descriptors; each is told from a later one of the same number by its start time and its parent, looked
//! up after its pidfd was opened (R9).

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::kinship::{Stat, is_descendant};
use crate::reaper::Walk;
use crate::sys::Pidfd;

/// How long processes are seen to before the loop has its turn (R22). Trees share it; where many begin in one turn, it takes
/// a few times as long.
const TURN: Duration = Duration::from_millis(4);

/// How many processes a slice sees to at least: on a machine that is slow, or among many trees, the work is still done.
const LEAST: usize = 4;

/// A process and all that is below it; for the shim's main process also what its daemons left to the shim.
#[derive(Debug)]
pub(super) struct Tree {
    way: Way,
    /// The root first, and each before those below it.
    members: Vec<Member>,
    /// Who has a PID, by its place among the members.
    places: BTreeMap<i32, usize>,
    /// Processes that this walk came upon and has not looked at.
    listed: Vec<Pid>,
    /// Whose children they are.
    above: usize,
    /// The next member whose children this walk lists; none before it began.
    position: Option<usize>,
    /// Whether this walk found nothing new, and, where all is to stop, nothing that ran.
    settled: bool,
    /// How many walks came to their end.
    walks: u32,
    /// The next member to signal.
    next: usize,
}

/// What becomes of what is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It is stopped.
    Stop,
    /// Nothing.
    Look,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    pid: Pid,
    started: u64,
    /// Its place among the members; the root's is its own.
    parent: usize,
}

/// How long one of so many trees may take of a turn.
pub(super) fn share_of_turn(trees: usize) -> Duration {
    TURN / u32::try_from(trees.max(1)).unwrap_or(u32::MAX)
}

impl Tree {
    /// The tree below `root`, which the caller holds a pidfd of.
    pub(super) fn new(root: Pid, way: Way) -> Option<Self> {
        let started = Stat::of(root)?.started;
        Some(Self {
            way,
            members: vec![Member { pid: root, started, parent: 0 }],
            places: BTreeMap::from([(root.as_raw(), 0)]),
            listed: Vec::new(),
            above: 0,
            position: None,
            settled: true,
            walks: 0,
            next: 1,
        })
    }

    /// Goes on with the walk for one slice. What is `adopted` belongs to the root as well; it is asked for as a walk
    /// begins.
    pub(super) fn walk_slice(&mut self, time: Duration, adopted: impl FnOnce(Pid) -> Vec<Pid>) -> Walk {
        if self.position.is_none() {
            self.position = Some(0);
            self.settled = true;
            // Who was adopted has no parent among the members.
            self.above = 0;
            self.listed = adopted(self.members[0].pid);
        }
        let until = Instant::now() + time;
        for seen in 0.. {
            if seen >= LEAST && Instant::now() >= until {
                break;
            }
            if let Some(pid) = self.listed.pop() {
                self.take_in(pid);
            } else if let Some(place) = self.position.filter(|&place| place < self.members.len()) {
                self.position = Some(place + 1);
                self.visit(place);
            } else {
                self.position = None;
                self.walks += 1;
                return if self.settled { Walk::Settled } else { Walk::Unfinished };
            }
        }
        Walk::Unfinished
    }

    /// How many walks came to their end.
    pub(super) fn walks(&self) -> u32 {
        self.walks
    }

    /// Signals one slice of what is below the root, what is deepest first.
    pub(super) fn signal_slice_from_below(&mut self, signal: Signal, time: Duration) -> Walk {
        let until = Instant::now() + time;
        for seen in 0.. {
            if self.members.len() <= 1 {
                return Walk::Settled;
            }
            if seen >= LEAST && Instant::now() >= until {
                break;
            }
            if let Some(member) = self.members.pop() {
                self.signal(member, signal);
            }
        }
        Walk::Unfinished
    }

    /// The same, what is highest first.
    pub(super) fn signal_slice_from_above(&mut self, signal: Signal, time: Duration) -> Walk {
        let until = Instant::now() + time;
        for seen in 0.. {
            let Some(&member) = self.members.get(self.next) else { return Walk::Settled };
            if seen >= LEAST && Instant::now() >= until {
                break;
            }
            self.next += 1;
            self.signal(member, signal);
        }
        Walk::Unfinished
    }

    /// Has the children of a member looked at.
    fn visit(&mut self, place: usize) {
        let member = self.members[place];
        let Some(stat) = Stat::of(member.pid).filter(|stat| stat.started == member.started) else { return };
        match stat.state {
            b'X' => return,
            // A zombie may be the first thread of a process that lives on.
            b'T' | b't' | b'Z' => {}
            _ if self.way == Way::Look => {}
            _ => {
                self.settled = false;
                // The root is stopped by the pidfd that the driver holds.
                if place > 0 {
                    self.signal(member, Signal::SIGSTOP);
                }
            }
        }
        self.above = place;
        self.listed = children_of(member.pid);
    }

    /// Takes in what is not known yet.
    fn take_in(&mut self, pid: Pid) {
        let Some(Stat { started, .. }) = Stat::of(pid) else { return };
        let known = self.places.get(&pid.as_raw()).map(|&place| self.members[place]);
        if known.is_some_and(|known| known.started == started) {
            return;
        }
        let found = Member { pid, started, parent: self.above };
        self.places.insert(pid.as_raw(), self.members.len());
        self.members.push(found);
        self.settled = false;
        if self.way == Way::Stop {
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
