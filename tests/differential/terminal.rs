//! Containers with a terminal.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use dunnage_testing::{Console, Facts, Running, Sandbox, Script, Step, script};

use crate::compare::{Change, compare};

#[test]
fn terminal_output() {
    compare("terminal_output", |sandbox, tool, findings| {
        let go = sandbox.event("go");
        sandbox.script(&Script::new([
            Step::fire("go"),
            Step::wait("end"),
            Step::out("out\n"),
            Step::err("err\n"),
            Step::run(&["tty"]),
            Step::out("unfinished"),
            Step::Exit(4),
        ]));
        let end = sandbox.event("end");
        let mut monitor = sandbox.monitor(tool).flag("-t").start();
        monitor.pid();
        go.wait();
        findings.note_tree("running", sandbox);
        let mut client = monitor.attach();
        // A line goes through the terminal and comes back as an echo: the client is known by then.
        client.send(b"hi\n");
        client.expect("hi");
        end.fire();
        let output = client.receive_all();
        let hidden = |text: &[u8]| {
            let text = String::from_utf8_lossy(text).into_owned();
            text.split('/').map(|part| part.trim_start_matches(char::is_numeric).to_owned()).collect::<Vec<_>>()
        };
        findings.note("stdout", hidden(&output.stdout));
        findings.note("stderr", hidden(&output.stderr));
        findings.note("exit code", monitor.exit_code());
        monitor.end();
        findings.note("log", hidden(monitor.log().lines().concat().as_bytes()));
        findings.note_tree("left", sandbox);
    });
}

#[test]
fn console_socket_is_private_and_removed() {
    let fails = Script::runtime([Step::wait("go"), Step::Exit(1)]);
    let [payload, console, pid] = Step::usual();
    let works = Script::runtime([Step::wait("go"), payload, console, pid]);
    for (case, script) in [("works", works), ("fails", fails)] {
        compare(&format!("console_socket_is_private_and_removed: {case}"), |sandbox, tool, findings| {
            let go = sandbox.event("go");
            sandbox.script(&script);
            let mut monitor = sandbox.monitor(tool).flag("-t").start();
            let _: Facts = sandbox.report(script::RUNTIME_FACTS);
            let socket = sandbox.console_socket().expect("the option");
            let dir = socket.parent().expect("its directory");
            let is_socket = fs::metadata(&socket).is_ok_and(|metadata| metadata.file_type().is_socket());
            findings.note("there while the runtime runs", is_socket);
            let modes = [&*socket, dir].map(|path| fs::metadata(path).expect("it is there").mode());
            // Writable by others, and no sticky directory.
            let others = modes.iter().all(|mode| mode & 0o022 != 0 && mode & 0o1000 == 0);
            findings.note("others may connect", others);
            go.fire();
            monitor.messages();
            monitor.end();
            findings.note("left", socket.exists());
            let own_directory = dir != Path::new("/tmp") && dir != sandbox.temporary() && dir.exists();
            findings.note("its directory is left", own_directory);
        });
    }
}

#[test]
fn terminal_settings() {
    compare("terminal_settings", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::run(&["stty", "-a"])]));
        let mut monitor = sandbox.monitor(tool).flag("-t").start();
        monitor.messages();
        monitor.end();
        findings.note("log", monitor.log().lines());
    });
}

#[test]
fn terminal_is_resized() {
    compare("terminal_is_resized", |sandbox, tool, findings| {
        let (ready, next) = (sandbox.event("ready"), sandbox.event("next"));
        let size = || Step::run(&["stty", "size"]);
        sandbox.script(&Script::new([
            Step::Block(28),
            Step::fire("ready"),
            Step::AwaitSignal(28),
            size(),
            Step::fire("ready"),
            Step::AwaitSignal(28),
            size(),
            Step::wait("next"),
        ]));
        let mut monitor = sandbox.monitor(tool).flag("-t").start();
        monitor.pid();
        ready.wait();
        monitor.control("1 40 120\n");
        ready.wait();
        monitor.control("1 25 80\n");
        monitor.log_has("25 80");
        next.fire();
        findings.note("exit code", monitor.exit_code());
        findings.note("log", monitor.log().lines());
    });
}

#[test]
fn control_lines_with_more_words() {
    compare_a_resize("control_lines_with_more_words", |monitor, _| monitor.control("1 0040 120 7 more\n"));
}

#[test]
fn terminal_is_resized_by_the_winsz_fifo() {
    compare_a_resize("terminal_is_resized_by_the_winsz_fifo", |_, sandbox| {
        std::fs::write(sandbox.bundle().join("winsz"), "33 44\n").expect("the fifo");
    });
}

/// Compares the size that a container sees once `resize` has told it of one.
fn compare_a_resize(test: &str, resize: impl Fn(&Running, &Sandbox)) {
    compare(test, |sandbox, tool, findings| {
        let ready = sandbox.event("ready");
        sandbox.script(&Script::new([
            Step::Block(28),
            Step::fire("ready"),
            Step::AwaitSignal(28),
            Step::run(&["stty", "size"]),
        ]));
        let mut monitor = sandbox.monitor(tool).flag("-t").start();
        monitor.pid();
        ready.wait();
        resize(&monitor, sandbox);
        findings.note("exit code", monitor.exit_code());
        findings.note("log", monitor.log().lines());
    });
}

#[test]
fn typing_without_stdin() {
    compare("typing_without_stdin", |sandbox, tool, findings| {
        sandbox.script(&Script::new([
            Step::Stdin(Some(3), dunnage_testing::Sink::File("typed".to_owned())),
            Step::Exit(0),
        ]));
        let mut monitor = sandbox.monitor(tool).flag("-t").start();
        monitor.pid();
        let client = monitor.attach();
        client.send(b"yo\n");
        findings.note("received", client.receive_all());
        findings.note("exit code", monitor.exit_code());
        findings.note("typed", std::fs::read_to_string(sandbox.bundle().join("typed")).ok());
    });
}

#[test]
fn half_close_on_a_terminal() {
    let changes: [(&str, Change); 2] = [
        ("half_close_on_a_terminal: without stdin", |monitor| monitor.flag("-t")),
        ("half_close_on_a_terminal: with stdin", |monitor| monitor.flag("-t").flag("-i")),
    ];
    for (test, change) in changes {
        compare(test, |sandbox, tool, findings| {
            let go = sandbox.event("go");
            sandbox.script(&Script::new([Step::wait("go"), Step::out("after\n"), Step::Exit(0)]));
            let mut monitor = change(sandbox.monitor(tool)).start();
            monitor.pid();
            let mut client = monitor.attach();
            client.send(b"x\n");
            client.half_close();
            client.expect("x");
            go.fire();
            findings.note("received", client.receive_all());
            findings.note("exit code", monitor.exit_code());
        });
    }
}

#[test]
fn the_runtime_sends_two_descriptors() {
    compare("the_runtime_sends_two_descriptors", |sandbox, tool, findings| {
        let runtime = [Step::Payload, Step::Console(Console::TwoDescriptors), Step::pid()];
        sandbox.script(&Script::runtime(runtime).payload([Step::out("hello\n"), Step::Exit(3)]));
        let mut monitor = sandbox.monitor(tool).flag("-t").start();
        let messages = monitor.messages();
        findings.hide(&messages[0]["data"], "PID");
        findings.note("messages", messages);
        findings.note("short side", monitor.status());
        monitor.end();
        findings.note_tree("left", sandbox);
    });
}
