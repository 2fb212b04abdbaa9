//! The simulator of staged generations: see `docs/simulation.md`.

mod checks;
mod history;
mod kernel;
mod world;

use super::search::{Fault, Scenario};
use history::History;

impl Scenario for History {
    const TEST: &'static str = "generations";

    fn draw(seed: u64) -> Self {
        History::draw(seed)
    }

    fn play(&self) -> Result<(), Fault> {
        world::play(self)
    }

    fn trace(&self) -> Vec<String> {
        world::trace(self)
    }

    fn describe(&self) -> String {
        format!("{:?}, kernel {:?}, {} generations at once", self.faults, self.kernel, self.layout_name())
    }

    fn steps(&self) -> Vec<String> {
        self.steps.iter().map(|step| format!("{:>8} ms  {:?}", step.at, step.what)).collect()
    }

    fn without_step(&self, position: usize) -> Self {
        let mut shorter = self.clone();
        shorter.steps.remove(position);
        shorter
    }
}

/// What the simulator plays.
pub(super) type Service = History;
