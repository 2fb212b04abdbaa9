//! Ready, switch, and who speaks for the service (G15 to G19).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

use dunnage_testing::wait::{self, Deadline};
use serde_json::json;

use crate::service::{Client, Service};

#[test]
fn g15_ready_widens_and_g16_a_switch_leads_clients_on() {
    let service = Service::new();
    let shim = service.start();
    for number in [1, 2] {
        shim.stage(&service, number, &format!("b{number}"));
        Client::connect(&service.socket_of(number)).ask("who");
    }
    let mode = |number| fs::metadata(service.socket_of(number)).unwrap().permissions().mode() & 0o777;
    shim.call("Ready", &json!({"n": 1}));
    assert_eq!(mode(1), 0o660);
    shim.call("Switch", &json!({"n": 1}));
    let mut old = Client::connect(&service.canonical());
    assert_eq!(old.ask("who").0, "1");
    shim.call("Switch", &json!({"n": 2}));
    assert_eq!(mode(2), 0o660);
    assert_eq!(Client::connect(&service.canonical()).ask("who").0, "2");
    assert_eq!(old.ask("still").0, "1", "connections already open go on");
    assert_eq!(shim.status()["current"], 2);
    // Back, and the end of the other leaves the link (G18).
    shim.call("Switch", &json!({"n": 1}));
    shim.call("KillGeneration", &json!({"n": 2, "timeout_ms": 10_000}));
    assert_eq!(fs::read_link(service.canonical()).unwrap(), service.socket_of(1));
    shim.call("KillGeneration", &json!({"n": 1, "timeout_ms": 10_000}));
    assert!(fs::symlink_metadata(service.canonical()).is_err());
    assert_eq!(shim.refusal("Switch", &json!({"n": 1})).0, "NotSwitchable");
}

#[test]
fn g17_the_hook_runs_after_a_switch_with_its_environment_alone() {
    let service = Service::with(|service| {
        let script = format!("env > {0}.new && mv {0}.new {0}", service.path("told").display());
        json!({"switch_hook": {"path": "/bin/sh", "args": ["-c", script]}})
    });
    let shim = service.start();
    shim.stage(&service, 1, "b1");
    Client::connect(&service.socket_of(1)).ask("who");
    shim.call("Switch", &json!({"n": 1}));
    let text = String::from_utf8(wait::file_exists(&service.path("told"), Deadline::usual())).unwrap();
    let mut lines: Vec<&str> =
        text.lines().filter(|line| line.starts_with("DUNNAGE") || line.starts_with("HOME")).collect();
    lines.sort_unstable();
    let socket = format!("DUNNAGE_SOCKET={}", service.socket_of(1).display());
    assert_eq!(lines, ["DUNNAGE_GENERATION=1", "DUNNAGE_SERVICE=web", &socket]);
}

#[test]
fn g17_a_hook_that_hangs_delays_no_switch_and_is_killed() {
    let service =
        Service::with(|_| json!({"switch_hook": {"path": "/bin/sleep", "args": ["1000"], "timeout_ms": 100}}));
    let shim = service.start();
    shim.stage(&service, 1, "b1");
    Client::connect(&service.socket_of(1)).ask("who");
    shim.call("Switch", &json!({"n": 1}));
    assert_eq!(Client::connect(&service.canonical()).ask("who").0, "1");
    wait::eventually(Deadline::usual(), "the end of the hook", || shim.process.children().len() == 1);
}

#[test]
fn g19_only_the_current_generation_is_heard_by_the_host() {
    let service = Service::new();
    let path = service.path("host");
    let host = UnixDatagram::bind(&path).unwrap();
    let service = service.option("--sdnotify-socket", &path);
    let shim = service.start();
    let hear = || {
        wait::readable(&host, Deadline::usual(), "a notification");
        let mut bytes = [0; 4096];
        let length = host.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut events = shim.caller();
    events.ask_for_more("Events", &json!({}));
    events.event_of("subscribed");
    shim.stage(&service, 1, "b1");
    let mut first = Client::connect(&service.socket_of(1));
    first.ask("notify STATUS=one");
    assert_eq!(events.event_of("notified")["generation"]["message"], "READY=1");
    let notified = events.event_of("notified");
    assert_eq!((&notified["generation"]["n"], &notified["generation"]["message"]), (&json!(1), &json!("STATUS=one")));
    shim.call("Switch", &json!({"n": 1}));
    assert_eq!(hear(), "READY=1\nSTATUS=one");
    first.ask("notify STATUS=more");
    assert_eq!(hear(), "STATUS=more");
    shim.stage(&service, 2, "b2");
    let mut second = Client::connect(&service.socket_of(2));
    second.ask("who");
    // More than one turn of the loop takes waits when the switch is asked for.
    let mut caller = shim.caller();
    shim.process.signal(nix::libc::SIGSTOP);
    for status in ["1", "2", "3", "4", "5", "6", "7", "8", "two"] {
        second.ask(&format!("notify STATUS={status}"));
    }
    caller.ask("Switch", &json!({"n": 2}));
    shim.process.signal(nix::libc::SIGCONT);
    assert!(caller.answer()["error"].is_null());
    first.ask("notify STATUS=late");
    second.ask("notify STOPPING=1");
    assert_eq!(hear(), "READY=1\nSTATUS=two");
    assert_eq!(hear(), "STOPPING=1", "nothing of the first came between");
}
