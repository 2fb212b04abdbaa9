//! K2, K3: clients that do all that they should not. The container's output and end are not delayed by any.

use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Out, Running, Sandbox, Script, Step};
use nix::poll::PollFlags;
use serde_json::{Value, json};

use crate::{caller, exec_sync, process, shim, socket_of};
use dunnage_testing::Caller;

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

    /// Echoes until a client hears something. How long the shim ran at most until it came to one: what else the machine
    /// does is not its fault.
    fn longest_pause_until(&mut self, client: &Caller) -> Duration {
        let mut longest = Duration::ZERO;
        let deadline = Deadline::usual();
        while !wait::poll_for(client.stream.as_fd(), PollFlags::POLLIN, Deadline::after(Duration::ZERO)) {
            assert!(!deadline.passed(), "the client hears nothing");
            let before = self.time_on_cpu();
            self.echoes();
            longest = longest.max(self.time_on_cpu().saturating_sub(before));
        }
        longest
    }

    /// How long the shim ran so far.
    fn time_on_cpu(&self) -> Duration {
        let text = fs::read_to_string(self.monitor.long().proc_dir().join("schedstat")).expect("the time it ran");
        Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("a number"))
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
        assert_eq!(hostile.message(), None, "{:?}", garbage.escape_ascii().to_string());
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
    // One byte, and then nothing for longer than anybody waits.
    let mut silent = caller(&sandbox);
    assert!(silent.send_bytes(b"{"));
    let start = Instant::now();
    while slow.send_bytes(b"{") {
        assert!(start.elapsed() < Duration::from_secs(20), "it is still open");
        watched.echoes();
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(start.elapsed() > Duration::from_secs(9), "it was closed after {:?}", start.elapsed());
    assert_eq!(silent.message(), None);
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
    assert_eq!(eager.message(), None);
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
    let calls: [(&str, Value); 11] = [
        ("Status", json!({})),
        ("ExecSync", json!({"process": payload})),
        ("ExecSync", json!({"process": payload, "cancel_on_disconnect": true})),
        ("Exec", json!({"process": payload, "terminal": false, "stdin": true})),
        ("Exec", json!({"process": payload, "terminal": true, "stdin": true})),
        ("Events", json!({})),
        ("ReopenLogs", json!({})),
        ("Signal", json!({"target": "exec-1000", "signal": "TERM"})),
        // To all processes of the container: its caller is gone before it was sent.
        ("Signal", json!({"target": "container", "signal": "CONT", "all": true})),
        ("CloseStdin", json!({"target": "exec-1000"})),
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

#[test]
fn k3_gone_in_the_midst_of_varlinks_own_methods() {
    let sandbox = Sandbox::new();
    let mut watched = Watched::start(&sandbox);
    for call in [
        json!({"method": "org.varlink.service.GetInfo"}),
        json!({"method": "org.varlink.service.GetInterfaceDescription", "parameters": {"interface": "org.dunnage.shim"}}),
    ] {
        let message = [call.to_string().as_bytes(), b"\0"].concat();
        for end in [1, message.len() / 2, message.len() - 1, message.len()] {
            let mut leaving = caller(&sandbox);
            assert!(leaving.send_bytes(&message[..end]));
        }
    }
    watched.echoes();
    watched.ends();
}

#[test]
fn k3_gone_in_the_midst_of_a_shutdown() {
    let sandbox = Sandbox::with(&Script::new([Step::Block(15), Step::fire("ready"), Step::Hang]));
    let ready = sandbox.event("ready");
    let mut monitor = shim(&sandbox).start();
    monitor.pid();
    ready.wait();
    let parameters = json!({"timeout_ms": 2500});
    let message = json!({"method": "org.dunnage.shim.Shutdown", "parameters": parameters}).to_string();
    let message = [message.as_bytes(), b"\0"].concat();
    for end in [1, message.len() / 2, message.len() - 1] {
        assert!(caller(&sandbox).send_bytes(&message[..end]));
    }
    // What did not arrive whole was not asked for.
    assert_eq!(caller(&sandbox).call("Status", &json!({}))["shutting_down"], false);
    assert!(caller(&sandbox).send_bytes(&message));
    // What did is done, whoever is there to hear of it.
    let start = Instant::now();
    assert_eq!(monitor.exit_code(), "137");
    monitor.end();
    assert!(start.elapsed() < Duration::from_secs(20), "the end took {:?}", start.elapsed());
}

#[test]
fn k2_many_signals_to_all_wait_for_each_other_and_hold_nothing_up() {
    let sandbox = Sandbox::new();
    let mut watched = Watched::start(&sandbox);
    let signal = json!({"target": "container", "signal": "CONT", "all": true});
    let mut hostile: Vec<Caller> = (0..60).map(|_| caller(&sandbox)).collect();
    for caller in &mut hostile {
        for _ in 0..10 {
            caller.ask("Signal", &signal);
        }
    }
    watched.echoes();
    for caller in &mut hostile {
        for _ in 0..10 {
            assert_eq!(caller.answer(), json!({"parameters": {}}));
        }
    }
    drop(hostile);
    watched.ends();
}

#[test]
fn r22_thousands_of_processes_that_are_killed_or_signalled_do_not_hold_the_relay_up() {
    let sandbox = Sandbox::new();
    let ready = sandbox.event("ready");
    let mut watched = Watched::start(&sandbox);
    let ready_path = sandbox.bundle().join("ready");
    let script = format!(
        "mkfifo fifo-$$; I=0; while [ $I -lt 5000 ]; do ( read nothing < fifo-$$ ) & I=$((I+1)); done; echo -n x > {}; wait",
        ready_path.display()
    );
    let mut subscriber = caller(&sandbox);
    subscriber.ask_for_more("Events", &json!({}));
    let mut execer = caller(&sandbox);
    let mut asked = exec_sync([Step::shell(&format!("cd {}; {script}", sandbox.root().display()))]);
    asked["cancel_on_disconnect"] = json!(true);
    execer.ask("ExecSync", &asked);
    assert_eq!(subscriber.event_of("started")["target"], "exec-1");
    ready.wait();

    let mut other = caller(&sandbox);
    other.ask("Signal", &json!({"target": "exec-1", "signal": "CONT", "all": true}));
    let signalled = watched.longest_pause_until(&other);
    assert_eq!(other.answer(), json!({"parameters": {}}));
    drop(execer);
    let killed = watched.longest_pause_until(&subscriber);
    assert_eq!(subscriber.event_of("exited")["exit_code"], -1);
    println!("an echo took {signalled:?} and {killed:?} of the shim at most");
    // It passes the relay twice, to the container and back. While thousands die it waits for a processor as well, and the
    // shim goes on meanwhile: how long one of its turns is then, the driver's own test says.
    assert!(signalled < 2 * Duration::from_millis(50), "an echo took {signalled:?} of the shim");
    // Thousands that die take their time of the processors, which is not the shim's fault either.
    wait::eventually(Deadline::usual(), "all to be swept", || {
        caller(&sandbox).call("Status", &json!({}))["counters"]["orphans_swept"].as_u64() >= Some(5000)
    });
    watched.ends();
}
