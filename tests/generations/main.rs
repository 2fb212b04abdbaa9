//! Generations on real processes: a shim for a service, its control socket, and a server as the staged build. As root, on
//! the cgroup2 mount of the machine, below a cgroup of each test's own.

#![allow(clippy::unwrap_used, reason = "what tests share is test code as well")]

mod deploy;
mod example;
mod gates;
mod killing;
mod limits;
mod load;
mod nested;
mod others;
mod races;
mod restarts;
mod service;
mod starts;
mod switches;

use serde_json::{Value, json};

use service::Service;

/// The parameters of a Stage.
fn stage(service: &Service, number: u64, build: &str) -> Value {
    json!({"n": number, "build": build, "staged_path": service.build(build)})
}
