//! The same script under conmon and under dunnage: what callers, containers and files see must be the same.
//!
//! Where dunnage differs on purpose, the row is in [`compare::INTENDED`], and in `docs/differences.md` with its reason.

mod attach;
mod command_line;
mod compare;
mod exit;
mod journald;
mod logs;
mod passthrough;
mod runtime;
mod sync_pipe;
mod terminal;
