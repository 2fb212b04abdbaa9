//! Starts (G3 to G10).

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::service::{Client, Service};
use crate::stage;

#[test]
fn g3_a_staged_build_runs_in_its_cgroup_on_its_socket() {
    let service = Service::new();
    let shim = service.start();
    let started = shim.stage(&service, 7, "b7");
    let pid = started["pid"].as_i64().unwrap();
    assert_eq!(started["target"], "gen-7");
    assert_eq!(started["socket"], service.socket_of(7).to_str().unwrap());
    let (generation, who) = Client::connect(&service.socket_of(7)).ask("who");
    assert_eq!((generation.as_str(), who), ("7", format!("{pid} b7")));
    assert_eq!(service.pids_in("gen-7"), [i32::try_from(pid).unwrap()]);
    let status = shim.generation(7);
    assert_eq!((&status["state"], &status["pid"], &status["build"]), (&json!("running"), &json!(pid), &json!("b7")));
}

#[test]
fn g3_a_number_is_used_once() {
    let service = Service::new();
    let shim = service.start();
    shim.stage(&service, 1, "b1");
    let (error, parameters) = shim.launch("Stage", &stage(&service, 1, "b1")).unwrap_err();
    assert_eq!(
        (error.as_str(), &parameters["reason"]),
        ("LaunchRefused", &json!("the number of generation 1 is used up"))
    );
}

#[test]
fn g4_a_link_and_a_script_are_refused_and_a_digest_is_checked() {
    let service = Service::new();
    let shim = service.start();
    let refused = |parameters: serde_json::Value| {
        let (error, parameters) = shim.launch("Stage", &parameters).unwrap_err();
        assert_eq!(error, "LaunchRefused", "{parameters}");
        parameters["reason"].as_str().unwrap().to_owned()
    };
    let link = service.path("builds/link");
    symlink(service.build("b1"), &link).unwrap();
    let reason = refused(json!({"n": 1, "build": "b1", "staged_path": link}));
    assert!(reason.ends_with("it is a symlink"), "{reason}");
    let script = service.path("builds/script");
    fs::copy(service.build("b1"), &script).unwrap();
    fs::write(&script, "#!/bin/sh\n").unwrap();
    let reason = refused(json!({"n": 1, "build": "b1", "staged_path": script}));
    assert!(reason.contains("it is a script"), "{reason}");
    let digest = format!("sha256:{}", "0".repeat(64));
    let reason = refused(json!({"n": 1, "build": "b1", "staged_path": service.build("b1"), "digest": digest}));
    let actual = reason.split("its digest is ").nth(1).unwrap().split(',').next().unwrap().to_owned();
    // None of these has used the number up.
    let mut parameters = stage(&service, 1, "b1");
    parameters["digest"] = json!(actual);
    let started = shim.launch("Stage", &parameters).unwrap();
    assert_eq!(started["started"]["digest"], actual);
    Client::connect(&service.socket_of(1)).ask("who");
    assert_eq!(service.names_in_run().len(), 4, "{:?}", service.names_in_run());
}
