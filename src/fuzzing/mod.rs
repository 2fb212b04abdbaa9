//! All that reads what comes from outside, as functions of any bytes, each of which panics where a promise is broken.
//!
//! `scripts/fuzz` runs them under libFuzzer, and the tests here replay what it has found, with variations. What one is
//! held to stands with it, in the `fuzzing` module beside the code. `docs/fuzzing.md` has the list.

mod input;
mod messages;

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

pub(crate) use input::Input;

dunnage_runtime::fuzz_targets! {
    messages: crate::fuzzing::messages::messages,
    options: crate::cli::fuzzing::options,
    option_numbers: crate::cli::fuzzing::numbers,
    environment: crate::start::fuzzing::environment,
    console_socket: crate::start::fuzzing::console_socket,
    sync_pipe: crate::start::fuzzing::sync_pipe,
    fifo_lines: crate::relay::fuzzing::fifo_lines,
    attach_input: crate::relay::fuzzing::attach_input,
    attach_output: crate::relay::fuzzing::attach_output,
    stderr_tail: crate::relay::fuzzing::stderr_tail,
    notifications: crate::notify::fuzzing::notifications,
    memory_counters: crate::oom::fuzzing::memory_counters,
    cgroups: crate::oom::fuzzing::cgroups,
    control_frames: crate::control::fuzzing::frames,
    control_calls: crate::control::fuzzing::calls,
    control_answers: crate::control::fuzzing::answers,
    log_records: crate::log::fuzzing::records,
    log_appender: crate::log::fuzzing::appender,
    log_files: crate::log::fuzzing::files,
    bundles: crate::staged::bundle::fuzzing::bundles,
    runtime_log: crate::staged::container::fuzzing::runtime_log,
    journal_entries: crate::log::fuzzing::journal_entries,
    generations_record: crate::generations::fuzzing::record,
    service_file: crate::generations::fuzzing::service_file,
    manifest: crate::staged::fuzzing::manifest,
}

/// Whether a pipe that was read has no writer. Another test that forks may have a copy of one, for a moment.
pub(crate) fn has_ended(pipe: &impl AsFd) -> bool {
    let mut ended = [PollFd::new(pipe.as_fd(), PollFlags::empty())];
    poll(&mut ended, PollTimeout::from(10_000_u16)) == Ok(1)
}
