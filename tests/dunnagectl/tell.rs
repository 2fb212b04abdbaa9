//! Commands that tell a monitor to do something.

use std::fs;

use dunnage_testing::{Sandbox, Script, Sink, Step};
use nix::libc;

use crate::{ctl, running, shim};

#[test]
fn signals_go_where_they_are_sent() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    let text = ctl(&sandbox).fails(&["signal", "-s", "FOO", "0123"]);
    assert!(text.ends_with("there is no such signal; write it as TERM, SIGTERM or 15"), "{text}");
    let text = ctl(&sandbox).fails(&["signal", "--target", "exec-7", "0123"]);
    assert!(text.contains("there is no exec-7, or it has ended"), "{text}");
    assert_eq!(ctl(&sandbox).run(&["signal", "--json", "-s", "USR1", "0123"]).ok(), "{}\n");
    assert_eq!(monitor.exit_code(), (128 + libc::SIGUSR1).to_string());
}

#[test]
fn a_signal_goes_to_all_where_that_is_asked_for() {
    let wait = "while :; do sleep 1000 & wait $!; done";
    let child = format!("trap 'echo child has it' USR1; echo child is ready; {wait}");
    let script = format!("trap 'echo main has it' USR1; ({child}) & echo main is ready; {wait}");
    let sandbox = Sandbox::with(&Script::new([Step::shell(&script)]));
    let mut monitor = shim(&sandbox).start();
    monitor.pid();
    monitor.log_has("main is ready");
    monitor.log_has("child is ready");
    ctl(&sandbox).run(&["signal", "--all", "-s", "USR1", "0123"]).ok();
    monitor.log_has("main has it");
    monitor.log_has("child has it");
    ctl(&sandbox).run(&["signal", "--all", "-s", "KILL", "0123"]).ok();
    assert_eq!(monitor.exit_code(), "137");
}

#[test]
fn stdin_is_closed_and_what_has_no_terminal_has_no_size() {
    let sandbox = Sandbox::with(&Script::new([Step::Stdin(None, Sink::Stdout), Step::Exit(4)]));
    let mut monitor = shim(&sandbox).flag("-i").flag("--leave-stdin-open").start();
    monitor.pid();
    let text = ctl(&sandbox).fails(&["resize", "--height", "3", "--width", "4", "0123"]);
    assert!(text.ends_with("it has no terminal, so no size can be set"), "{text}");
    let text = ctl(&sandbox).fails(&["resize", "0123"]);
    assert!(text.starts_with("which size?"), "{text}");
    ctl(&sandbox).run(&["close-stdin", "0123"]).ok();
    assert_eq!(monitor.exit_code(), "4");
}

#[test]
fn a_terminal_is_resized() {
    let show = "show() { echo size $(stty size); }; trap show WINCH; show; while :; do sleep 1000 & wait $!; done";
    let sandbox = Sandbox::with(&Script::new([Step::shell(show)]));
    let mut monitor = shim(&sandbox).flag("-t").start();
    monitor.pid();
    monitor.log_has("size");
    ctl(&sandbox).run(&["resize", "--height", "33", "--width", "77", "0123"]).ok();
    monitor.log_has("size 33 77");
}

#[test]
fn a_shutdown_is_over_when_it_says_so() {
    let sandbox = Sandbox::with(&Script::new([Step::Block(libc::SIGTERM), Step::fire("ready"), Step::Hang]));
    let ready = sandbox.event("ready");
    let mut monitor = shim(&sandbox).start();
    monitor.pid();
    ready.wait();
    let text = ctl(&sandbox).fails(&["shutdown", "--timeout", "1s", "0123"]);
    assert!(text.contains("the timeout is too short"), "{text}");
    ctl(&sandbox).run(&["shutdown", "--timeout", "2500ms", "0123"]).ok();
    assert_eq!(fs::read_to_string(sandbox.exit_file()).expect("the exit file"), "137");
    monitor.end();
}
