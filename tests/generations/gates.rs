//! Gates, holds, and what a refusal leaves (G3, G6, G30, G31).

use std::os::unix::fs::symlink;

use dunnage_testing::Caller;
use dunnage_testing::wait::{self, Deadline};
use serde_json::{Value, json};

use crate::service::{Client, Service, Shim, outcome};
use crate::stage;

/// A start with a gate, up to its first question.
fn gated(shim: &Shim, method: &str, mut parameters: Value) -> (Caller, Value) {
    parameters["gate"] = json!(true);
    if parameters["gate_timeout_ms"].is_null() {
        // Longer than anything is waited for.
        parameters["gate_timeout_ms"] = json!(600_000);
    }
    let mut caller = shim.caller();
    caller.ask_for_more(method, &parameters);
    let gate = caller.answer();
    assert_eq!(gate["parameters"]["gate"]["point"], "prepared", "{gate}");
    (caller, gate["parameters"]["gate"]["token"].clone())
}

fn proceed(shim: &Shim, token: &Value) {
    shim.call("AnswerGate", &json!({"token": token, "proceed": true}));
}

/// Goes on to the second question.
fn at_second(shim: &Shim, caller: &mut Caller, token: &Value) -> Value {
    proceed(shim, token);
    assert_eq!(caller.answer()["parameters"]["recorded"]["n"], 1);
    let gate = caller.answer();
    assert_eq!(gate["parameters"]["gate"]["point"], "recorded", "{gate}");
    gate["parameters"]["gate"]["token"].clone()
}

fn nothing_is_left(service: &Service) {
    wait::eventually(Deadline::usual(), "the start to be undone", || {
        service.names_in_run().is_empty() && !service.child("gen-1").exists()
    });
}

#[test]
fn g6_both_questions_are_asked_and_then_it_runs() {
    let service = Service::new();
    let shim = service.start();
    let (mut caller, token) = gated(&shim, "Stage", stage(&service, 1, "b1"));
    assert_eq!(service.pids_in("gen-1"), [0; 0]);
    let token = at_second(&shim, &mut caller, &token);
    assert_eq!(service.pids_in("gen-1"), [0; 0]);
    proceed(&shim, &token);
    let started = outcome(&caller.answer()).unwrap();
    assert_eq!(started["started"]["n"], 1);
    assert_eq!(Client::connect(&service.socket_of(1)).ask("hello").1, "hello");
    // It was answered, and is asked no more.
    assert_eq!(shim.refusal("AnswerGate", &json!({"token": token, "proceed": true})).0, "NotFound");
}

#[test]
fn g6_a_refusal_gives_the_callers_reason_back_and_leaves_nothing() {
    let service = Service::new();
    let shim = service.start();
    let refuse = |token: &Value| {
        shim.call("AnswerGate", &json!({"token": token, "proceed": false, "reason": "the lease: \"lost\""}));
    };
    // Before the record the number stays free, after it is used up.
    for second in [false, true] {
        let (mut caller, mut token) = gated(&shim, "Stage", stage(&service, 1, "b1"));
        if second {
            token = at_second(&shim, &mut caller, &token);
        }
        refuse(&token);
        let (error, parameters) = outcome(&caller.answer()).unwrap_err();
        assert_eq!((error.as_str(), &parameters["reason"]), ("LaunchRefused", &json!("the lease: \"lost\"")));
        nothing_is_left(&service);
    }
    assert_eq!(shim.status()["refused"], json!([1]));
    let (error, parameters) = shim.launch("Stage", &stage(&service, 1, "b1")).unwrap_err();
    assert_eq!(error, "LaunchRefused", "{parameters}");
}

#[test]
fn g6_a_caller_that_leaves_at_either_question_has_started_nothing() {
    let service = Service::new();
    let shim = service.start();
    for second in [false, true] {
        let (mut caller, token) = gated(&shim, "Stage", stage(&service, 1, "b1"));
        if second {
            at_second(&shim, &mut caller, &token);
        }
        drop(caller);
        nothing_is_left(&service);
    }
    wait::eventually(Deadline::usual(), "the refusal", || shim.status()["refused"] == json!([1]));
}

#[test]
fn g6_silence_shuts_the_gate_and_so_does_an_answer_on_the_starts_own_connection() {
    let service = Service::new();
    let shim = service.start();
    let mut parameters = stage(&service, 1, "b1");
    parameters["gate_timeout_ms"] = json!(50);
    let (mut caller, _) = gated(&shim, "Stage", parameters);
    assert_eq!(outcome(&caller.answer()).unwrap_err().0, "LaunchRefused");
    let (mut caller, token) = gated(&shim, "Stage", stage(&service, 1, "b1"));
    caller.ask("AnswerGate", &json!({"token": token, "proceed": true}));
    assert_eq!(outcome(&caller.answer()).unwrap_err().0, "LaunchRefused");
    assert_eq!(outcome(&caller.answer()).unwrap_err().0, "NotFound", "the answer came too late");
    nothing_is_left(&service);
}

#[test]
fn g20_a_kill_while_a_start_waits_for_its_gate_ends_the_start() {
    let service = Service::new();
    let shim = service.start();
    for second in [false, true] {
        let (mut caller, token) = gated(&shim, "Stage", stage(&service, 1, "b1"));
        if second {
            at_second(&shim, &mut caller, &token);
        }
        assert_eq!(shim.call("KillGeneration", &json!({"n": 1, "timeout_ms": 10_000}))["outcome"], "gone");
        assert_eq!(outcome(&caller.answer()).unwrap_err().0, "LaunchRefused");
        nothing_is_left(&service);
        assert_eq!(shim.refusal("AnswerGate", &json!({"token": token, "proceed": true})).0, "NotFound");
    }
}

#[test]
fn g3_a_second_start_of_a_number_is_busy_while_the_first_is_in_progress() {
    let service = Service::new();
    let shim = service.start();
    let (mut caller, token) = gated(&shim, "Stage", stage(&service, 1, "b1"));
    assert_eq!(shim.launch("Stage", &stage(&service, 1, "b1")).unwrap_err().0, "Busy");
    let token = at_second(&shim, &mut caller, &token);
    proceed(&shim, &token);
    assert!(outcome(&caller.answer()).is_ok());
}

#[test]
fn g30_a_cold_start_runs_what_the_live_link_leads_to_and_g31_a_hold_keeps_it_back() {
    let service = Service::with(|service| json!({"live_link": service.path("live")}));
    symlink(service.build("b1"), service.path("live")).unwrap();
    let shim = service.start();
    let (mut caller, token) = gated(&shim, "Start", json!({"n": 1}));
    // A hold also counts after the gate was asked.
    shim.call("Hold", &json!({"build": "b1", "reason": "it leaks"}));
    proceed(&shim, &token);
    let (error, parameters) = outcome(&caller.answer()).unwrap_err();
    assert_eq!((error.as_str(), &parameters["reason"]), ("LaunchRefused", &json!("build b1 is held: it leaks")));
    // It survives the shim, and concerns no staged start.
    shim.kill();
    let shim = service.start();
    assert_eq!(shim.launch("Start", &json!({"n": 1})).unwrap_err().0, "LaunchRefused");
    shim.stage(&service, 2, "b1");
    shim.call("Release", &json!({"build": "b1"}));
    let (error, parameters) = shim.launch("Start", &json!({"n": 1, "build": "b2"})).unwrap_err();
    let reason = json!("the live link leads to build b1, not to b2");
    assert_eq!((error.as_str(), &parameters["reason"]), ("LaunchRefused", &reason));
    let started = shim.launch("Start", &json!({"n": 1})).unwrap();
    assert_eq!(
        (&started["started"]["build"], &started["started"]["path"]),
        (&json!("b1"), &json!(service.build("b1")))
    );
}
