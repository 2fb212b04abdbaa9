//! K1: where the socket is, and for whom.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Sandbox, Script, Status, Step, Tool, descriptors};
use nix::libc;
use serde_json::json;

use crate::{caller, running, shim, socket_of};

#[test]
fn k1_the_socket_is_there_for_as_long_as_the_container() {
    let sandbox = Sandbox::with(&Script::new([Step::wait("end"), Step::Exit(3)]));
    let end = sandbox.event("end");
    let mut monitor = shim(&sandbox).start();
    monitor.pid();
    let mode = fs::metadata(socket_of(&sandbox)).expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let status = caller(&sandbox).call("Status", &json!({}));
    assert_eq!(status["id"], sandbox.id());
    end.fire();
    assert_eq!(monitor.exit_code(), "3");
    monitor.end();
    assert!(!socket_of(&sandbox).exists());
}

#[test]
fn k1_without_the_option_there_is_nothing() {
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let mut with = shim(&sandbox).start();
    with.pid();
    let count = |pid: &std::path::Path| descriptors(pid).expect("descriptors").len();
    let with_socket = count(&with.long().proc_dir());

    let other = Sandbox::with(&Script::new([Step::Hang]));
    let mut without = other.monitor(&Tool::under_test()).start();
    without.pid();
    assert_eq!(with_socket, count(&without.long().proc_dir()) + 1);
}

#[test]
fn k1_a_socket_that_refuses_is_replaced_and_one_that_answers_ends_the_start() {
    let sandbox = Sandbox::new();
    drop(UnixListener::bind(socket_of(&sandbox)).expect("a stale socket"));
    let first = running(&sandbox);
    caller(&sandbox).call("Status", &json!({}));

    let mut second = shim(&sandbox).start();
    assert_eq!(second.status(), Status::Exited(0));
    let message = second.message().expect("a message");
    assert_eq!(message["data"], -1);
    let text = message["message"].as_str().expect("a text").to_owned();
    assert!(text.contains("is in the way: another process answers there"), "{text}");
    caller(&sandbox).call("Status", &json!({}));
    first.long().signal(libc::SIGKILL);
}

#[test]
fn k1_a_directory_for_sockets_is_made_for_its_user_alone() {
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let mut monitor = sandbox.monitor(&Tool::under_test()).control_dir().start();
    monitor.pid();
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&sandbox.control_dir()), 0o700);
    assert_eq!(mode(&sandbox.control_dir().join(sandbox.id())), 0o600);

    // Only the last part of its path.
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let path = sandbox.root().join("no/such/directory");
    let mut monitor = sandbox.monitor(&Tool::under_test()).env("DUNNAGE_CONTROL_DIR", path).start();
    let message = monitor.message().expect("a message");
    assert!(message["message"].to_string().contains("cannot make the directory"), "{message}");
    monitor.end();
}

#[test]
fn k1_a_failed_create_leaves_no_socket() {
    let sandbox = Sandbox::with(&Script::runtime([Step::err("no\n"), Step::Exit(1)]));
    let mut monitor = shim(&sandbox).start();
    assert_eq!(monitor.message().expect("a message")["data"], -1);
    monitor.end();
    wait::eventually(Deadline::usual(), "the end of the socket", || !socket_of(&sandbox).exists());
}

#[test]
fn k1_other_users_are_closed_without_an_answer() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let socket = socket_of(&sandbox);
    // Whoever may open the file is still asked who it is.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("chmod");
    let script = "use Socket; $SIG{PIPE} = 'IGNORE'; socket(S, PF_UNIX, SOCK_STREAM, 0); \
                  connect(S, pack_sockaddr_un($ARGV[0])) or die \"connect: $!\"; \
                  syswrite(S, '{\"method\":\"org.dunnage.shim.Status\"}' . \"\\0\"); \
                  print defined(sysread(S, $_, 10)) ? \"read [$_]\" : 'reset';";
    let output = |uid: u32| {
        let mut perl = Command::new("/usr/bin/perl");
        let output = perl.args(["-e", script]).arg(&socket).uid(uid).gid(uid).output().expect("perl");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert_eq!(output(0), "read [{\"paramete]");
    let answer = output(65534);
    assert!(answer == "read []" || answer == "reset", "{answer}");
}
