//! The control socket, as its clients see it.

mod execs;
mod hostile;
mod methods;
mod python;
mod real;
mod rust;
mod socket;

use std::path::PathBuf;

use dunnage_testing::{Caller, Monitor, Running, Sandbox, Script, Step, Tool};
use serde_json::{Value, json};

/// Where the sandbox's shim has its control socket.
fn socket_of(sandbox: &Sandbox) -> PathBuf {
    sandbox.root().join("control")
}

/// The shim, with a control socket.
fn shim(sandbox: &Sandbox) -> Monitor<'_> {
    sandbox.monitor(&Tool::under_test()).option("--control-socket", socket_of(sandbox))
}

/// The shim of a container that was created, and runs until it is killed.
fn running(sandbox: &Sandbox) -> Running<'_> {
    sandbox.script(&Script::new([Step::Hang]));
    let mut running = shim(sandbox).start();
    running.pid();
    running.long();
    running
}

/// A client.
fn caller(sandbox: &Sandbox) -> Caller {
    Caller::connect(&socket_of(sandbox))
}

/// The process of an exec whose payload does these steps, as the fake runtime takes it.
fn process(payload: impl Into<Vec<Step>>) -> Value {
    dunnage_testing::Wire::to_json(&Script::new(payload))
}

/// The parameters of an ExecSync.
fn exec_sync(payload: impl Into<Vec<Step>>) -> Value {
    json!({"process": process(payload)})
}
