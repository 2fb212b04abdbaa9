//! A shim that is started on a record finds out what still runs, and starts nothing until it knows (G29).

use std::time::Instant;

use super::record::Progress;
use super::types::{Occupancy, Outcome, Role};
use super::{Action, Generations, Timer};

impl Generations {
    pub(super) fn adopt_all(&mut self, now: Instant) {
        if self.record.current.is_some() || self.record.switching.is_some() {
            self.reading_link = true;
            self.actions.push_back(Action::ReadLink);
        }
        if self.record.parent.is_some() {
            self.actions.push_back(Action::ReadParent);
        }
        self.adopting = self.record.roles().collect();
        for role in self.adopting.clone() {
            match self.leader(role) {
                Some(process) => self.actions.push_back(Action::Adopt(role, process)),
                None => self.look(role),
            }
        }
        self.go_on_adopting(now);
    }

    /// The answer to [`Action::Adopt`], at once: whether it is watched now. If not, it is gone.
    pub fn handle_adopted(&mut self, role: Role, watched: bool) {
        if !watched && let Some(run) = self.record.run_mut(role) {
            run.progress = Progress::Exited;
            self.save();
        }
        if self.adopting.contains(&role) && !self.evictions.contains_key(&role) {
            self.look(role);
        }
    }

    /// The cgroups of the role were read.
    pub(super) fn note_adopted(&mut self, now: Instant, role: Role, occupancy: Occupancy) {
        if self.adopting.remove(&role) {
            self.report(Outcome::Adopted(role, occupancy));
            self.go_on_adopting(now);
        }
    }

    /// Once all is known, the sidecar is what it was: it belongs to its generation, and is started again when it ends.
    fn go_on_adopting(&mut self, now: Instant) {
        let Some(sidecar) = self.record.sidecar.as_ref().filter(|_| self.adopting.is_empty()) else { return };
        let (of, wanted) = (sidecar.of, sidecar.wanted);
        match (self.leader(Role::Sidecar), &sidecar.run) {
            _ if self.leader(Role::Generation(of)).is_none() => self.stop_sidecar_of(now, of),
            (Some(_), _) if wanted => self.backoff.begin_life(now),
            (_, Some(_)) => self.start_kill(now, Role::Sidecar),
            (_, None) if self.deadlines.get(Timer::Sidecar).is_none() => self.sidecar_ended(now),
            (_, None) => {}
        }
    }
}
