//! Stops and kills children with all that is below them (R17), a slice a turn.

use log::warn;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::processes::Role;
use super::tree::{self, Tree, Way, share_of_turn};
use super::{Driver, kinship};
use crate::reaper::{ChildId, Walk};

impl Driver {
    pub(super) fn stop_tree(&mut self, child: ChildId) -> Walk {
        let role = Role::Child(child);
        let Some(root) = self.processes.find(role).map(|process| process.pid) else { return Walk::Settled };
        if !self.trees.iter().any(|&(of, _)| of == child) {
            warn!("stopping process {root} and all below it, as its time is over");
            self.processes.signal_with_group(role, Signal::SIGSTOP);
            self.trees.extend(Tree::new(root, Way::Stop).map(|tree| (child, tree)));
        }
        let Some(position) = self.trees.iter().position(|&(of, _)| of == child) else { return Walk::Settled };
        let time = share_of_turn(self.trees.len());
        let (child, mut tree) = self.trees.swap_remove(position);
        let adopted = |root| if self.reaper.is_main(child) { self.adopted(root) } else { Vec::new() };
        let walk = tree.walk_slice(time, adopted);
        self.trees.push((child, tree));
        walk
    }

    pub(super) fn kill_tree(&mut self, child: ChildId) -> Walk {
        let Some(position) = self.trees.iter().position(|&(of, _)| of == child) else { return Walk::Settled };
        let time = share_of_turn(self.trees.len());
        let walk = self.trees[position].1.signal_slice_from_below(Signal::SIGKILL, time);
        if walk == Walk::Settled {
            self.trees.remove(position);
        }
        walk
    }

    /// The children that nobody started from here: daemons of the container's, which their parents left. What is above
    /// `root` is its runtime's.
    pub(super) fn adopted(&self, root: Pid) -> Vec<Pid> {
        let above: Vec<Pid> = kinship::ancestors(root).take_while(|&pid| pid != Pid::this()).collect();
        let mut children = tree::children_of(Pid::this());
        children.retain(|pid| !above.contains(pid) && self.processes.iter().all(|process| process.pid != *pid));
        children
    }
}
