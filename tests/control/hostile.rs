//! K2, K3: clients that do all that they should not. The container's output and end are not delayed by any.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use dunnage_testing::{Out, Running, Sandbox, Script, Step};
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::{caller, exec_sync, process, shim, socket_of};

/// A container that answers to input, and ends when told to.
struct Watched<'a> {
    sandbox: &'a Sandbox,
    monitor: Running<'a>,
    client: dunnage_testing::Client,
}

impl<'a> Watched<'a> {
    fn start(sandbox: &'a Sandbox) -> Self {
        sandbox.script(&Script::new([Step::cat(), Step::Exit(7)]));
        let mut monitor = shim(sandbox).flag("-i").start();
        monitor.pid();
        monitor.long();
        let client = monitor.attach();
        monitor.accepted(1);
        let mut watched = Self { sandbox, monitor, client };
        watched.echoes();
        watched
    }

    /// What is typed comes back at once. The bound is far above the 50 ms that are allowed, for slow machines.
    fn echoes(&mut self) {
        let before = self.client.output.stdout.len();
        let start = Instant::now();
        self.client.send(b"ping");
        self.client.receive_until(Out::Stdout, "an echo", |output| output.len() >= before + 4);
        assert!(start.elapsed() < Duration::from_secs(1), "an echo took {:?}", start.elapsed());
    }

    /// The end comes at once, as well; and until then the shim answers those who behave.
    fn ends(mut self) {
        self.echoes();
        assert_eq!(caller(self.sandbox).call("Status", &json!({}))["state"], "running");
        let start = Instant::now();
        self.client.half_close();
        assert_eq!(self.monitor.exit_code(), "7");
        assert!(start.elapsed() < Duration::from_secs(1), "the end took {:?}", start.elapsed());
        drop(self.client);
        self.monitor.end();
    }
}

#[test]
fn k2_two_mebibytes_in_one_message() {
    let sandbox = Sandbox::new();
    let mut watched = Watched::start(&sandbox);
    let mut hostile = caller(&sandbox);
    let message = vec![b'x'; 2 << 20];
    // It is closed on the way.
    let _ = hostile.send_bytes(&message);
    hostile.is_closed();
    watched.echoes();
    watched.ends();
}

#[test]
fn k2_a_message_of_the_largest_size_is_taken() {
    let sandbox = Sandbox::new();
    let watched = Watched::start(&sandbox);
    let mut caller = caller(&sandbox);
    let padding = " ".repeat((1 << 20) - 60);
    let message = format!("{{\"method\": \"org.dunnage.shim.Status\"{padding}}}\0");
    assert!(caller.send_bytes(message.as_bytes()));
    assert_eq!(caller.answer()["parameters"]["state"], "running");
    watched.ends();
}

#[test]
fn k2_garbage() {
    let sandbox = Sandbox::new();
    let mut watched = Watched::start(&sandbox);
    for garbage in [b"\0".as_slice(), b"hello\0", b"[]\0", b"{\"method\": }\0", b"\xff\xfe\0", &[0; 1000], b"{{{{\0"] {
        let mut hostile = caller(&sandbox);
        assert!(hostile.send_bytes(garbage));
        assert_eq!(hostile.next(), None, "{:?}", garbage.escape_ascii().to_string());
    }
    let deep = [b"{\"method\":".to_vec(), vec![b'['; 500_000], vec![0]].concat();
    let mut hostile = caller(&sandbox);
    let _ = hostile.send_bytes(&deep);
    hostile.is_closed();
    watched.echoes();
    // What is a call, but a wrong one, is answered.
    let mut wrong = caller(&sandbox);
    for (message, error) in [
        (json!({"method": 5}), "org.varlink.service.InvalidParameter"),
        (json!({"method": "org.dunnage.shim.Nothing"}), "org.varlink.service.MethodNotFound"),
        (json!({"method": "no.such.Thing"}), "org.varlink.service.InterfaceNotFound"),
        (json!({"method": "org.dunnage.shim.Events"}), "org.varlink.service.ExpectedMore"),
        (
            json!({"method": "org.dunnage.shim.Resize", "parameters": {"target": 1}}),
            "org.varlink.service.InvalidParameter",
        ),
        (
            json!({"method": "org.dunnage.shim.ExecSync", "parameters": {"process": "sh"}}),
            "org.varlink.service.InvalidParameter",
        ),
    ] {
        wrong.send(&message);
        assert_eq!(wrong.answer()["error"], error, "{message}");
    }
    watched.ends();
}

#[test]
fn k2_a_message_that_comes_byte_by_byte_has_ten_seconds() {
    let sandbox = Sandbox::new();
    let mut watched = Watched::start(&sandbox);
    let mut slow = caller(&sandbox);
    let start = Instant::now();
    while slow.send_bytes(b"{") {
        assert!(start.elapsed() < Duration::from_secs(20), "it is still open");
        watched.echoes();
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(start.elapsed() > Duration::from_secs(9), "it was closed after {:?}", start.elapsed());
    watched.ends();
}

#[test]
fn k2_more_than_sixteen_calls_without_waiting() {
    let sandbox = Sandbox::new();
    let watched = Watched::start(&sandbox);
    let mut eager = caller(&sandbox);
    let calls = |count: usize| b"{\"method\": \"org.dunnage.shim.Status\"}\0".repeat(count);
    assert!(eager.send_bytes(&calls(16)));
    for _ in 0..16 {
        assert_eq!(eager.answer()["parameters"]["state"], "running");
    }
    // One is being answered.
    eager.ask("ExecSync", &exec_sync([Step::Hang]));
    let _ = eager.send_bytes(&calls(17));
    assert_eq!(eager.next(), None);
    watched.ends();
}

#[test]
fn k2_clients_that_never_read_are_closed_and_slow_subscribers_miss_events() {
    let sandbox = Sandbox::new();
    let mut watched = Watched::start(&sandbox);
    let mut subscriber = caller(&sandbox);
    subscriber.ask_for_more("Events", &json!({}));
    assert_eq!(subscriber.event()["kind"], "subscribed");
    // An answer of 8 MiB is more than any socket holds.
    let mut hostile = caller(&sandbox);
    let mut asked = exec_sync([Step::Lines(Out::Stdout, 100_000, 80)]);
    asked["max_output"] = json!(8_000_000);
    hostile.ask("ExecSync", &asked);
    let start = Instant::now();
    // Events meanwhile: more than the subscriber's socket and queue hold.
    let mut busy = caller(&sandbox);
    let mut count: u64 = 0;
    while start.elapsed() < Duration::from_secs(14) {
        busy.call("ExecSync", &exec_sync([Step::Exit(0)]));
        count += 2;
        watched.echoes();
    }
    // It is closed: what it reads ends within the answer.
    hostile.stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    let mut received = Vec::new();
    std::io::Read::read_to_end(&mut hostile.stream, &mut received).expect("the end of the connection");
    assert!(!received.contains(&0), "the whole answer came");
    // Whatever it missed, the subscriber is told of, and all others are there.
    let mut told: u64 = 0;
    while told < count {
        let event = subscriber.event();
        match event["kind"].as_str() {
            Some("missed") => told += event["count"].as_u64().expect("a count"),
            _ => told += 1,
        }
    }
    watched.ends();
}

#[test]
fn k2_a_thousand_connections() {
    let sandbox = Sandbox::new();
    let mut watched = Watched::start(&sandbox);
    let mut first: Vec<Caller> = (0..64).map(|_| caller(&sandbox)).collect();
    for caller in &mut first {
        assert_eq!(caller.call("Status", &json!({}))["state"], "running");
    }
    for _ in 0..936 {
        let mut refused = UnixStream::connect(socket_of(&sandbox)).expect("a connection");
        let _ = refused.write_all(b"{\"method\": \"org.dunnage.shim.Status\"}\0");
        let mut byte = [0];
        let end = std::io::Read::read(&mut refused, &mut byte);
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    }
    watched.echoes();
    drop(first);
    watched.ends();
}

#[test]
fn k3_gone_in_the_midst_of_each_method() {
    let sandbox = Sandbox::new();
    let mut watched = Watched::start(&sandbox);
    let payload = process([Step::Sleep(20), Step::Exit(0)]);
    let calls: [(&str, Value); 9] = [
        ("Status", json!({})),
        ("ExecSync", json!({"process": payload})),
        ("ExecSync", json!({"process": payload, "cancel_on_disconnect": true})),
        ("Exec", json!({"process": payload, "terminal": false, "stdin": true})),
        ("Exec", json!({"process": payload, "terminal": true, "stdin": true})),
        ("Events", json!({})),
        ("ReopenLogs", json!({})),
        ("Signal", json!({"target": "exec-1000", "signal": "TERM"})),
        ("Resize", json!({"target": "container", "height": 1, "width": 1})),
    ];
    for (method, parameters) in &calls {
        let message = json!({"method": format!("org.dunnage.shim.{method}"), "parameters": parameters, "more": true});
        let message = [message.to_string().as_bytes(), b"\0"].concat();
        // At each of a few places within the message, and right after it.
        for end in [1, message.len() / 2, message.len() - 1, message.len()] {
            let mut leaving = caller(&sandbox);
            assert!(leaving.send_bytes(&message[..end]));
            drop(leaving);
        }
        watched.echoes();
    }
    watched.ends();
}
