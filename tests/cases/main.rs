//! Faults that users reported of tools like this one, each as a test of dunnage.
//!
//! A test's name begins with the row of the collection that it came from (`a03`: group A, row 3) or with the rule of the
//! reaper that it shows (`r13`). `docs/differences.md` lists the rows that do not apply.

mod attach;
mod exec;
mod exit_codes;
mod exit_command;
mod logs;
mod memory;
mod reaping;
mod runtime_calls;
mod sync_pipe;
mod terminal;
mod timeouts;

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Monitor, Process, Sandbox, Tool};

/// How soon something must have happened that must not be delayed: below every grace period, and enough for a busy
/// machine.
const SOON: Duration = Duration::from_secs(3);

/// dunnage, to be started in the sandbox.
fn dunnage(sandbox: &Sandbox) -> Monitor<'_> {
    sandbox.monitor(&Tool::under_test())
}

/// Waits until a process has nothing to do: it does not run for a while.
fn idle(process: &Process) {
    let ran = || fs::read_to_string(process.proc_dir().join("schedstat")).expect("the time it ran");
    wait::eventually(Deadline::usual(), "the process to be idle", || {
        let before = ran();
        sleep(Duration::from_millis(50));
        before == ran()
    });
}
