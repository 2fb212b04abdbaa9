//! Group L: what the caller is told.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use dunnage_testing::{Facts, Monitor, Sandbox, Script, Status, Step};

use crate::dunnage;

/// What a case changes.
type Change = for<'a> fn(Monitor<'a>, &'a Sandbox) -> Monitor<'a>;

#[test]
fn l01_every_failure_is_one_message() {
    let as_it_is: Change = |monitor, _| monitor;
    let with_terminal: Change = |monitor, _| monitor.flag("-t");
    let exits = |code| vec![Step::err("why\n"), Step::Exit(code)];
    let cases: Vec<(&str, Vec<Step>, Change)> = vec![
        ("status 1", exits(1), as_it_is),
        ("status 127", exits(127), as_it_is),
        ("status 255", exits(255), as_it_is),
        ("silent status 1", vec![Step::Exit(1)], as_it_is),
        ("killed", vec![Step::Raise(9)], as_it_is),
        ("crashed", vec![Step::Raise(11)], as_it_is),
        ("SIGPIPE", vec![Step::Raise(13)], as_it_is),
        ("killed after a message", vec![Step::err("why\n"), Step::Raise(9)], as_it_is),
        ("no pid file", vec![Step::Payload], as_it_is),
        ("empty pid file", vec![Step::PidFile(String::new())], as_it_is),
        ("garbage in the pid file", vec![Step::PidFile("x".to_owned())], as_it_is),
        ("pid of init", vec![Step::PidFile("1".to_owned())], as_it_is),
        ("pid of the monitor", vec![Step::PidFile("{parent}".to_owned())], as_it_is),
        ("pid of the runtime", vec![Step::PidFile("{self}".to_owned())], as_it_is),
        ("hangs", vec![Step::Hang], |monitor, _| monitor.option("--runtime-timeout", "0.5")),
        ("no terminal", vec![Step::Payload, Step::pid()], with_terminal),
        ("fails with a terminal", exits(1), with_terminal),
        ("pid file's directory is missing", vec![Step::Payload, Step::pid()], |monitor, sandbox| {
            monitor.option("-p", sandbox.root().join("missing/pidfile"))
        }),
        ("cannot be executed", vec![], |monitor, sandbox| {
            monitor.option("-r", executable(sandbox, "neither a script nor a program"))
        }),
        ("interpreter is missing", vec![], |monitor, sandbox| {
            monitor.option("-r", executable(sandbox, "#!/no/such/interpreter\n"))
        }),
    ];
    for (case, runtime, change) in cases {
        for legacy in [false, true] {
            let sandbox = Sandbox::with(&Script::runtime(runtime.clone()).payload([Step::Hang]));
            // What the payload holds open is waited for only so long.
            let monitor = change(dunnage(&sandbox).option("--runtime-grace", "0.3"), &sandbox);
            let mut monitor = if legacy { monitor.legacy() } else { monitor }.start();
            let messages = monitor.messages();
            assert_eq!(messages.len(), 1, "{case}: {messages:?}; stderr: {}", monitor.stderr());
            let key = if legacy { "pid" } else { "data" };
            assert_eq!(messages[0][key], -1, "{case}: {messages:?}");
            let text = messages[0]["message"].as_str().expect("a message");
            assert!(!text.is_empty(), "{case}: it says why");
            monitor.status();
        }
    }
}

fn executable(sandbox: &Sandbox, text: &str) -> PathBuf {
    let path = sandbox.root().join("runtime");
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    path
}

#[test]
fn l01_a_long_error_fits_into_one_message() {
    // Characters that grow when they are escaped, and such that must not be cut in the middle.
    for character in ["x", "\u{1}", "\"", "é", "𝄞", "\n"] {
        let text = format!("{}the end\n", character.repeat(20_000));
        let sandbox = Sandbox::with(&Script::runtime([Step::err(&text), Step::Exit(1)]));
        let mut monitor = dunnage(&sandbox).start();
        let message = monitor.message().expect("a message");
        assert!(monitor.message().is_none());
        let said = message["message"].as_str().expect("a message");
        assert!(message.to_string().len() < 4096, "{} bytes", message.to_string().len());
        assert!(said.len() > 300, "as much as fits: {said:?}");
        assert!(text.ends_with(said), "the end is kept: {said:?}");
    }
}

#[test]
fn l01_a_directory_that_is_missing_is_said_before_anything_starts() {
    for option in ["-b", "--exit-dir", "--persist-dir", "--socket-dir-path"] {
        let sandbox = Sandbox::with(&Script::new([]));
        let missing = sandbox.root().join("missing");
        let monitor = if option == "--socket-dir-path" { dunnage(&sandbox).socket_dir() } else { dunnage(&sandbox) };
        let mut monitor = monitor.option(option, &missing).start();
        assert_eq!(monitor.status(), Status::Exited(1), "{option}");
        let stderr = monitor.stderr();
        assert_eq!(stderr.lines().count(), 1, "{option}: {stderr}");
        assert!(stderr.contains(missing.to_str().expect("a plain path")), "{option}: {stderr}");
        assert_eq!(monitor.messages().len(), 0, "{option}");
    }
}

#[test]
fn l03_the_command_lines_of_the_callers_work() {
    let callers: [(&str, Change); 3] = [
        ("Podman 4.3", |monitor, sandbox| {
            monitor
                .without("--api-version")
                .option("--api-version", "1")
                .flag("-s")
                .also("--runtime-arg", "--log-format=json")
                .also("--runtime-arg", "--log")
                .also("--runtime-arg", sandbox.bundle().join("oci-log"))
                .flag("-t")
                .option("--log-level", "error")
                .flag("--syslog")
                .option("--conmon-pidfile", sandbox.monitor_pid_file())
        }),
        ("CRI-O", |monitor, sandbox| {
            let monitor = monitor.legacy().without("--full-attach").without("-b").without("-l").without("-P");
            monitor
                .option("-b", sandbox.bundle())
                .option("-l", sandbox.log())
                .option("--socket-dir-path", sandbox.sockets())
                .option("--log-level", "info")
                .flag("--syslog")
                .option("--log-size-max", "-1")
                .also("--runtime-arg", "--root=/run/runc")
        }),
        ("CRI-O with cgroups by systemd", |monitor, sandbox| {
            monitor.legacy().flag("-s").without("--full-attach").option("--socket-dir-path", sandbox.sockets())
        }),
    ];
    for (caller, change) in callers {
        let sandbox = Sandbox::with(&Script::new([Step::out("hello\n"), Step::Exit(3)]));
        let mut monitor = change(dunnage(&sandbox), &sandbox).start();
        monitor.pid();
        assert_eq!(monitor.status(), Status::Exited(0), "{caller}");
        assert_eq!(monitor.exit_code(), "3", "{caller}");
    }
}

#[test]
fn l04_the_pid_is_the_same_everywhere() {
    let sandbox = Sandbox::with(&Script::new([Step::report("payload.json"), Step::Hang]));
    let mut monitor = dunnage(&sandbox).start();
    let pid = monitor.pid();
    assert_eq!(fs::read_to_string(sandbox.pid_file()).expect("the pid file"), pid.to_string());
    let payload: Facts = sandbox.report("payload.json");
    assert_eq!(payload.pid, pid);
}

#[test]
fn l04_a_monitor_pid_file_that_cannot_be_written_is_an_error() {
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let mut monitor = dunnage(&sandbox).option("--conmon-pidfile", "/proc/nothing/conmon.pid").start();
    assert_eq!(monitor.status(), Status::Exited(1));
    assert!(monitor.stderr().contains("/proc/nothing/conmon.pid"), "{}", monitor.stderr());
}

#[test]
fn a_caller_that_is_gone_changes_nothing() {
    let sandbox = Sandbox::new();
    let (go, end) = (sandbox.event("go"), sandbox.event("end"));
    let [payload, console, pid] = Step::usual();
    let script = Script::runtime([Step::wait("go"), payload, console, pid]);
    sandbox.script(&script.payload([Step::wait("end"), Step::Exit(6)]));
    let mut monitor = dunnage(&sandbox).start();
    assert_eq!(monitor.status(), Status::Exited(0));
    monitor.close_sync();
    go.fire();
    end.fire();
    assert_eq!(monitor.exit_code(), "6");
}

#[test]
fn a_caller_that_gave_up_starts_nothing() {
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let mut monitor = dunnage(&sandbox).hold().start();
    monitor.close_start();
    assert_eq!(monitor.status(), Status::Exited(1));
    assert!(!sandbox.bundle().join("runtime.json").exists(), "the runtime was not started");
}

#[test]
fn g08_the_long_side_lets_go_of_stdout_and_stderr() {
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let mut monitor = dunnage(&sandbox).flag("-t").start();
    monitor.pid();
    // Both are read to their end, and the container lives.
    assert_eq!(monitor.stdout(), "");
    assert_eq!(monitor.stderr(), "");
    assert!(!monitor.long().has_ended());
}
