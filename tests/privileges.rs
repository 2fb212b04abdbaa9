//! Capabilities: none in effect while a container runs, and all of them where they are needed.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Sandbox, Script, Step, Tool};
use nix::libc;

/// Somebody who is not root.
const USER: u32 = 1000;

/// A set of capabilities, as the kernel shows it in `/proc/PID/status`.
fn capabilities(status: &Path, set: &str) -> String {
    let text = fs::read_to_string(status).expect("a living process");
    let line = text.lines().find_map(|line| line.strip_prefix(set)).expect("a set of capabilities");
    line.trim_start_matches(':').trim().to_owned()
}

/// The tests' own.
fn own(set: &str) -> String {
    capabilities(Path::new("/proc/self/status"), set)
}

/// A directory that only the user can use, and those who need no permission.
fn private_directory(sandbox: &Sandbox, name: &str) -> PathBuf {
    let path = sandbox.root().join(name);
    fs::create_dir(&path).expect("a directory");
    chown(&path, Some(USER), Some(USER)).expect("a user's directory");
    fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("a mode");
    path
}

#[test]
fn none_is_in_effect_while_a_container_runs_and_programs_get_all_of_them() {
    let sandbox = Sandbox::with(&Script::new([Step::wait("end")]));
    let end = sandbox.event("end");
    let seen = sandbox.root().join("seen");
    let command = [Step::shell(&format!("cp /proc/self/status {}", seen.display()))];
    let mut monitor = sandbox.monitor(&Tool::under_test()).exit_command(&command).start();
    let container = monitor.payload();
    let status = monitor.long().proc_dir().join("status");
    let none = "0".repeat(16);
    wait::eventually(Deadline::usual(), "a shim without capabilities in effect", || {
        capabilities(&status, "CapEff") == none
    });
    for set in ["CapPrm", "CapInh", "CapBnd", "CapAmb"] {
        assert_eq!(capabilities(&status, set), own(set), "{set}");
    }
    assert_eq!(capabilities(&container.proc_dir().join("status"), "CapEff"), own("CapEff"));
    end.fire();
    monitor.end();
    assert_eq!(capabilities(&seen, "CapEff"), own("CapEff"));
}

#[test]
fn what_is_another_users_is_still_signalled_and_written() {
    let shell = format!("exec setpriv --reuid {USER} --regid {USER} --clear-groups sleep 1000");
    let sandbox = Sandbox::with(&Script::new([Step::out("before\n"), Step::shell(&shell)]));
    let [logs, exits, persist] =
        ["logs", "exits-of-user", "persist-of-user"].map(|name| private_directory(&sandbox, name));
    let log = logs.join("log");
    let monitor = sandbox
        .monitor(&Tool::under_test())
        .option("--log-path", format!("k8s-file:{}", log.display()))
        .option("--exit-dir", &exits)
        .option("--persist-dir", &persist);
    let mut monitor = monitor.start();
    let container = monitor.payload();
    let user = format!("Uid:\t{USER}");
    wait::eventually(Deadline::usual(), "a container of another user", || {
        fs::read_to_string(container.proc_dir().join("status")).is_ok_and(|status| status.contains(&user))
    });
    wait::eventually(Deadline::usual(), "a log", || fs::read_to_string(&log).is_ok_and(|log| log.contains("before")));
    let status = monitor.long().proc_dir().join("status");
    wait::eventually(Deadline::usual(), "a shim without capabilities in effect", || {
        capabilities(&status, "CapEff") == "0".repeat(16)
    });

    // A new log.
    fs::rename(&log, logs.join("old")).expect("a log");
    monitor.long().signal(libc::SIGUSR1);
    wait::file_exists(&log, Deadline::usual());
    // The signal is passed on.
    monitor.long().signal(libc::SIGTERM);
    let exit = exits.join(sandbox.id());
    assert_eq!(wait::file_exists(&exit, Deadline::usual()), b"143");
    assert_eq!(fs::read(persist.join("exit")).expect("an exit file"), b"143");
    monitor.end();
}

#[test]
fn exit_files_in_directories_of_another_user_are_synced_also_without_a_process_for_it() {
    let sandbox = Sandbox::with(&Script::new([Step::Exit(3)]));
    let [exits, persist] = ["exits-of-user", "persist-of-user"].map(|name| private_directory(&sandbox, name));
    let trace = sandbox.root().join("trace");
    // Without a socket to hear from it none is made.
    let refuse = "-e trace=socketpair,openat,open -e inject=socketpair:error=EMFILE";
    let mut monitor = sandbox
        .monitor(&Tool::under_test())
        .option("--exit-dir", &exits)
        .option("--persist-dir", &persist)
        .through(&format!("exec strace -f -qq -o {} {refuse}", trace.display()))
        .start();
    monitor.pid();
    monitor.end();
    let trace = fs::read_to_string(trace).expect("a trace");
    assert!(trace.contains("INJECTED"), "{trace}");
    let opened: Vec<&str> = trace.lines().filter(|line| line.contains("\".\", O_RDONLY")).collect();
    assert!(opened.len() == 2 && !opened.iter().any(|line| line.contains(" = -1")), "{opened:?}");
}

/// Gives the user a directory and all that is in it.
fn give_away(path: &Path) {
    lchown(path, Some(USER), Some(USER)).expect("a user's file");
    for entry in fs::read_dir(path).into_iter().flatten() {
        give_away(&entry.expect("an entry").path());
    }
}

/// As a user's Podman calls it: root in there is the user, and the machine's root nobody who has a number.
#[test]
fn in_a_user_namespace_links_of_the_machines_root_are_followed() {
    let sandbox = Sandbox::with(&Script::new([Step::out("hello\n"), Step::Exit(3)]));
    let [shim, runtime] = ["dunnage", "runtime"].map(|name| sandbox.root().join(name));
    // Where they are built, another user may not come.
    fs::copy(Tool::under_test().path, &shim).expect("a copy");
    fs::copy(Tool::fake_runtime(), &runtime).expect("a copy");
    give_away(sandbox.root());
    // As `/dev/stdout` is one.
    let dev = sandbox.root().join("dev");
    fs::create_dir(&dev).expect("a directory");
    symlink(sandbox.log(), dev.join("log")).expect("a link");
    let user = format!("setpriv --reuid {USER} --regid {USER} --clear-groups unshare --user --map-root-user");
    let monitor = sandbox
        .monitor(&Tool { name: "dunnage", path: shim })
        .option("-r", &runtime)
        .option("-l", format!("k8s-file:{}", dev.join("log").display()))
        .through(&format!("exec {user}"))
        .start();
    assert_eq!(monitor.stderr(), "");
    assert_eq!(monitor.exit_code(), "3");
    assert!(fs::read_to_string(sandbox.log()).expect("a log").ends_with(" stdout F hello\n"));
    monitor.end();
}
