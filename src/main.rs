//! dunnage: a container monitor for Podman and CRI-O.
#![forbid(unsafe_code)]

mod cli;
mod log;
mod relay;
mod source;
mod stream;

fn main() {}
