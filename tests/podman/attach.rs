//! `podman attach`, and `podman start --attach`.

use dunnage_testing::wait::Deadline;
use dunnage_testing::{Podman, Process, Runtime, Status, Terminal};

/// Says what it was told.
const PARROT: [&str; 3] = ["sh", "-c", "while read line; do echo \"got <$line>\"; done; exit 8"];

/// A client at a terminal that has said something and heard it back: it is known to the monitor.
fn join(podman: &Podman, name: &str) -> (Terminal, Process) {
    let mut terminal = Terminal::new(24, 80);
    let attach = podman.command_on(&terminal, &["attach", "c"]);
    terminal.press(&format!("{name}\r"));
    terminal.expect(&format!("got <{name}>"));
    (terminal, attach)
}

#[test]
fn two_at_once_and_one_detaches() {
    let podman = Podman::new(Runtime::Runc);
    podman.run(&["run", "--name", "c", "-dit"], &PARROT).ok();
    let (mut first, first_attach) = join(&podman, "first");
    let (mut second, second_attach) = join(&podman, "second");
    first.expect("got <second>");

    first.press_one_by_one("\x10\x11");
    assert_eq!(first_attach.wait_status(Deadline::usual(), "podman attach"), Status::Exited(0));
    assert_eq!(podman.inspect("c", "{{.State.Running}}"), "true");
    second.press("alone\r");
    second.expect("got <alone>");

    let (third, third_attach) = join(&podman, "third");
    second.expect("got <third>");
    third.press("\x04");
    for attach in [second_attach, third_attach] {
        assert_eq!(attach.wait_status(Deadline::usual(), "podman attach"), Status::Exited(0));
    }
    assert_eq!(podman.ok(&["wait", "c"]), "8\n");
    assert!(!first.to_end().contains("alone"), "who has detached hears no more");
}

#[test]
fn through_pipes() {
    let podman = Podman::new(Runtime::Runc);
    podman.run(&["run", "--name", "c", "-di"], &PARROT).ok();
    let mut listener = podman.start(&["attach", "c"]);
    listener.send(b"first\n");
    listener.expect("got <first>");
    let mut speaker = podman.start(&["attach", "c"]);
    speaker.send(b"second\n");
    // The end of its input is the end of the container's, whose last words go to both.
    assert_eq!(speaker.finish().ok(), "got <second>\n\n");
    assert_eq!(listener.finish().ok(), "got <first>\ngot <second>\n\n");
    assert_eq!(podman.ok(&["wait", "c"]), "8\n");
}

#[test]
fn one_that_vanishes() {
    let podman = Podman::new(Runtime::Runc);
    podman.run(&["run", "--name", "c", "-dit"], &PARROT).ok();
    for name in ["first", "second", "third"] {
        let (_terminal, attach) = join(&podman, name);
        attach.signal(9);
        attach.wait_status(Deadline::usual(), "podman attach");
    }
    assert_eq!(podman.inspect("c", "{{.State.Running}}"), "true");
    let said = podman.ok(&["logs", "c"]);
    for name in ["first", "second", "third"] {
        assert!(said.contains(&format!("got <{name}>")), "{said}");
    }
}

#[test]
fn create_and_start_attached() {
    let podman = Podman::new(Runtime::Runc);
    podman.run(&["create", "--name", "c"], &["sh", "-c", "echo out; echo err >&2; exit 3"]).ok();
    // A container can be started again.
    for _ in 0..2 {
        let start = podman.command(&["start", "--attach", "c"]);
        assert_eq!(start.stderr(), "err\n");
        assert_eq!(start.exited(3), "out\n");
    }
    podman.run(&["create", "--name", "i", "-i"], &["cat"]).ok();
    let mut start = podman.start(&["start", "--attach", "--interactive", "i"]);
    start.send(b"to and fro");
    assert_eq!(start.finish().ok(), "to and fro");
}
