//! Limits (G9, G11 to G14), which need controllers: in a small virtual machine with cgroup v2 alone (Linux 6.1), where all
//! of these tests run once more.

use std::fs;
use std::path::Path;

use dunnage_testing::{Tool, vm, wait};
use serde_json::{Value, json};

use crate::service::{Client, Service};
use crate::stage;

/// Whether controllers are cgroup v2's on this machine.
pub(crate) fn are_possible_here() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

#[test]
fn in_a_virtual_machine() {
    if are_possible_here() {
        // This is the machine.
        return;
    }
    // Nothing can be built there.
    Tool::generation_server();
    Tool::web_server();
    // Those of nested services have a machine of their own.
    let args = ["--include-ignored", "--skip=nested::", "--test-threads=2"];
    let stdout = vm::run_own_tests(&[(wait::SLOWNESS, "4")], &args);
    assert!(stdout.contains(" 0 ignored; "), "{stdout}");
}

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn tier(memory: u64, pids: u64) -> Value {
    json!({"memory_max": memory.to_string(), "pids_max": pids.to_string()})
}

/// A service whose cgroup has controllers.
fn limited() -> Service {
    limited_with(json!({}))
}

/// The same, and its service file says this as well.
pub(crate) fn limited_with(more: Value) -> Service {
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory +pids +cpu").unwrap();
    Service::with(|_| more)
}

pub(crate) fn limit(cgroup: impl AsRef<Path>, file: &str) -> String {
    fs::read_to_string(cgroup.as_ref().join(file)).unwrap().trim_end().to_owned()
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g9_a_tier_is_the_callers_or_the_builds_and_g5_is_there_from_the_start() {
    let service = limited();
    service.build_with("b1", &json!({"tier": tier(64 * MIB, 50)}));
    let shim = service.start();
    let mut own = stage(&service, 2, "b1");
    own["tier"] = json!({"cpu_max": "50000 100000", "cpu_weight": "7", "pids_max": "9"});
    shim.stage(&service, 1, "b1");
    let started = shim.launch("Stage", &own).unwrap()["started"].clone();
    assert_eq!((&started["tier"]["cpu_weight"], &started["tier"]["memory_max"]), (&json!("7"), &json!("max")));
    for (child, file, value) in [
        ("gen-1", "memory.max", "67108864"),
        ("gen-1", "pids.max", "50"),
        ("gen-2", "cpu.max", "50000 100000"),
        ("gen-2", "cpu.weight", "7"),
        ("gen-2", "pids.max", "9"),
    ] {
        assert_eq!(limit(service.child(child), file), value, "{child} {file}");
    }
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g11_the_parent_gets_both_and_g12_is_restored_once_one_is_gone() {
    let service = limited();
    let shim = service.start();
    let start = |number| {
        let mut parameters = stage(&service, number, "b1");
        parameters["tier"] = tier(64 * MIB, 50 * number);
        shim.launch("Stage", &parameters).unwrap();
        Client::connect(&service.socket_of(number)).ask("who");
    };
    start(1);
    shim.call("RaiseParent", &json!({"incumbent": tier(64 * MIB, 50), "successor": tier(64 * MIB, 100)}));
    assert_eq!(limit(service.child(""), "memory.max"), (128 * MIB).to_string());
    assert_eq!(limit(service.child(""), "pids.max"), "150");
    start(2);
    assert_eq!(shim.refusal("RestoreParent", &json!({"n": 2})).0, "Busy");
    shim.call("KillGeneration", &json!({"n": 1, "timeout_ms": 10_000}));
    shim.call("RestoreParent", &json!({"n": 2}));
    assert_eq!(limit(service.child(""), "memory.max"), (64 * MIB).to_string());
    assert_eq!(limit(service.child(""), "pids.max"), "100");
    assert_eq!(shim.status()["parent"]["pids_max"], "100");
    // What the files say is what a shim started anew believes.
    shim.kill();
    fs::write(service.child("").join("pids.max"), "77").unwrap();
    let shim = service.start();
    assert_eq!(shim.status()["parent"]["pids_max"], "77");
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g20_a_fork_bomb_is_held_by_its_limit_and_killed() {
    let service = limited();
    // By this name it takes its first argument for what it is to be.
    fs::copy("/bin/busybox", service.path("builds").join("busybox")).unwrap();
    let bomb = "bomb() { bomb | bomb & }; while :; do bomb; done";
    service.build_with("busybox", &json!({"args": ["sh", "-c", bomb], "tier": tier(256 * MIB, 64)}));
    let shim = service.start();
    shim.stage(&service, 1, "busybox");
    let child = service.child("gen-1");
    wait::eventually(wait::Deadline::usual(), "the limit to be reached", || limit(&child, "pids.events") != "max 0");
    assert_eq!(shim.call("KillGeneration", &json!({"n": 1, "timeout_ms": 30_000}))["outcome"], "gone");
    assert_eq!(service.pids_in("gen-1"), [0; 0]);
    wait::eventually(wait::Deadline::usual(), "its cgroup to go", || !child.exists());
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g12_lowering_never_kills_and_the_error_gives_both_numbers() {
    let service = limited();
    let left = service.path("left");
    service.build_with("b1", &json!({"args": [format!("fill={}", left.display())]}));
    let shim = service.start();
    shim.stage(&service, 1, "b1");
    Client::connect(&service.socket_of(1)).ask("who");
    shim.call("RaiseParent", &json!({"incumbent": tier(256 * MIB, 50), "successor": tier(16 * MIB, 50)}));
    // What it has written to a tmpfs stays charged to the parent.
    shim.call("KillGeneration", &json!({"n": 1, "timeout_ms": 10_000}));
    let mut parameters = stage(&service, 2, "b2");
    parameters["tier"] = tier(16 * MIB, 60);
    shim.launch("Stage", &parameters).unwrap();
    Client::connect(&service.socket_of(2)).ask("who");
    let (error, parameters) = shim.refusal("RestoreParent", &json!({"n": 2}));
    let reason = parameters["reason"].as_str().unwrap();
    assert_eq!(error, "Failed", "{reason}");
    assert!(reason.contains(&(16 * MIB).to_string()), "{reason}");
    assert_eq!(limit(service.child(""), "memory.max"), (272 * MIB).to_string());
    assert_eq!(limit(service.child(""), "pids.max"), "60", "the others are written");
    assert_eq!(Client::connect(&service.socket_of(2)).ask("who").0, "2", "nobody was killed");
    fs::remove_file(left).unwrap();
    shim.call("RestoreParent", &json!({"n": 2}));
    assert_eq!(limit(service.child(""), "memory.max"), (16 * MIB).to_string());
}
