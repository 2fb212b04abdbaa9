//! Killing, proof, moves and the end of the shim (G20 to G28, R19).

use std::fs;
use std::os::unix::net::UnixStream;

use dunnage_testing::Process;
use dunnage_testing::wait::{self, Deadline};
use nix::sys::ptrace;
use nix::unistd::Pid;
use serde_json::json;

use crate::service::{Client, Service};
use crate::stage;

#[test]
fn g20_a_kill_takes_what_it_forked_and_leaves_nothing() {
    let service = Service::new();
    service.build_with("b1", &json!({"args": ["fork", "fork", "stubborn"]}));
    let shim = service.start();
    shim.stage(&service, 1, "b1");
    Client::connect(&service.socket_of(1)).ask("fork");
    assert_eq!(service.pids_in("gen-1").len(), 4);
    let gone = shim.call("KillGeneration", &json!({"n": 1, "timeout_ms": 10_000}));
    assert_eq!(gone["outcome"], "gone");
    assert_eq!(service.pids_in("gen-1"), [0; 0]);
    assert_eq!(shim.generation(1), serde_json::Value::Null);
    wait::eventually(Deadline::usual(), "its cgroup and files to go", || {
        !service.child("gen-1").exists() && service.names_in_run().is_empty()
    });
    // Its number is known, and gone for good.
    assert_eq!(shim.call("KillGeneration", &json!({"n": 1, "timeout_ms": 100}))["outcome"], "gone");
    assert_eq!(shim.refusal("Empty", &json!({"n": 9, "timeout_ms": 100})).0, "NotFound");
}

#[test]
fn g20_the_exit_of_a_leader_says_nothing_of_what_it_forked() {
    let service = Service::new();
    service.build_with("b1", &json!({"args": ["fork"]}));
    let shim = service.start();
    let started = shim.stage(&service, 1, "b1");
    let mut events = shim.caller();
    events.ask_for_more("Events", &json!({}));
    events.event_of("subscribed");
    shim.call("Signal", &json!({"target": "gen-1", "signal": "KILL"}));
    let exited = events.event_of("exited");
    assert_eq!((&exited["target"], &exited["exit_code"]), (&json!("gen-1"), &json!(137)));
    let status = shim.generation(1);
    assert_eq!((&status["state"], &status["pid"]), (&json!("unproven"), &json!(null)), "{started}");
    assert_eq!(shim.call("Empty", &json!({"n": 1, "timeout_ms": 10_000}))["outcome"], "gone");
    assert_eq!(events.event_of("killed")["target"], "gen-1");
}

#[test]
fn g22_what_has_ended_by_itself_is_left_without_a_kill() {
    let service = Service::new();
    let shim = service.start();
    let mut events = shim.caller();
    events.ask_for_more("Events", &json!({}));
    events.event_of("subscribed");
    shim.stage(&service, 1, "b1");
    Client::connect(&service.socket_of(1)).ask("who");
    shim.call("Signal", &json!({"target": "gen-1", "signal": "TERM"}));
    assert_eq!(events.event_of("exited")["exit_code"], 0);
    assert_eq!(shim.call("Empty", &json!({"n": 1, "timeout_ms": 10_000}))["outcome"], "gone");
    shim.call("Hold", &json!({"build": "b", "reason": "the end"}));
    assert_eq!(shim.status()["generations"], json!([]));
}

#[test]
fn g20_a_leader_that_is_not_reaped_is_left_and_named() {
    let service = Service::new();
    let shim = service.start();
    let pid = shim.stage(&service, 1, "b1")["pid"].clone();
    // Who traces it learns of its end first, and does not look.
    let traced = Pid::from_raw(i32::try_from(pid.as_i64().unwrap()).unwrap());
    ptrace::seize(traced, ptrace::Options::empty()).unwrap();
    let (error, parameters) = shim.refusal("KillGeneration", &json!({"n": 1, "timeout_ms": 200}));
    assert_eq!((error.as_str(), &parameters["left"]), ("Unproven", &json!([pid])), "{parameters}");
    assert!(parameters["reason"].as_str().unwrap().contains("which was not reaped"), "{parameters}");
    let status = shim.generation(1);
    assert_eq!(status["killing"], true, "{status}");
    // What is being killed is not switched to.
    let (error, parameters) = shim.refusal("Switch", &json!({"n": 1}));
    assert_eq!(error, "NotSwitchable", "{parameters}");
    assert!(!service.canonical().exists());
    nix::sys::wait::waitpid(traced, None).unwrap();
    assert_eq!(shim.call("KillGeneration", &json!({"n": 1, "timeout_ms": 10_000}))["outcome"], "gone");
}

#[test]
fn g28_a_move_takes_all_its_processes_and_a_kill_finds_them() {
    let service = Service::new();
    service.build_with("b1", &json!({"args": ["fork"]}));
    let shim = service.start();
    shim.stage(&service, 1, "b1");
    Client::connect(&service.socket_of(1)).ask("who");
    shim.call("Move", &json!({"child": "gen-1", "cgroup": "draining"}));
    assert_eq!(service.pids_in("gen-1"), [0; 0]);
    assert_eq!(service.pids_in("draining").len(), 2);
    assert_eq!(shim.generation(1)["cgroups"], json!(["gen-1", "draining"]));
    let (error, parameters) = shim.refusal("Move", &json!({"child": "gen-1", "cgroup": "draining"}));
    assert_eq!(error, "Failed", "{parameters}");
    assert_eq!(shim.refusal("Move", &json!({"child": "gen-1", "cgroup": "gen-9"})).0, "InvalidParameter");
    shim.call("KillGeneration", &json!({"n": 1, "timeout_ms": 10_000}));
    wait::eventually(Deadline::usual(), "both cgroups to go", || {
        !service.child("gen-1").exists() && !service.child("draining").exists()
    });
}

#[test]
fn r19_a_shutdown_ends_all_and_leaves_nothing() {
    let service = Service::new();
    service.build_with("b1", &json!({"args": ["fork"]}));
    service.build_with("b2", &json!({"args": ["stubborn"]}));
    let shim = service.start();
    shim.stage(&service, 1, "b1");
    shim.stage(&service, 2, "b2");
    Client::connect(&service.socket_of(2)).ask("who");
    shim.call("Switch", &json!({"n": 2}));
    shim.call("Shutdown", &json!({"timeout_ms": 3000}));
    shim.process.wait_end(Deadline::usual(), "the shim");
    assert_eq!(service.names_in_run(), [""; 0]);
    assert!(!service.canonical().exists() && !service.path("control").exists());
    assert_eq!(
        fs::read_dir(service.child("")).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count(),
        0
    );
    // The next one starts where this one ended.
    let shim = service.start();
    assert_eq!(shim.status()["generations"], json!([]));
    assert_eq!(shim.launch("Stage", &stage(&service, 1, "b1")).unwrap_err().0, "LaunchRefused");
}

#[test]
fn r18_sigterm_lets_generations_drain() {
    let service = Service::new();
    let shim = service.start();
    let pid = shim.stage(&service, 1, "b1")["pid"].as_i64().unwrap();
    let mut client = Client::connect(&service.socket_of(1));
    client.ask("who");
    let process = Process::open(i32::try_from(pid).unwrap()).unwrap();
    shim.process.signal(nix::libc::SIGTERM);
    wait::eventually(Deadline::usual(), "nobody to listen", || UnixStream::connect(service.socket_of(1)).is_err());
    assert_eq!(client.ask("still there").1, "still there");
    drop(client);
    process.wait_end(Deadline::usual(), "the generation");
    shim.process.wait_end(Deadline::usual(), "the shim");
}
