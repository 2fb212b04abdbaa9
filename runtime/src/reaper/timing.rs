//! The bounds of the reaper.

use std::time::Duration;

/// How long what may take. The shim has an option for each.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// ORPHAN_GRACE: how long an unclaimed zombie stays, so that an owner about to wait for it still can.
    pub orphan_grace: Duration,
    /// ORPHAN_MAX_DEFER: how long a zombie is left alone at most for calls that were in progress when it was seen.
    pub orphan_max_defer: Duration,
    /// RUNTIME_GRACE: what a runtime gets for what follows its exit or failure: to connect the terminal after a clean
    /// exit, to exit on its own after a failure, to die after SIGKILL; and its helpers to close its output.
    pub runtime_grace: Duration,
    /// CREATE_RUNTIME_TIMEOUT: the runtime of a create, before it is killed.
    pub create_runtime_timeout: Duration,
}

impl Timing {
    /// CLAIM_MARGIN: how long after its runtime's deadline a call may still claim its process.
    #[must_use]
    pub fn claim_margin(&self) -> Duration {
        self.runtime_grace + self.orphan_grace
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            orphan_grace: Duration::from_secs(1),
            orphan_max_defer: Duration::from_secs(30),
            runtime_grace: Duration::from_secs(5),
            create_runtime_timeout: Duration::from_secs(600),
        }
    }
}
