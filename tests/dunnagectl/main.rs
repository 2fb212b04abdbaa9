//! `dunnagectl`, on real processes.

mod exec;
mod fake;
mod find;
mod generations;
mod logs;
mod look;
mod podman;
mod tell;
mod terminal;
mod tmux;

use std::fs;

use dunnage_testing::{Dunnagectl, Monitor, Running, Sandbox, Script, Step, Tool, Wire};
use serde_json::{Value, json};

/// The shim, with a control socket where dunnagectl looks.
fn shim(sandbox: &Sandbox) -> Monitor<'_> {
    sandbox.monitor(&Tool::under_test()).control_dir()
}

/// The shim of a container that was created, and runs until it is killed.
fn running(sandbox: &Sandbox) -> Running<'_> {
    sandbox.script(&Script::new([Step::Hang]));
    let mut running = shim(sandbox).start();
    running.pid();
    running.long();
    running
}

fn ctl(sandbox: &Sandbox) -> Dunnagectl<'_> {
    Dunnagectl::new(sandbox)
}

/// What execs do from now on: the fake runtime finds its script in the process, which is made after the bundle's.
fn execs_do(sandbox: &Sandbox, script: &Script) {
    let config = json!({"process": script.to_json()});
    fs::write(sandbox.bundle().join("config.json"), config.to_string()).expect("a configuration");
}

/// The absolute name of an event: an exec's own directory is another than the bundle.
fn event(sandbox: &Sandbox, name: &str) -> String {
    sandbox.bundle().join(name).to_string_lossy().into_owned()
}

/// The lines of an output, each JSON.
fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// What the monitor itself says of the container.
fn status(sandbox: &Sandbox) -> Value {
    json_lines(&ctl(sandbox).run(&["status", "--json", sandbox.id()]).ok()).remove(0)
}
