//! What the caller is told.

use std::fs;

use dunnage_testing::{Sandbox, Script, Status, Step, SyncPipe};

use crate::compare::{Change, Findings, compare};

/// Both dialects.
const DIALECTS: [(&str, Change); 2] = [("API 1", |monitor| monitor), ("legacy", |monitor| monitor.legacy())];

#[test]
fn create_succeeds() {
    let pipes = [SyncPipe::Pipe, SyncPipe::Stream, SyncPipe::Packets];
    for (dialect, change) in DIALECTS {
        for pipe in pipes {
            compare(&format!("create_succeeds: {dialect}, {pipe:?}"), |sandbox, tool, findings| {
                let end = sandbox.event("end");
                sandbox.script(&Script::new([Step::wait("end")]));
                let mut monitor = change(sandbox.monitor(tool)).sync_pipe(pipe).start();
                let message = monitor.message().expect("a message");
                let pid = fs::read_to_string(sandbox.pid_file()).expect("the container's pid file");
                findings.hide(&pid, "PAYLOAD");
                findings.note("message", message);
                findings.note("short side", monitor.status());
                let long = fs::read_to_string(sandbox.monitor_pid_file()).expect("the monitor's pid file");
                findings.note("pid file is digits alone", long.bytes().all(|byte| byte.is_ascii_digit()));
                findings.note_tree("running", sandbox);
                end.fire();
                findings.note("rest", monitor.messages());
            });
        }
    }
}

#[test]
fn create_without_a_sync_pipe() {
    compare("create_without_a_sync_pipe", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::Exit(5)]));
        let mut monitor = sandbox.monitor(tool).sync_pipe(SyncPipe::Absent).start();
        findings.note("short side", monitor.status());
        findings.note("exit code", monitor.exit_code());
    });
}

fn fails(test: &str, runtime: &[Step], change: Change) {
    for (dialect, speak) in DIALECTS {
        compare(&format!("{test}, {dialect}"), |sandbox, tool, findings| {
            sandbox.script(&Script::runtime(runtime).payload([Step::Hang]));
            let monitor = change(speak(sandbox.monitor(tool)));
            let mut monitor = monitor.exit_command(&[Step::Tree("at-exit-command.json".to_owned())]).start();
            findings.note("messages", monitor.messages());
            findings.note("short side", monitor.status());
            monitor.end();
            findings.note_tree("left", sandbox);
            note_log(sandbox, findings);
        });
    }
}

fn note_log(sandbox: &Sandbox, findings: &mut Findings) {
    let log = fs::read(sandbox.log()).expect("the log");
    findings.note("log", dunnage_testing::Log::parse(&log).lines());
}

#[test]
fn create_fails() {
    let exits = |status| Step::Exit(status);
    let cases: [(&str, Vec<Step>); 9] = [
        ("create_fails: with a message", vec![Step::err("cannot create\n"), exits(1)]),
        ("create_fails: with two lines", vec![Step::err("one\ntwo\n"), exits(1)]),
        ("create_fails: with an unfinished line", vec![Step::err("one\ntwo"), exits(2)]),
        ("create_fails: with quotes", vec![Step::err("\"q\" \\ \t \u{1} é /\n"), exits(1)]),
        ("create_fails: on stdout", vec![Step::out("on stdout\n"), exits(1)]),
        ("create_fails: silently", vec![exits(3)]),
        ("create_fails: by a signal", vec![Step::err("dying\n"), Step::Raise(9)]),
        ("create_fails: silently, by a signal", vec![Step::Raise(9)]),
        ("create_fails: without a pid", vec![exits(0)]),
    ];
    for (test, runtime) in cases {
        fails(test, &runtime, |monitor| monitor);
    }
}

#[test]
fn create_fails_with_a_terminal() {
    fails("create_fails_with_a_terminal: with a message", &[Step::err("no tty\n"), Step::Exit(1)], |monitor| {
        monitor.flag("-t")
    });
}

#[test]
fn create_has_a_bad_pid_file() {
    for text in ["", "garbage", "0", "-5"] {
        let test = format!("create_has_a_bad_pid_file: {text:?}");
        fails(&test, &[Step::PidFile(text.to_owned())], |monitor| monitor);
    }
}

#[test]
fn runtime_cannot_be_executed() {
    for (dialect, speak) in DIALECTS {
        compare(&format!("runtime_cannot_be_executed: {dialect}"), |sandbox, tool, findings| {
            let runtime = sandbox.root().join("runtime");
            fs::write(&runtime, "#!/no/such/interpreter\n").expect("a file");
            fs::set_permissions(&runtime, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
            let mut monitor = speak(sandbox.monitor(tool)).option("-r", runtime).start();
            findings.note("messages", monitor.messages());
            findings.note("short side", monitor.status());
            monitor.end();
            findings.note_tree("left", sandbox);
        });
    }
}

#[test]
fn runtime_cannot_be_executed_as_a_directory() {
    compare("runtime_cannot_be_executed_as_a_directory", |sandbox, tool, findings| {
        let mut monitor = sandbox.monitor(tool).option("-r", sandbox.root()).start();
        findings.note("messages", monitor.messages());
        findings.note("short side", monitor.status());
        monitor.end();
        findings.note_tree("left", sandbox);
    });
}

#[test]
fn nothing_starts_before_the_start_byte() {
    compare("nothing_starts_before_the_start_byte", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::Exit(4)]));
        let mut monitor = sandbox.monitor(tool).hold().start();
        // It reads the start pipe: that is where it waits.
        let read = format!("{} 0x4 ", nix::libc::SYS_read);
        dunnage_testing::wait::eventually(dunnage_testing::wait::Deadline::usual(), "the monitor to wait", || {
            fs::read_to_string(monitor.started.proc_dir().join("syscall")).is_ok_and(|call| call.starts_with(&read))
        });
        findings.note("children", monitor.started.children().len());
        findings.note_tree("waiting", sandbox);
        monitor.go();
        findings.note("short side", monitor.status());
        findings.note("exit code", monitor.exit_code());
    });
}

#[test]
fn the_caller_hangs_up_before_the_start_byte() {
    compare("the_caller_hangs_up_before_the_start_byte", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::Exit(4)]));
        let mut monitor = sandbox.monitor(tool).hold().start();
        monitor.close_start();
        findings.note("short side", monitor.status());
        monitor.end();
        let started = sandbox.bundle().join("runtime.json").exists();
        findings.note("the runtime was started", started);
    });
}

#[test]
fn sync_keeps_the_started_process() {
    for (code, step) in [(0, Step::Exit(0)), (3, Step::Exit(3)), (143, Step::Raise(15))] {
        compare(&format!("sync_keeps_the_started_process: {code}"), |sandbox, tool, findings| {
            sandbox.script(&Script::new([step.clone()]));
            let mut monitor = sandbox.monitor(tool).sync().start();
            monitor.pid();
            findings.note("exit code", monitor.exit_code());
            findings.note("status", monitor.status());
            findings.note_tree("left", sandbox);
        });
    }
}

#[test]
fn sync_reports_a_failure_of_its_own() {
    compare("sync_reports_a_failure_of_its_own", |sandbox, tool, findings| {
        sandbox.script(&Script::runtime([Step::err("no\n"), Step::Exit(9)]));
        let mut monitor = sandbox.monitor(tool).sync().start();
        findings.note("messages", monitor.messages());
        let status = monitor.status();
        findings.note("status is not 0", status != Status::Exited(0));
        findings.note("status", status);
    });
}
