//! Clients of the attach socket.

use dunnage_testing::{Out, Script, Sink, Step, script};

use crate::compare::{Change, compare};

#[test]
fn clients_get_all_output() {
    compare("clients_get_all_output", |sandbox, tool, findings| {
        let go = sandbox.event("go");
        sandbox.script(&Script::new([
            Step::out("early\n"),
            Step::wait("go"),
            Step::out("out\n"),
            Step::err("err\n"),
            Step::out("unfinished"),
            Step::Exit(0),
        ]));
        let mut monitor = sandbox.monitor(tool).start();
        monitor.pid();
        monitor.log_has("early");
        let clients = [monitor.attach(), monitor.attach(), monitor.attach()];
        drop(monitor.attach());
        findings.note_tree("running", sandbox);
        monitor.accepted(3);
        go.fire();
        findings.note("received", clients.map(dunnage_testing::Client::receive_all));
        findings.note("exit code", monitor.exit_code());
    });
}

#[test]
fn much_output() {
    compare("much_output", |sandbox, tool, findings| {
        let go = sandbox.event("go");
        let (count, seed) = (3_000_000, 5);
        sandbox.script(&Script::new([
            Step::wait("go"),
            Step::Noise(Out::Stdout, count, seed),
            Step::Noise(Out::Stderr, 1000, 6),
            Step::Exit(1),
        ]));
        let mut monitor = sandbox.monitor(tool).start();
        monitor.pid();
        let client = monitor.attach();
        monitor.accepted(1);
        go.fire();
        let output = client.receive_all();
        findings.note("client's stdout is right", output.stdout == script::noise(count, seed));
        findings.note("client's stderr is right", output.stderr == script::noise(1000, 6));
        findings.note("exit code", monitor.exit_code());
        let log = monitor.log();
        findings.note("log is right", log.is(&script::noise(count, seed), &script::noise(1000, 6)));
    });
}

#[test]
fn much_input() {
    compare("much_input", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::Stdin(None, Sink::File("input".to_owned())), Step::Exit(0)]));
        let mut monitor = sandbox.monitor(tool).flag("-i").start();
        monitor.pid();
        let client = monitor.attach();
        let input = script::noise(2_000_000, 9);
        client.send_all(&input);
        client.half_close();
        findings.note("exit code", monitor.exit_code());
        let read = std::fs::read(sandbox.bundle().join("input")).expect("what the payload read");
        findings.note("length", read.len());
        findings.note("input is right", read == input);
    });
}

#[test]
fn half_close_ends_the_input() {
    compare("half_close_ends_the_input", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::cat(), Step::out(" and the end"), Step::Exit(0)]));
        let mut monitor = sandbox.monitor(tool).flag("-i").start();
        monitor.pid();
        let client = monitor.attach();
        client.send(b"hello");
        client.half_close();
        // The other half stays open.
        findings.note("received", client.receive_all());
        findings.note("exit code", monitor.exit_code());
    });
}

#[test]
fn a_client_that_leaves_ends_the_input() {
    compare("a_client_that_leaves_ends_the_input", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::cat(), Step::Exit(3)]));
        let mut monitor = sandbox.monitor(tool).flag("-i").start();
        monitor.pid();
        let mut client = monitor.attach();
        client.send(b"hello");
        client.expect("hello");
        drop(client);
        findings.note("exit code", monitor.exit_code());
    });
}

#[test]
fn input_is_left_open() {
    let changes: [(&str, Change); 3] = [
        ("input_is_left_open: pipe", |monitor| monitor.flag("-i").flag("--leave-stdin-open")),
        ("input_is_left_open: terminal", |monitor| monitor.flag("-t")),
        ("input_is_left_open: terminal with stdin", |monitor| monitor.flag("-t").flag("-i").flag("--leave-stdin-open")),
    ];
    for (test, change) in changes {
        compare(test, |sandbox, tool, findings| {
            let ready = sandbox.event("ready");
            sandbox.script(&Script::new([
                Step::fire("ready"),
                Step::Stdin(Some(6), Sink::Stdout),
                Step::fire("ready"),
                Step::Stdin(Some(7), Sink::Stdout),
                Step::Exit(0),
            ]));
            let mut monitor = change(sandbox.monitor(tool)).start();
            monitor.pid();
            ready.wait();
            let mut first = monitor.attach();
            first.send(b"hello\n");
            first.expect("hello");
            // On a terminal that was the echo; the payload's own comes before what is typed next.
            ready.wait();
            first.half_close();
            drop(monitor.attach());
            let second = monitor.attach();
            second.send(b"second\n");
            findings.note("first client", first.receive_all());
            findings.note("exit code", monitor.exit_code());
        });
    }
}

#[test]
fn input_without_stdin_goes_nowhere() {
    compare("input_without_stdin_goes_nowhere", |sandbox, tool, findings| {
        let go = sandbox.event("go");
        sandbox.script(&Script::new([Step::cat(), Step::wait("go"), Step::out("done\n")]));
        let mut monitor = sandbox.monitor(tool).start();
        monitor.pid();
        let client = monitor.attach();
        client.send(b"hello");
        client.half_close();
        monitor.accepted(1);
        go.fire();
        findings.note("received", client.receive_all());
        findings.note("exit code", monitor.exit_code());
    });
}

#[test]
fn socket_directory() {
    compare("socket_directory", |sandbox, tool, findings| {
        let end = sandbox.event("end");
        sandbox.script(&Script::new([Step::wait("end")]));
        let mut monitor = sandbox.monitor(tool).socket_dir().start();
        monitor.pid();
        findings.note_tree("running", sandbox);
        let client = dunnage_testing::Client::connect(&sandbox.sockets().join(sandbox.id()).join("attach"));
        findings.note("can attach", client.is_ok());
        monitor.long();
        end.fire();
        monitor.end();
        findings.note_tree("left", sandbox);
    });
}

#[test]
fn leftovers_are_replaced() {
    compare("leftovers_are_replaced", |sandbox, tool, findings| {
        let end = sandbox.event("end");
        sandbox.script(&Script::new([Step::wait("end")]));
        for name in ["attach", "ctl", "winsz"] {
            std::fs::write(sandbox.bundle().join(name), "old").expect("a leftover");
        }
        std::os::unix::fs::symlink("/nowhere", sandbox.sockets().join(sandbox.id())).expect("an old link");
        let mut monitor = sandbox.monitor(tool).socket_dir().start();
        monitor.pid();
        findings.note_tree("running", sandbox);
        // That works, or the test fails.
        drop(monitor.attach());
        end.fire();
        findings.note("exit code", monitor.exit_code());
    });
}
