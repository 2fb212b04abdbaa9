//! The bounds of the reaper.

use std::time::Duration;

/// How long what may take; each has an option of the shim.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// ORPHAN_GRACE: how long an unclaimed zombie stays, so that an owner about to wait for it still can.
    pub orphan_grace: Duration,
    /// RUNTIME_GRACE: what a runtime gets for what follows its exit or failure.
    pub runtime_grace: Duration,
    /// CREATE_RUNTIME_TIMEOUT: the runtime of a create, before it is killed.
    pub create_runtime_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            orphan_grace: Duration::from_secs(1),
            runtime_grace: Duration::from_secs(5),
            create_runtime_timeout: Duration::from_secs(600),
        }
    }
}
