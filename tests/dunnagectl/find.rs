//! Which container is meant, and what is said where there is none.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use dunnage_testing::{Sandbox, Script, Step, dunnagectl};
use nix::libc;

use crate::{ctl, running, shim};

#[test]
fn a_container_is_found_by_id_prefix_name_and_socket() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let socket = sandbox.control_dir().join(sandbox.id());
    for id in [sandbox.id(), "0123", "container"] {
        assert!(ctl(&sandbox).run(&["status", id]).ok().contains(sandbox.id()), "by {id}");
    }
    let socket = socket.to_str().expect("a path in ASCII");
    assert!(ctl(&sandbox).run(&["--socket", socket, "status"]).ok().contains(sandbox.id()));
    let directory = sandbox.control_dir();
    let directory = directory.to_str().expect("a path in ASCII");
    assert!(ctl(&sandbox).run(&["status", "--dir", directory, "0123"]).ok().contains(sandbox.id()));
}

#[test]
fn what_is_not_found_or_not_clear_is_said_in_a_line() {
    let sandbox = Sandbox::new();
    let text = ctl(&sandbox).fails(&["ps"]);
    assert!(text.starts_with("there is no directory ") && text.contains("DUNNAGE_CONTROL_DIR="), "{text}");
    let _monitor = running(&sandbox);
    let text = ctl(&sandbox).fails(&["status", "nothing"]);
    assert!(text.starts_with("no container nothing has a control socket in "), "{text}");
    let text = ctl(&sandbox).fails(&["status"]);
    assert!(text.starts_with("which container?"), "{text}");
    let text = ctl(&sandbox).fails(&["--socket", "/no/such/socket", "status"]);
    assert!(text.contains("there is no socket /no/such/socket"), "{text}");
    let text = ctl(&sandbox).fails(&["--socket", "/no/such/socket", "status", "box"]);
    assert!(text.contains("both say which container"), "{text}");

    let other = shim(&sandbox).option("-c", "0123-other").option("-u", "0123-other");
    let other = other.option("--conmon-pidfile", sandbox.root().join("other.pid"));
    let bundle = sandbox.root().join("other");
    fs::create_dir(&bundle).expect("a bundle");
    fs::copy(sandbox.bundle().join("fake.json"), bundle.join("fake.json")).expect("a script");
    let mut other = other.option("-b", bundle).start();
    other.pid();
    let text = ctl(&sandbox).fails(&["status", "0123"]);
    assert!(text.starts_with("0123 may be any of 0123-other, 0123456789abcdef-container"), "{text}");
    // Names that are clear still work, and both are listed.
    ctl(&sandbox).run(&["status", "0123-"]).ok();
    assert_eq!(ctl(&sandbox).run(&["ps", "-q"]).ok(), "0123-other\n0123456789abcdef-container\n");
}

#[test]
fn a_monitor_that_was_killed_is_said_to_be_gone() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    monitor.long().signal(libc::SIGKILL);
    monitor.end();
    let text = ctl(&sandbox).fails(&["status", "0123"]);
    assert!(text.contains("nobody listens at") && text.contains("the monitor was killed"), "{text}");
    let listed = ctl(&sandbox).run(&["ps"]);
    assert!(listed.stderr().contains("nobody listens at"), "{listed:?}");
    assert!(listed.exited(125).contains("no answer"));
}

#[test]
fn a_monitor_that_is_stopped_makes_nobody_wait_for_ever() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    monitor.long().signal(libc::SIGSTOP);
    let text = ctl(&sandbox).fails(&["status", "0123"]);
    monitor.long().signal(libc::SIGCONT);
    assert!(text.contains("no answer to Status in time"), "{text}");
    ctl(&sandbox).run(&["status", "0123"]).ok();
}

#[test]
fn another_user_is_told_to_be_root() {
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let _monitor = running(&sandbox);
    // Where everybody may execute it.
    let binary = sandbox.root().join("dunnagectl");
    fs::copy(dunnagectl::path(), &binary).expect("a copy");
    let said = || {
        let mut command = Command::new(&binary);
        command.args(["status", "0123"]).env("DUNNAGE_CONTROL_DIR", sandbox.control_dir());
        let output = command.uid(65534).gid(65534).output().expect("it starts");
        assert_eq!(output.status.code(), Some(125));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = said();
    assert!(text.contains("is not for this user: run dunnagectl as root"), "{text}");
    fs::set_permissions(sandbox.control_dir(), Permissions::from_mode(0o755)).expect("chmod");
    let text = said();
    assert!(text.contains("is not for this user: run dunnagectl as root"), "{text}");
    // The monitor itself still asks who it is.
    let socket = sandbox.control_dir().join(sandbox.id());
    fs::set_permissions(socket, Permissions::from_mode(0o666)).expect("chmod");
    let text = said();
    assert!(text.contains("closed the connection without an answer to Status"), "{text}");
}

#[test]
fn a_mistake_in_the_command_line_is_told_apart_from_a_commands_status() {
    let sandbox = Sandbox::new();
    for args in
        [&["exec"][..], &["exec", "--no-such-option", "box", "true"], &["nonsense"], &["exec", "-u", "me", "box", "id"]]
    {
        let finished = ctl(&sandbox).run(args);
        assert!(finished.stderr().starts_with("error: "), "{finished:?}");
        finished.exited(125);
    }
    assert!(ctl(&sandbox).fails(&["exec", "box"]).starts_with("which command?"));
    assert!(ctl(&sandbox).run(&["--help"]).ok().contains("exec"));
}
