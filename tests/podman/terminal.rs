//! Containers with a terminal.

use dunnage_testing::wait::Deadline;
use dunnage_testing::{Podman, Runtime, Status, Terminal};

#[test]
fn output_of_a_terminal() {
    let podman = Podman::new(Runtime::Runc);
    for driver in ["k8s-file", "none"] {
        let run = podman.run(
            &["run", "-t", "--name", driver, "--log-driver", driver],
            &["sh", "-c", "tty; echo out; echo err >&2; exit 4"],
        );
        assert_eq!(run.stderr(), "");
        assert_eq!(run.exited(4), "/dev/pts/0\r\nout\r\nerr\r\n");
    }
    assert_eq!(podman.ok(&["logs", "k8s-file"]), "/dev/pts/0\r\nout\r\nerr\r\n");
}

#[test]
fn ten_mib_of_a_terminals_output() {
    let podman = Podman::new(Runtime::Runc);
    let (bytes, volume) = podman.volume_with_noise(10 << 20);
    let run = podman.run(&["run", "-t", "--volume", &volume], &["cat", "/data/noise"]);
    assert_eq!(run.status, Status::Exited(0), "{}", run.stderr());
    let bytes = bytes.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(&b"\r\n"[..]);
    assert!(run.stdout == bytes, "{} of {} bytes came, or others", run.stdout.len(), bytes.len());
}

#[test]
fn a_person_at_a_terminal() {
    let podman = Podman::new(Runtime::Runc);
    let mut terminal = Terminal::new(30, 100);
    let run = podman.run_on(&terminal, &["run", "-it", "--name", "c"], &["sh"]);
    terminal.expect("/ # ");
    terminal.press("echo $((6 * 7))\r");
    terminal.expect("echo $((6 * 7))\r\n");
    terminal.expect("42\r\n");
    // The line discipline in the container does its work: it echoes, ^C ends the cat, and ^D the shell.
    terminal.press("sh -c 'echo ready; exec cat'\r");
    terminal.expect("\r\nready\r\n");
    terminal.press("purr\r");
    terminal.expect("purr\r\npurr\r\n");
    terminal.press("\x03");
    terminal.expect("^C");
    terminal.expect("/ # ");
    terminal.press("(exit 6)\r");
    terminal.expect("/ # ");
    terminal.press("\x04");
    assert_eq!(run.wait_status(Deadline::usual(), "podman run -it"), Status::Exited(6));
    assert_eq!(podman.inspect("c", "{{.State.ExitCode}}"), "6");
}

#[test]
fn the_size_follows_the_persons_terminal() {
    let podman = Podman::new(Runtime::Runc);
    let mut terminal = Terminal::new(30, 100);
    let script = "show() { echo size $(stty size); }; trap show WINCH; trap 'exit 5' INT; show
        while :; do sleep 1000 & wait $!; done";
    let run = podman.run_on(&terminal, &["run", "-it"], &["sh", "-c", script]);
    terminal.expect("size 30 100\r\n");
    for (rows, columns) in [(40, 120), (25, 80), (1000, 1000)] {
        terminal.resize(rows, columns);
        terminal.expect(&format!("size {rows} {columns}\r\n"));
    }
    terminal.press("\x03");
    assert_eq!(run.wait_status(Deadline::usual(), "podman run -it"), Status::Exited(5));
}
