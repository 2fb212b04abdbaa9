//! `dunnagectl` in a person's terminal, with a real runtime.

use std::fs;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Bundle, Process, Running, Runtime, Status, Terminal};
use nix::libc;

use crate::{ctl, status};

/// A container that runs for as long as its stdin is open.
fn container(bundle: &Bundle) -> Running<'_> {
    let mut monitor = bundle.monitor().control_dir().flag("-i").start();
    monitor.pid();
    bundle.start();
    monitor.long();
    monitor
}

fn end(bundle: &Bundle, monitor: &Running<'_>) {
    bundle.kill("KILL");
    assert_eq!(monitor.exit_code(), "137");
    monitor.end();
    bundle.delete();
}

fn ends(process: &Process, terminal: &Terminal) -> Status {
    let status = process.wait_status(Deadline::usual(), "dunnagectl");
    assert!(terminal.edits_lines(), "the terminal is not what it was");
    status
}

#[test]
fn vi_runs_on_a_terminal() {
    let bundle = Bundle::new(Runtime::Runc, "cat");
    let monitor = container(&bundle);
    let mut terminal = Terminal::new(24, 80);
    let vi = ctl(bundle.sandbox()).start_on(&terminal, &["exec", "-it", bundle.sandbox().id(), "vi", "/file"]);
    terminal.expect("/file");
    assert!(!terminal.edits_lines(), "vi gets each key");
    terminal.press_one_by_one("ihello");
    // Alone, or it would begin a key of its own.
    terminal.press("\x1b");
    terminal.expect("- /file [Modified]");
    terminal.press_one_by_one(":wq\r");
    assert_eq!(ends(&vi, &terminal), Status::Exited(0));
    let file = bundle.sandbox().bundle().join("rootfs/file");
    assert_eq!(fs::read_to_string(file).expect("what vi wrote"), "hello\n");
    end(&bundle, &monitor);
}

#[test]
fn the_process_has_the_terminals_size_and_hears_of_another() {
    let bundle = Bundle::new(Runtime::Runc, "cat");
    let monitor = container(&bundle);
    let mut terminal = Terminal::new(24, 80);
    let show = "show() { echo size $(stty size); }; trap show WINCH; show; while :; do sleep 1000 & wait $!; done";
    let exec = ctl(bundle.sandbox()).start_on(&terminal, &["exec", "-it", bundle.sandbox().id(), "sh", "-c", show]);
    terminal.expect("size 24 80");
    terminal.resize(40, 120);
    terminal.expect("size 40 120");
    exec.signal(libc::SIGQUIT);
    assert_eq!(ends(&exec, &terminal), Status::Exited(128 + libc::SIGQUIT));
    end(&bundle, &monitor);
}

#[test]
fn ctrl_c_goes_to_the_process_whose_status_comes_back() {
    let bundle = Bundle::new(Runtime::Runc, "cat");
    let monitor = container(&bundle);
    let mut terminal = Terminal::new(24, 80);
    let script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 1000 & wait $!; done";
    let exec = ctl(bundle.sandbox()).start_on(&terminal, &["exec", "-it", bundle.sandbox().id(), "sh", "-c", script]);
    terminal.expect("ready");
    terminal.press("\x03");
    terminal.expect("caught");
    assert_eq!(ends(&exec, &terminal), Status::Exited(3));
    end(&bundle, &monitor);
}

#[test]
fn ctrl_c_ends_a_flood() {
    let bundle = Bundle::new(Runtime::Runc, "cat");
    let monitor = container(&bundle);
    let mut terminal = Terminal::new(24, 80);
    let exec = ctl(bundle.sandbox()).start_on(&terminal, &["exec", "-it", bundle.sandbox().id(), "yes"]);
    terminal.expect("y\r\ny\r\n");
    terminal.press("\x03");
    terminal.expect("^C");
    // What was under way comes to its end.
    terminal.to_end();
    assert_eq!(exec.wait_status(Deadline::usual(), "dunnagectl"), Status::Exited(130));
    end(&bundle, &monitor);
}

#[test]
fn top_is_left_by_the_keys_for_that_and_goes_on() {
    let bundle = Bundle::new(Runtime::Runc, "cat");
    let monitor = container(&bundle);
    let mut terminal = Terminal::new(24, 80);
    let id = bundle.sandbox().id();
    let exec = ctl(bundle.sandbox()).start_on(&terminal, &["exec", "-it", id, "top"]);
    terminal.expect("PID  PPID");
    terminal.press_one_by_one("\x10\x11");
    terminal.expect("dunnagectl: detached: exec-1 goes on");
    assert_eq!(ends(&exec, &terminal), Status::Exited(0));
    assert_eq!(status(bundle.sandbox())["processes"][1]["target"], "exec-1");
    end(&bundle, &monitor);
}

#[test]
fn a_containers_shell_is_attached_to_left_and_ended() {
    let bundle = Bundle::new(Runtime::Runc, "while read line; do echo \"<$line>\"; done; exit 7").terminal();
    let mut monitor = bundle.monitor().control_dir().flag("-t").start();
    monitor.pid();
    bundle.start();
    let id = bundle.sandbox().id();
    let mut terminal = Terminal::new(24, 80);
    let attach = ctl(bundle.sandbox()).start_on(&terminal, &["attach", "--detach-keys", "ctrl-a,d", id]);
    wait::eventually(Deadline::usual(), "the terminal to be raw", || !terminal.edits_lines());
    terminal.press("hello\r");
    terminal.expect("<hello>");
    // What only begins like the keys goes to the container.
    terminal.press("\x01x\r");
    terminal.expect("x>");
    terminal.press("\x01d");
    terminal.expect("detached: the container goes on");
    assert_eq!(ends(&attach, &terminal), Status::Exited(0));

    let mut terminal = Terminal::new(30, 90);
    let attach = ctl(bundle.sandbox()).start_on(&terminal, &["attach", id]);
    wait::eventually(Deadline::usual(), "the terminal to be raw", || !terminal.edits_lines());
    terminal.press("again\r");
    terminal.expect("<again>");
    terminal.press("\x04");
    assert_eq!(ends(&attach, &terminal), Status::Exited(7));
    assert_eq!(monitor.exit_code(), "7");
    monitor.end();
    bundle.delete();
}

#[test]
fn whatever_ends_it_the_terminal_is_what_it_was() {
    let bundle = Bundle::new(Runtime::Runc, "cat").terminal();
    let mut monitor = bundle.monitor().control_dir().flag("-t").start();
    monitor.pid();
    bundle.start();
    let id = bundle.sandbox().id();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let terminal = Terminal::new(24, 80);
        let attach = ctl(bundle.sandbox()).start_on(&terminal, &["attach", id]);
        wait::eventually(Deadline::usual(), "the terminal to be raw", || !terminal.edits_lines());
        attach.signal(signal);
        assert_eq!(ends(&attach, &terminal), Status::Exited(128 + signal));
    }
    let mut terminal = Terminal::new(24, 80);
    let attach = ctl(bundle.sandbox()).start_on(&terminal, &["attach", id]);
    wait::eventually(Deadline::usual(), "the terminal to be raw", || !terminal.edits_lines());
    monitor.long().signal(libc::SIGKILL);
    terminal.expect("the monitor closed the connection");
    assert_eq!(ends(&attach, &terminal), Status::Exited(125));
}

#[test]
fn tables_are_coloured_and_as_wide_as_the_terminal() {
    let bundle = Bundle::new(
        Runtime::Runc,
        "echo ready; cat; exit 0 # a long command that does not fit into so narrow a terminal",
    );
    let monitor = container(&bundle);
    // Started, it still is the runtime for a moment.
    monitor.log_has("ready");
    let mut terminal = Terminal::new(24, 90);
    let ps = ctl(bundle.sandbox()).start_on(&terminal, &["ps"]);
    terminal.expect("…");
    assert_eq!(ends(&ps, &terminal), Status::Exited(0));
    let shown = terminal.to_end();
    assert!(shown.contains("\x1b[32mrunning\x1b[0m"), "{shown:?}");
    let plain = shown.replace("\x1b[32m", "").replace("\x1b[1m", "").replace("\x1b[0m", "");
    let widest = plain.lines().map(|line| line.trim_end().chars().count()).max();
    assert_eq!(widest, Some(90), "{plain}");
    end(&bundle, &monitor);
}
