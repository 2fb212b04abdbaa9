//! Podman on dunnage: what its users see, with the runtimes and log drivers there are.

mod attach;
mod crun;
mod exec;
mod failures;
mod life;
mod logs;
mod notify;
mod oom;
mod run;
mod terminal;
