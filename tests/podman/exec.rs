//! `podman exec`.

use std::time::Duration;

use dunnage_testing::wait::Deadline;
use dunnage_testing::{Podman, Runtime, Status, Terminal, script};

/// A container that waits for its input to end.
fn container(podman: &Podman) {
    podman.run(&["run", "--name", "c", "-di"], &["cat"]).ok();
}

#[test]
fn exit_codes_and_streams() {
    let podman = Podman::new(Runtime::Runc);
    container(&podman);
    for code in [0, 3, 255] {
        let script = format!("echo out; echo err >&2; printf 'no end'; exit {code}");
        let exec = podman.command(&["exec", "c", "sh", "-c", &script]);
        assert_eq!(exec.stderr(), "err\n");
        assert_eq!(exec.exited(code), "out\nno end");
    }
    // Nothing of it is the container's own output.
    assert_eq!(podman.ok(&["logs", "c"]), "");
}

#[test]
fn ten_mib_through_cat() {
    let podman = Podman::new(Runtime::Runc);
    container(&podman);
    let bytes = script::noise(10 << 20, 1);
    let mut exec = podman.start(&["exec", "-i", "c", "cat"]);
    exec.send(&bytes);
    let exec = exec.finish();
    assert_eq!(exec.status, Status::Exited(0), "{}", exec.stderr());
    assert!(exec.stdout == bytes, "{} of {} bytes came back, or others", exec.stdout.len(), bytes.len());
}

#[test]
fn a_person_at_a_terminal() {
    let podman = Podman::new(Runtime::Runc);
    container(&podman);
    let mut terminal = Terminal::new(30, 100);
    let script = "show() { echo size $(stty size); }; trap show WINCH; show
        until read line; do :; done; echo \"got <$line>\"; exit 6";
    let exec = podman.command_on(&terminal, &["exec", "-it", "c", "sh", "-c", script]);
    terminal.expect("size 30 100\r\n");
    terminal.resize(40, 120);
    terminal.expect("size 40 120\r\n");
    terminal.press("hello\r");
    terminal.expect("got <hello>\r\n");
    assert_eq!(exec.wait_status(Deadline::usual(), "podman exec -it"), Status::Exited(6));
}

#[test]
fn detached() {
    let podman = Podman::new(Runtime::Runc);
    container(&podman);
    podman.ok(&["exec", "-d", "c", "sh", "-c", "mkfifo /done; echo it ran >/done"]);
    let script = "until [ -p /done ]; do :; done; cat /done";
    assert_eq!(podman.ok(&["exec", "c", "sh", "-c", script]), "it ran\n");
}

#[test]
fn a_command_that_is_not_there_harms_nothing() {
    let podman = Podman::new(Runtime::Runc);
    container(&podman);
    let monitor = podman.monitor_of("c");
    for terminal in ["--tty=false", "--tty=true"] {
        let exec = podman.command(&["exec", terminal, "c", "/no/such/program"]);
        assert!(exec.stderr().contains("/no/such/program"), "{exec:?}");
        exec.exited(127);
    }
    assert!(!monitor.has_ended());
    let mut attach = podman.start(&["attach", "c"]);
    attach.send(b"still here");
    // Podman adds the newline.
    assert_eq!(attach.finish().ok(), "still here\n");
    assert_eq!(podman.ok(&["wait", "c"]), "0\n");
}

#[test]
fn ended_by_the_end_of_its_container() {
    let podman = Podman::new(Runtime::Runc);
    container(&podman);
    let mut exec = podman.start(&["exec", "c", "sh", "-c", "echo ready; exec sleep 1000"]);
    exec.expect("ready");
    podman.ok(&["kill", "c"]);
    assert_eq!(exec.finish().status, Status::Exited(137));
}

#[test]
fn environment_directory_and_user() {
    let podman = Podman::new(Runtime::Runc);
    container(&podman);
    podman.ok(&["exec", "c", "mkdir", "/work"]);
    let options = ["exec", "--env", "MARK=a=b c", "--workdir", "/work", "--user", "1234:5678", "c"];
    let script = ["sh", "-c", "echo \"<$MARK>\"; pwd; id -u; id -g; echo still mine >/dev/stdout"];
    let exec = podman.ok(&[&options[..], &script].concat());
    assert_eq!(exec, "<a=b c>\n/work\n1234\n5678\nstill mine\n");
}

#[test]
fn in_a_container_that_has_ended() {
    let podman = Podman::new(Runtime::Runc);
    container(&podman);
    podman.ok(&["kill", "c"]);
    podman.ok(&["wait", "c"]);
    let exec = podman.command(&["exec", "c", "true"]);
    assert!(exec.stderr().contains("running"), "{exec:?}");
    exec.exited(255);
}

#[test]
fn twenty_at_once() {
    let podman = Podman::new(Runtime::Runc);
    container(&podman);
    let execs: Vec<_> = (0..20)
        .map(|number| podman.start(&["exec", "c", "sh", "-c", &format!("echo {number}; exit {number}")]))
        .collect();
    for (number, exec) in (0..).zip(execs) {
        assert_eq!(exec.finish_by(Deadline::after(Duration::from_secs(120))).exited(number), format!("{number}\n"));
    }
}
