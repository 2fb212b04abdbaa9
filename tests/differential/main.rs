//! The same script under conmon and under dunnage: what callers, containers and files see must be the same.
//!
//! Where dunnage differs on purpose, the row is in [`intended::INTENDED`], and in `docs/differences.md` with its reason.

mod attach;
mod command_line;
mod compare;
mod exec;
mod exec_attach;
mod exit;
mod inherited;
mod intended;
mod journald;
mod logs;
mod notes;
mod passthrough;
mod restore;
mod runtime;
mod sync_pipe;
mod terminal;
mod timeouts;
