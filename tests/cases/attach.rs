//! Group E: attach clients and stdio.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixListener;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Client, Out, Sandbox, Script, Sink, Step, descriptors, script};

use crate::{SOON, dunnage, idle};

#[test]
fn e01_attach_works_at_any_path_length() {
    for length in [60, 107, 108, 250, 1000] {
        for full in [true, false] {
            let sandbox = Sandbox::with_bundle_path_of(length);
            sandbox.script(&Script::new([Step::cat(), Step::Exit(3)]));
            let monitor = dunnage(&sandbox).flag("-i");
            let mut monitor = if full { monitor } else { monitor.socket_dir() }.start();
            monitor.pid();
            let client = monitor.attach();
            client.send(b"hello");
            client.half_close();
            assert_eq!(client.receive_all().stdout, b"hello", "a path of {length} bytes, full: {full}");
            monitor.end();
            let sockets = dunnage_testing::tree(sandbox.root()).expect("the sandbox");
            let left: Vec<_> =
                sockets.iter().filter(|(_, what)| what.starts_with("socket") || what.starts_with("link")).collect();
            assert!(left.is_empty(), "left: {left:?}");
        }
    }
}

#[test]
fn e01_attach_works_when_the_link_itself_has_a_long_path() {
    // The link's path is as long as a socket's path may be, one less, and far longer.
    for length in [107, 108, 109, 200] {
        let sandbox = Sandbox::with(&Script::new([Step::cat(), Step::Exit(3)]));
        let base = sandbox.sockets().as_os_str().len() + 1 + sandbox.id().len() + 1;
        let dir = sandbox.sockets().join("s".repeat(length - base));
        fs::create_dir(&dir).expect("a directory");
        let mut monitor =
            dunnage(&sandbox).flag("-i").without("--full-attach").option("--socket-dir-path", &dir).start();
        monitor.pid();
        let client = monitor.attach();
        client.send(b"hello");
        client.half_close();
        assert_eq!(client.receive_all().stdout, b"hello", "a link path of {length} bytes");
        monitor.end();
        assert_eq!(fs::read_dir(&dir).expect("the directory").count(), 0, "the link is removed");
    }
}

#[test]
fn e03_whatever_is_at_the_sockets_path_is_replaced() {
    type Leftover = fn(&std::path::Path, &std::path::Path);
    let leftovers: [(&str, Leftover); 4] = [
        ("a dead socket", |path, _| drop(UnixListener::bind(path).expect("a socket"))),
        ("a file", |path, _| fs::write(path, "old").expect("a file")),
        ("a dangling link", |path, _| symlink("/no/such/file", path).expect("a link")),
        ("a link to a stranger's file", |path, stranger| symlink(stranger, path).expect("a link")),
    ];
    for (what, leave) in leftovers {
        let sandbox = Sandbox::with(&Script::new([Step::cat()]));
        let stranger = sandbox.root().join("stranger");
        fs::write(&stranger, "precious").expect("a file");
        leave(&sandbox.bundle().join("attach"), &stranger);
        let mut monitor = dunnage(&sandbox).flag("-i").start();
        monitor.pid();
        let kind = fs::symlink_metadata(sandbox.bundle().join("attach")).expect("the socket").file_type();
        assert!(kind.is_socket(), "{what} is still there");
        monitor.attach().half_close();
        assert_eq!(monitor.exit_code(), "0");
        assert_eq!(fs::read_to_string(&stranger).expect("the stranger's file"), "precious");
    }
}

#[test]
fn e04_every_client_gets_all_output() {
    let sandbox = Sandbox::new();
    let (go, half, rest) = (sandbox.event("go"), sandbox.event("half"), sandbox.event("rest"));
    let lines = Step::Lines(Out::Stdout, 1000, 50);
    sandbox.script(&Script::new([
        Step::wait("go"),
        lines.clone(),
        Step::fire("half"),
        Step::wait("rest"),
        lines,
        Step::Exit(0),
    ]));
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    let [first, second, leaving] = [monitor.attach(), monitor.attach(), monitor.attach()];
    monitor.accepted(3);
    go.fire();
    half.wait();
    drop(leaving);
    rest.fire();
    let expected = [script::lines(1000, 50), script::lines(1000, 50)].concat();
    assert!(first.receive_all().stdout == expected, "the first client's output");
    assert!(second.receive_all().stdout == expected, "the second client's output");
}

#[test]
fn e05_much_output_reaches_a_client_that_is_slow_at_times() {
    let sandbox = Sandbox::new();
    let go = sandbox.event("go");
    let size = 20 << 20;
    sandbox.script(&Script::new([Step::wait("go"), Step::Noise(Out::Stdout, size, 1), Step::fire("done")]));
    let mut monitor = dunnage(&sandbox).option("-l", "none").start();
    monitor.pid();
    let mut client = monitor.attach();
    monitor.accepted(1);
    let done = sandbox.event("done");
    go.fire();
    for pause in 1..5 {
        client.receive_until(Out::Stdout, "a part", |output| output.len() > pause * (size / 10));
        // Long enough for every queue to be full.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    // The end of the process would bound the rest: it waits until the client has caught up.
    client.receive_until(Out::Stdout, "all of it", |output| output.len() >= size);
    done.wait();
    assert!(client.receive_all().stdout == script::noise(size, 1), "exact to the byte");
}

#[test]
fn e06_binary_output_is_exact_with_each_log() {
    for log in ["none", "k8s-file"] {
        let sandbox = Sandbox::new();
        let go = sandbox.event("go");
        let size = 16 << 20;
        sandbox.script(&Script::new([Step::wait("go"), Step::Noise(Out::Stdout, size, 7), Step::Exit(0)]));
        let monitor = dunnage(&sandbox);
        let mut monitor = if log == "none" { monitor.option("-l", "none") } else { monitor }.start();
        monitor.pid();
        let client = monitor.attach();
        monitor.accepted(1);
        go.fire();
        assert!(client.receive_all().stdout == script::noise(size, 7), "with {log}");
        assert_eq!(monitor.exit_code(), "0");
        if log != "none" {
            assert!(monitor.log().is(&script::noise(size, 7), b""));
        }
    }
}

#[test]
fn e07_a_client_gets_all_of_the_output_of_a_short_container() {
    for _ in 0..30 {
        let sandbox = Sandbox::new();
        let go = sandbox.event("go");
        sandbox.script(&Script::new([Step::wait("go"), Step::Noise(Out::Stdout, 500_000, 2), Step::Exit(0)]));
        let mut monitor = dunnage(&sandbox).start();
        monitor.pid();
        let client = monitor.attach();
        monitor.accepted(1);
        go.fire();
        assert!(client.receive_all().stdout == script::noise(500_000, 2));
    }
}

#[test]
fn e10_input_and_output_together_are_no_deadlock() {
    let sandbox = Sandbox::with(&Script::new([Step::cat(), Step::Exit(0)]));
    let mut monitor = dunnage(&sandbox).flag("-i").option("-l", "none").start();
    monitor.pid();
    let mut client = monitor.attach();
    let input = script::noise(16 << 20, 3);
    let mut packets = input.chunks(32 * 1024).peekable();
    while let Some(packet) = packets.peek() {
        // Reads only when nothing more can be sent.
        if client.try_send(packet) {
            packets.next();
        } else {
            assert!(client.receive(), "the monitor closed the client");
        }
    }
    client.half_close();
    assert!(client.receive_all().stdout == input, "every byte came back");
    assert_eq!(monitor.exit_code(), "0");
}

#[test]
fn e11_a_slow_reader_of_stdin_is_no_flood_of_warnings() {
    let sandbox = Sandbox::new();
    let go = sandbox.event("go");
    let read = Step::Stdin(None, Sink::File("input".to_owned()));
    sandbox.script(&Script::new([Step::wait("go"), read, Step::Exit(0)]));
    let mut monitor = dunnage(&sandbox).flag("-i").start();
    monitor.pid();
    let mut client = monitor.attach();
    let input = script::lines(40_000, 200);
    let mut packets = input.chunks(8000).peekable();
    while packets.peek().is_some_and(|packet| client.try_send(packet)) {
        packets.next();
    }
    assert!(packets.peek().is_some(), "the monitor does not hold it all");
    go.fire();
    packets.for_each(|packet| client.send(packet));
    client.half_close();
    while client.receive() {}
    assert_eq!(monitor.exit_code(), "0");
    assert!(fs::read(sandbox.bundle().join("input")).expect("the input") == input);
    monitor.end();
    assert!(monitor.stderr().lines().count() <= 2, "{}", monitor.stderr());
}

#[test]
fn e13_a_half_close_is_passed_on() {
    let sandbox = Sandbox::with(&Script::new([Step::cat(), Step::out(" end"), Step::Exit(0)]));
    let mut monitor = dunnage(&sandbox).flag("-i").start();
    monitor.pid();
    let client = monitor.attach();
    client.send(b"hi");
    client.half_close();
    assert_eq!(client.receive_all().stdout, b"hi end");
    assert_eq!(monitor.exit_code(), "0");
}

#[test]
fn e14_stdin_is_left_open_for_the_next_client() {
    let sandbox = Sandbox::with(&Script::new([
        Step::Stdin(Some(5), Sink::Stdout),
        Step::Stdin(Some(6), Sink::Stdout),
        Step::Exit(0),
    ]));
    let mut monitor = dunnage(&sandbox).flag("-i").flag("--leave-stdin-open").start();
    monitor.pid();
    let mut first = monitor.attach();
    first.send(b"first");
    first.half_close();
    first.expect("first");
    let second = monitor.attach();
    second.send(b"second");
    assert_eq!(first.receive_all().stdout, b"firstsecond");
    assert_eq!(monitor.exit_code(), "0");
}

#[test]
fn e16_a_stream_that_ends_early_ends_nothing_else() {
    let sandbox = Sandbox::new();
    let go = sandbox.event("go");
    sandbox.script(&Script::new([Step::Close(2), Step::wait("go"), Step::Lines(Out::Stdout, 5000, 60)]));
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    let client = monitor.attach();
    monitor.accepted(1);
    go.fire();
    // A reset would fail the receiving.
    assert!(client.receive_all().stdout == script::lines(5000, 60));
}

#[test]
fn e19_a_container_never_gets_a_broken_pipe() {
    let sandbox = Sandbox::new();
    let (next, done) = (sandbox.event("next"), sandbox.event("done"));
    let round = [Step::wait("next"), Step::Lines(Out::Stdout, 3000, 60), Step::fire("done")];
    let rounds: Vec<Step> = round.iter().cycle().take(3 * 5).cloned().chain([Step::Exit(0)]).collect();
    sandbox.script(&Script::new(rounds));
    // Every write to this log fails.
    let mut monitor = dunnage(&sandbox).option("-l", "k8s-file:/dev/full").start();
    monitor.pid();
    for phase in 0..5 {
        let mut client = monitor.attach();
        if phase % 2 == 0 {
            monitor.accepted(1);
        }
        next.fire();
        if phase > 2 {
            client.receive();
        }
        drop(client);
        done.wait();
    }
    assert_eq!(monitor.exit_code(), "0");
}

#[test]
fn e21_an_exit_does_not_wait_for_a_client_that_does_not_read() {
    let sandbox = Sandbox::new();
    let go = sandbox.event("go");
    sandbox.script(&Script::new([Step::wait("go"), Step::Flood(Out::Stdout)]));
    let mut monitor = dunnage(&sandbox).option("-l", "k8s-file:/dev/null").start();
    let payload = monitor.payload();
    let (stuck, reading) = (monitor.attach(), monitor.attach());
    monitor.accepted(2);
    go.fire();
    wait::readable(&stuck, Deadline::usual(), "output");
    payload.signal(9);
    assert_eq!(monitor.exit_code_within(SOON), "137");
    reading.receive_all();
    monitor.long().wait_end(Deadline::after(SOON), "the monitor, with a client that does not read");
}

#[test]
fn e21_the_log_gets_the_rest_of_a_stream_that_was_paused() {
    let sandbox = Sandbox::new();
    let go = sandbox.event("go");
    sandbox.script(&Script::new([Step::wait("go"), Step::Flood(Out::Stdout)]));
    let mut monitor = dunnage(&sandbox).start();
    let payload = monitor.payload();
    let stuck = monitor.attach();
    monitor.accepted(1);
    go.fire();
    wait::readable(&stuck, Deadline::usual(), "output");
    // Everything is full now, the container's pipe too.
    idle(monitor.long());
    let io = fs::read_to_string(payload.proc_dir().join("io")).expect("the payload's counters");
    let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")).expect("a counter");
    let written: usize = written.parse().expect("a number");
    payload.signal(9);
    assert_eq!(monitor.exit_code_within(SOON), "137");
    let logged = monitor.log().stream(Out::Stdout).len();
    assert!(logged >= written, "{logged} bytes of {written} are in the log");
}

#[test]
fn attach_stall_timeout_closes_a_client_that_does_not_read() {
    let sandbox = Sandbox::new();
    let (go, done) = (sandbox.event("go"), sandbox.event("done"));
    let size = 16 << 20;
    sandbox.script(&Script::new([Step::wait("go"), Step::Noise(Out::Stdout, size, 2), Step::fire("done"), Step::Hang]));
    let mut monitor = dunnage(&sandbox).option("-l", "none").option("--attach-stall-timeout", "1").start();
    monitor.pid();
    let stuck = monitor.attach();
    monitor.accepted(1);
    go.fire();
    // The container goes on once the client was closed.
    done.wait();
    assert!(stuck.receive_all().stdout.len() < size);
}

#[test]
fn a_client_that_does_not_read_loses_nothing_without_a_stall_timeout() {
    let sandbox = Sandbox::new();
    let (go, end) = (sandbox.event("go"), sandbox.event("end"));
    let size = 16 << 20;
    sandbox.script(&Script::new([Step::wait("go"), Step::Noise(Out::Stdout, size, 2), Step::wait("end")]));
    let mut monitor = dunnage(&sandbox).option("-l", "none").start();
    monitor.pid();
    let mut client = monitor.attach();
    monitor.accepted(1);
    go.fire();
    wait::readable(&client, Deadline::usual(), "output");
    // Another client, and the control fifo, are served while the stream is paused.
    monitor.control("2 0 0\n");
    drop(monitor.attach());
    client.receive_until(Out::Stdout, "all of it", |output| output.len() >= size);
    end.fire();
    assert!(client.receive_all().stdout == script::noise(size, 2));
}

#[test]
fn e22_clients_that_come_and_go_leave_nothing() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    sandbox.script(&Script::new([Step::wait("end"), Step::cat(), Step::Exit(4)]));
    let mut monitor = dunnage(&sandbox).flag("-i").flag("--leave-stdin-open").start();
    monitor.pid();
    let long = monitor.long().proc_dir();
    let count = || descriptors(&long).expect("the monitor's descriptors").len();
    let before = count();
    for round in 0..100 {
        let client = monitor.attach();
        if round % 2 == 0 {
            client.half_close();
        }
    }
    wait::eventually(Deadline::usual(), "the clients' descriptors to be closed", || count() == before);
    end.fire();
    let client = monitor.attach();
    client.send(b"still here");
    let mut client: Client = client;
    client.expect("still here");
}

#[test]
fn no_more_than_128_clients_are_let_in() {
    let sandbox = Sandbox::with(&Script::new([Step::cat()]));
    let mut monitor = dunnage(&sandbox).flag("-i").start();
    monitor.pid();
    let clients: Vec<Client> = (0..128).map(|_| monitor.attach()).collect();
    monitor.accepted(128);
    // Refused at once: closed, as nothing has ended yet.
    assert!(!monitor.attach().receive());
    drop(clients);
    assert_eq!(monitor.exit_code(), "0");
}
