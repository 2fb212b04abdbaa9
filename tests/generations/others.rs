//! Sidecars, workers, outputs, and other layouts (G2, G10, G24, G26, G27, G29, G32).

use dunnage_testing::wait::{self, Deadline};
use serde_json::json;

use crate::service::{Client, Service};
use crate::stage;

#[test]
fn g26_a_sidecar_runs_from_its_generations_path_and_g27_is_started_again() {
    let service = Service::with(|_| json!({"sidecar": {"args": ["idle"]}}));
    let shim = service.start();
    shim.stage(&service, 1, "b1");
    let pid = shim.call("StartSidecar", &json!({"n": 1}))["pid"].clone();
    assert_eq!(service.pids_in("role-sidecar"), [i32::try_from(pid.as_i64().unwrap()).unwrap()]);
    assert_eq!(shim.refusal("StartSidecar", &json!({"n": 1})).0, "Busy");
    shim.call("Signal", &json!({"target": "sidecar", "signal": "KILL"}));
    wait::eventually(Deadline::usual(), "another one", || {
        let sidecar = shim.status()["sidecar"].clone();
        sidecar["restarts"] == 1 && !sidecar["pid"].is_null() && sidecar["pid"] != pid
    });
    assert_eq!(shim.call("KillSidecar", &json!({"timeout_ms": 10_000}))["outcome"], "gone");
    assert_eq!(service.pids_in("role-sidecar"), [0; 0]);
    assert_eq!(shim.status()["sidecar"], json!(null));
    // It ends with its generation.
    shim.call("StartSidecar", &json!({"n": 1}));
    shim.call("KillGeneration", &json!({"n": 1, "timeout_ms": 10_000}));
    wait::eventually(Deadline::usual(), "its end", || shim.status()["sidecar"].is_null());
    assert_eq!(service.pids_in("role-sidecar"), [0; 0]);
}

#[test]
fn g32_one_worker_at_a_time_in_its_cgroup() {
    let service = Service::new();
    service.build_with("w1", &json!({"args": ["idle", "fork"]}));
    let shim = service.start();
    let start =
        |replace: bool| shim.launch("StartWorker", &json!({"staged_path": service.build("w1"), "replace": replace}));
    let first = start(false).unwrap()["started"].clone();
    assert_eq!((&first["target"], &first["build"]), (&json!("worker"), &json!("w1")));
    assert_eq!(start(false).unwrap_err().0, "Busy");
    let second = start(true).unwrap()["started"].clone();
    assert_ne!(first["pid"], second["pid"]);
    let pids = service.pids_in("host");
    assert!(!pids.contains(&i32::try_from(first["pid"].as_i64().unwrap()).unwrap()), "{pids:?}");
    assert_eq!(shim.status()["worker"]["pid"], second["pid"]);
    assert_eq!(shim.call("EmptyHost", &json!({"timeout_ms": 10_000}))["outcome"], "gone");
    assert_eq!(service.pids_in("host"), [0; 0]);
    assert_eq!(shim.call("KillHost", &json!({"timeout_ms": 10_000}))["outcome"], "gone");
}

#[test]
fn g29_lines_of_two_generations_are_not_mixed() {
    let service = Service::new();
    let shim = service.start();
    let mut clients = [1, 2].map(|number| {
        shim.stage(&service, number, "b1");
        Client::connect(&service.socket_of(number))
    });
    clients[0].ask("say half");
    service.await_log("half");
    clients[1].ask("say whole\\n");
    service.await_log("whole\n");
    clients[0].ask("say the rest\\n");
    service.await_log("the rest\n");
    assert_eq!(service.log(), "half\n\nwhole\nthe rest\n");
}

#[test]
fn g10_a_process_gets_what_it_is_promised_and_no_more() {
    let service = Service::new();
    service.build_with("b1", &json!({"env": ["A=1"], "args": ["say=hello\\n"]}));
    let shim = service.start();
    shim.stage(&service, 3, "b1");
    let (_, environment) = Client::connect(&service.socket_of(3)).ask("env");
    let mut variables: Vec<&str> = environment.split(' ').collect();
    variables.sort_unstable();
    let socket = service.socket_of(3).display().to_string();
    assert_eq!(
        variables,
        [
            "A=1",
            "DUNNAGE_BUILD=b1",
            "DUNNAGE_GENERATION=3",
            &format!("DUNNAGE_SOCKET={socket}"),
            &format!("NOTIFY_SOCKET={socket}.control"),
        ]
    );
    service.await_log("hello\n");
}

#[test]
fn g2_paths_are_told_and_nothing_is_made() {
    let service = Service::new();
    let shim = service.start();
    let paths = shim.call("Paths", &json!({"n": 5}));
    assert_eq!(paths["socket"], service.socket_of(5).to_str().unwrap());
    assert_eq!(shim.call("Layout", &json!({}))["layout"], "flat");
    assert_eq!(service.names_in_run(), [""; 0]);
}

#[test]
fn in_the_foreign_layout_one_runs_at_a_time_on_the_canonical_socket() {
    let service = Service::with(|_| json!({"layout": "foreign"}));
    let shim = service.start();
    shim.stage(&service, 1, "b1");
    assert_eq!(Client::connect(&service.canonical()).ask("who").0, "1");
    assert_eq!(shim.launch("Stage", &stage(&service, 2, "b1")).unwrap_err().0, "Busy");
    assert_eq!(shim.refusal("Switch", &json!({"n": 1})).0, "NotSwitchable");
    assert_eq!(shim.call("Paths", &json!({"n": 1}))["socket"], json!(null));
    shim.call("KillGeneration", &json!({"n": 1, "timeout_ms": 10_000}));
    shim.stage(&service, 2, "b1");
    assert_eq!(Client::connect(&service.canonical()).ask("who").0, "2");
}

#[test]
fn in_the_fenced_layout_nothing_is_started_for_the_reason_and_g24_workers_are_emptied() {
    let service = Service::with(|_| json!({"layout": "fenced", "reason": "the disk is read-only"}));
    let shim = service.start();
    let (error, parameters) = shim.launch("Stage", &stage(&service, 1, "b1")).unwrap_err();
    assert_eq!((error.as_str(), &parameters["reason"]), ("LaunchRefused", &json!("the disk is read-only")));
    assert_eq!(shim.call("EmptyHost", &json!({"timeout_ms": 1000}))["outcome"], "gone");
    let (error, parameters) = shim.refusal("KillSidecar", &json!({"timeout_ms": 1000}));
    assert_eq!((error.as_str(), &parameters["reason"]), ("NotSwitchable", &json!("the disk is read-only")));
}

#[test]
fn in_the_unit_layout_nothing_is_the_shims() {
    let service = Service::with(|_| json!({"layout": "unit"}));
    let shim = service.start();
    assert_eq!(shim.launch("Stage", &stage(&service, 1, "b1")).unwrap_err().0, "NotSwitchable");
    assert_eq!(shim.call("KillGeneration", &json!({"n": 1, "timeout_ms": 1000}))["outcome"], "not_ours");
    assert_eq!(shim.refusal("ExecSync", &json!({"process": {}})).0, "NotSwitchable");
}

#[test]
fn g11_the_parents_limits_need_their_controllers() {
    if crate::limits::are_possible_here() {
        return;
    }
    let service = Service::new();
    let shim = service.start();
    shim.call("RaiseParent", &json!({"incumbent": {}, "successor": {}}));
    assert_eq!(shim.status()["parent"]["memory_max"], "max");
    let limited = json!({"pids_max": "100"});
    let raised = shim.refusal("RaiseParent", &json!({"incumbent": limited, "successor": limited}));
    let (error, parameters) = raised;
    assert_eq!(error, "Failed");
    assert!(parameters["reason"].as_str().unwrap().contains("pids"), "{parameters}");
    let mut parameters = stage(&service, 1, "b1");
    parameters["tier"] = limited;
    let (error, parameters) = shim.launch("Stage", &parameters).unwrap_err();
    assert_eq!(error, "LaunchRefused");
    assert!(parameters["reason"].as_str().unwrap().contains("controllers that"), "{parameters}");
}
