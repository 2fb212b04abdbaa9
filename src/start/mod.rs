//! From the caller's process to the shim that stays: pipes from the environment, the double fork, the runtime's start.

mod console;
mod detach;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod listen_pid;
mod oom_score;
mod pipes;
mod runtime_args;
mod sync_pipe;

pub(crate) use console::{Console, Handover};
pub(crate) use detach::{GoAhead, Side, detach, let_go_of_stdio};
pub(crate) use listen_pid::passes_to_runtime;
pub(crate) use oom_score::OomScore;
pub(crate) use pipes::{CallerPipes, StartPipe};
pub(crate) use runtime_args::{exec_args, runtime_args};
pub(crate) use sync_pipe::{AttachPipe, Dialect, SyncPipe};
