//! The record, and a shim that is started anew (G29).

use std::fs;

use dunnage_testing::wait::{self, Deadline};
use serde_json::json;

use crate::service::{Client, Service};

#[test]
fn g29_a_second_shim_on_the_record_is_refused() {
    let service = Service::new();
    let shim = service.start();
    let refused = service.try_start();
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("another process serves from this record"), "{text}");
    shim.call("Status", &json!({}));
}

#[test]
fn g29_a_record_that_is_not_understood_keeps_the_shim_from_starting() {
    let service = Service::new();
    service.start().kill();
    fs::write(service.path("state/generations.json"), "{}").unwrap();
    let refused = service.try_start();
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("cannot use the record") && text.contains("\"version\" is missing"), "{text}");
}

#[test]
fn g29_what_runs_outlives_its_shim_and_is_known_to_the_next() {
    let service = Service::new();
    let shim = service.start();
    let pid = shim.stage(&service, 1, "b1")["pid"].clone();
    let mut client = Client::connect(&service.socket_of(1));
    client.ask("say one\\n");
    service.await_log("one\n");
    shim.call("Switch", &json!({"n": 1}));
    shim.kill();
    // It writes and serves without one.
    client.ask("say two\\n");
    let shim = service.start();
    let status = shim.generation(1);
    assert_eq!(
        (&status["state"], &status["pid"], &status["current"]),
        (&json!("running"), &pid, &json!(true)),
        "{status}"
    );
    assert_eq!(status["ready"], true);
    client.ask("say three\\n");
    service.await_log("one\ntwo\nthree\n");
    // What it notifies arrives at a socket of the same name.
    client.ask("notify STATUS=well");
    wait::eventually(Deadline::usual(), "its status", || shim.generation(1)["status"] == "well");
    // Its end is seen, though it is no child of this one's.
    let mut events = shim.caller();
    events.ask_for_more("Events", &json!({}));
    events.event_of("subscribed");
    client.leave("exit 3");
    assert_eq!(events.event_of("exited")["target"], "gen-1");
    assert_eq!(shim.call("Empty", &json!({"n": 1, "timeout_ms": 10_000}))["outcome"], "gone");
    assert_eq!(service.names_in_run(), [""; 0]);
    assert!(!service.canonical().exists());
}

#[test]
fn g29_what_ended_while_no_shim_lived_is_found_gone_or_unproven() {
    let service = Service::new();
    service.build_with("b2", &json!({"args": ["fork"]}));
    let shim = service.start();
    shim.stage(&service, 1, "b1");
    shim.stage(&service, 2, "b2");
    let mut clients = [1, 2].map(|number| Client::connect(&service.socket_of(number)));
    shim.kill();
    for client in &mut clients {
        client.ask("say last words\\n");
        client.leave("exit 0");
    }
    wait::eventually(Deadline::usual(), "the leaders to end", || {
        service.pids_in("gen-1").is_empty() && service.pids_in("gen-2").len() == 1
    });
    let shim = service.start();
    // The first is empty, and retired; of the second something is left.
    assert_eq!(shim.generation(1), json!(null));
    assert_eq!(shim.generation(2)["state"], "unproven");
    shim.call("KillGeneration", &json!({"n": 2, "timeout_ms": 10_000}));
    assert_eq!(service.pids_in("gen-2"), [0; 0]);
}

#[test]
fn g29_a_shim_killed_at_any_point_of_a_start_leaves_a_record_that_tells_the_truth() {
    let service = Service::new();
    // Each number once, with the shim killed after so many answers.
    for (number, answers) in (1..).zip(0..4) {
        let shim = service.start();
        let mut parameters = crate::stage(&service, number, "b1");
        parameters["gate"] = json!(true);
        let mut caller = shim.caller();
        caller.ask_for_more("Stage", &parameters);
        for _ in 0..answers {
            let answer = caller.answer();
            assert!(answer["error"].is_null(), "{answer}");
            if let Some(token) = answer["parameters"]["gate"]["token"].as_str() {
                shim.call("AnswerGate", &json!({"token": token, "proceed": true}));
            }
        }
        shim.kill();
        let shim = service.start();
        let child = format!("gen-{number}");
        let runs = !service.pids_in(&child).is_empty();
        let known = shim.generation(number);
        assert_eq!(runs, !known.is_null(), "{answers} answers: {known}");
        // Whatever it is, it can be ended, and its number is then used up if it was recorded.
        let ended = shim.caller();
        drop(ended);
        if runs {
            shim.call("KillGeneration", &json!({"n": number, "timeout_ms": 10_000}));
        }
        assert_eq!(service.pids_in(&child), [0; 0]);
        shim.kill();
    }
}
