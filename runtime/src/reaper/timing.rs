//! The bounds of the reaper.

use std::fmt;
use std::time::Duration;

/// By how much STOP_BUDGET exceeds the waits in it: a killed process of a call takes up to half of it, and the loop
/// has the rest.
const STOP_SLACK: Duration = Duration::from_secs(1);

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
    /// CREATE_RUNTIME_TIMEOUT: the runtime of a create or restore, before it is killed.
    pub create_runtime_timeout: Duration,
    /// EXEC_RUNTIME_GRACE: the runtime of an exec beyond the exec's own timeout; alone, where the exec has none.
    pub exec_runtime_grace: Duration,
    /// IN_FLIGHT_WAIT: how long a shutdown waits for calls in progress to end by themselves.
    pub in_flight_wait: Duration,
    /// STOPPED_EXIT_WAIT: how long a call that the shutdown stopped waits for its killed runtime.
    pub stopped_exit_wait: Duration,
    /// STOPPED_OUTPUT_WAIT: how long such a call waits for the runtime's output after that.
    pub stopped_output_wait: Duration,
    /// STOP_BUDGET: how long before a shutdown's deadline the calls are stopped at the latest.
    pub stop_budget: Duration,
    /// The deadline of the shutdown that follows SIGTERM, SIGINT or SIGQUIT, if one does (R18).
    pub shutdown_timeout: Option<Duration>,
}

impl Timing {
    /// CLAIM_MARGIN: how long after its runtime's deadline a call may still claim its process.
    #[must_use]
    pub fn claim_margin(&self) -> Duration {
        self.runtime_grace + self.orphan_grace
    }

    /// Whether a shutdown can keep to these bounds.
    pub fn validate(&self) -> Result<(), InvalidBudget> {
        let needed = self.stopped_exit_wait + self.stopped_output_wait + STOP_SLACK;
        if self.stop_budget < needed {
            return Err(InvalidBudget::StopBudgetBelowWaits { budget: self.stop_budget, needed });
        }
        self.shutdown_timeout.map_or(Ok(()), |deadline| self.validate_shutdown(deadline))
    }

    /// Whether a shutdown may have `deadline`.
    pub fn validate_shutdown(&self, deadline: Duration) -> Result<(), InvalidBudget> {
        if deadline < self.stop_budget {
            return Err(InvalidBudget::DeadlineBelowStopBudget { deadline, budget: self.stop_budget });
        }
        Ok(())
    }

    /// How long the killed process of a stopped call may take to die.
    pub(super) fn stopped_process_wait(&self) -> Duration {
        self.stopped_exit_wait.min(STOP_SLACK / 2)
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            orphan_grace: Duration::from_secs(1),
            orphan_max_defer: Duration::from_secs(30),
            runtime_grace: Duration::from_secs(5),
            create_runtime_timeout: Duration::from_secs(600),
            exec_runtime_grace: Duration::from_secs(60),
            in_flight_wait: Duration::from_secs(5),
            stopped_exit_wait: Duration::from_millis(500),
            stopped_output_wait: Duration::from_millis(200),
            stop_budget: Duration::from_secs(2),
            shutdown_timeout: None,
        }
    }
}

/// Bounds that no shutdown could keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidBudget {
    /// STOP_BUDGET leaves no room for what is waited for in it.
    StopBudgetBelowWaits {
        /// STOP_BUDGET.
        budget: Duration,
        /// What it must be at least.
        needed: Duration,
    },
    /// The deadline leaves no room for STOP_BUDGET.
    DeadlineBelowStopBudget {
        /// The deadline asked for.
        deadline: Duration,
        /// STOP_BUDGET.
        budget: Duration,
    },
}

impl fmt::Display for InvalidBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StopBudgetBelowWaits { budget, needed } => {
                write!(f, "the stop budget of {budget:?} is too small: with these waits it must be at least {needed:?}")
            }
            Self::DeadlineBelowStopBudget { deadline, budget } => {
                write!(f, "a shutdown within {deadline:?} is not possible: its stop budget alone is {budget:?}")
            }
        }
    }
}

impl std::error::Error for InvalidBudget {}
