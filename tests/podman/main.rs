//! Podman on dunnage: what its users see, with the runtimes and log drivers there are.

mod activation;
mod attach;
mod crun;
mod exec;
mod failures;
mod life;
mod limits;
mod logs;
mod notify;
mod oom;
mod run;
mod terminal;
