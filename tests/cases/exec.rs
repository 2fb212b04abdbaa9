//! Processes beside the container's: groups A, B, K and M as far as they concern them.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Facts, Monitor, Out, Process, Running, Sandbox, Script, Status, Step, script};

use crate::{SOON, dunnage};

type Change = fn(Monitor<'_>) -> Monitor<'_>;

/// What callers know of a failed exec: the one message on the sync pipe.
fn expect_failure(monitor: &mut Running<'_>, key: &str, text: &str) {
    let messages = monitor.messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0][key], -1, "{messages:?}");
    assert_eq!(messages[0]["message"], text);
}

#[test]
fn a01_an_exec_whose_runtime_fails_is_no_success() {
    let sandbox = Sandbox::with(&Script::runtime([Step::err("no such command\n"), Step::Exit(1)]));
    let mut monitor = dunnage(&sandbox).exec().sync().start();
    expect_failure(&mut monitor, "data", "no such command\n");
    assert!(matches!(monitor.status(), Status::Exited(status) if status != 0));

    let sandbox = Sandbox::with(&Script::runtime([Step::err("no such command\n"), Step::Exit(1)]));
    let mut monitor = dunnage(&sandbox).exec_sync().start();
    assert_eq!(monitor.stdout(), "");
    assert!(monitor.stderr().is_empty());
    expect_failure(&mut monitor, "exit_code", "no such command\n");
    assert!(matches!(monitor.status(), Status::Exited(status) if status != 0));
}

#[test]
fn a06_the_code_is_told_while_a_client_has_not_read() {
    let cases: [(&str, Change); 2] = [("pipes", |monitor| monitor), ("terminal", |monitor| monitor.flag("-t"))];
    for (case, change) in cases {
        let sandbox = Sandbox::new();
        let end = sandbox.event("end");
        let output = Step::Lines(Out::Stdout, 1 << 14, 64);
        sandbox.script(&Script::new([output, Step::wait("end"), Step::Exit(3)]));
        let mut monitor = change(dunnage(&sandbox)).exec_attach().option("-l", "none").start();
        monitor.attach_message();
        let client = monitor.attach();
        monitor.go();
        let payload = monitor.payload();
        end.fire();
        payload.wait_end(Deadline::usual(), "the exec's process");
        let ended = Instant::now();
        assert_eq!(monitor.message().expect("a message")["data"], 3, "{case}");
        assert_eq!(monitor.exit_code(), "3", "{case}");
        assert!(ended.elapsed() < Duration::from_secs(1), "{case}: {:?}", ended.elapsed());
        // And all of it was there to be read.
        let got = client.receive_all().stdout.len();
        let lines = if case == "terminal" { 65 } else { 64 };
        assert_eq!(got, (1 << 14) * lines, "{case}");
    }
}

#[test]
fn b05_seventy_execs_at_once() {
    let script = Script::new([Step::out("1\n"), Step::Exit(0)]);
    let sandboxes: Vec<_> = (0..70).map(|_| Sandbox::with(&script)).collect();
    let mut monitors: Vec<_> = sandboxes.iter().map(|sandbox| dunnage(sandbox).exec_sync().start()).collect();
    for monitor in &mut monitors {
        assert_eq!(monitor.stdout() + &monitor.stderr(), "");
        assert_eq!(monitor.messages(), [serde_json::json!({"exit_code": 0})]);
        assert_eq!(monitor.status(), Status::Exited(0));
        assert!(monitor.log().is(b"1\n", b""));
    }
}

#[test]
fn b08_an_exec_of_a_missing_command_ends_for_its_caller() {
    let sandbox = Sandbox::with(&Script::runtime([Step::err("not found\n"), Step::Exit(127)]));
    let count = format!("echo ran >> {}/runs", sandbox.root().display());
    let mut monitor = dunnage(&sandbox).exec_attach().socket_dir().exit_command(&[Step::shell(&count)]).start();
    monitor.attach_message();
    let client = monitor.attach();
    monitor.go();
    expect_failure(&mut monitor, "data", "not found\n");
    let output = client.receive_all();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "not found\n");
    monitor.status();
    monitor.end();
    assert_eq!(fs::read_to_string(sandbox.root().join("runs")).expect("it ran"), "ran\n", "once");
    assert!(!sandbox.exit_file().exists(), "there was no process");
    assert!(!sandbox.bundle().join("attach").exists());
    assert_eq!(fs::read_dir(sandbox.sockets()).expect("the sockets").count(), 0);
}

#[test]
fn b09_with_sync_nobody_is_left_to_init() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    sandbox.script(&Script::new([Step::report("payload.json"), Step::wait("end")]));
    let mut monitor = dunnage(&sandbox).exec_sync().start();
    let payload: Facts = sandbox.report("payload.json");
    let ours = i32::try_from(std::process::id()).expect("a pid");
    for process in sandbox.processes() {
        let parent = if process.pid() == monitor.started.pid() { ours } else { monitor.started.pid() };
        wait::eventually(Deadline::usual(), "its parent", || process.has_ended() || process.parent() == parent);
    }
    assert_eq!(Process::open(payload.pid).expect("it waits").parent(), monitor.started.pid());
    end.fire();
    assert_eq!(monitor.status(), Status::Exited(0));
}

#[test]
fn b09_without_sync_there_is_one_short_side() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    sandbox.script(&Script::new([Step::wait("end")]));
    let mut monitor = dunnage(&sandbox).exec().start();
    assert_eq!(monitor.status(), Status::Exited(0));
    let payload = monitor.payload();
    assert_eq!(payload.parent(), monitor.long().pid());
    assert_ne!(monitor.long().parent(), i32::try_from(std::process::id()).expect("a pid"));
    end.fire();
    assert_eq!(monitor.message().expect("a message")["data"], 0);
}

#[test]
fn b11_an_exec_that_delays_its_exit_command_holds_nothing() {
    let cases: [(&str, Change); 2] = [("pipes", |monitor| monitor), ("terminal", |monitor| monitor.flag("-t"))];
    for (case, change) in cases {
        let sandbox = Sandbox::new();
        let background = Step::Spawn(vec![Step::Setsid, Step::Hang]);
        sandbox.script(&Script::new([background, Step::Lines(Out::Stdout, 1 << 14, 64), Step::Exit(0)]));
        let monitor = change(dunnage(&sandbox)).exec_attach().flag("-i").exit_command(&[Step::fire("ran")]);
        let ran = sandbox.event("ran");
        let mut monitor = monitor.option("--exit-delay", "300").start();
        monitor.attach_message();
        let client = monitor.attach();
        monitor.go();
        client.receive_all();
        assert_eq!(monitor.messages().len(), 2, "{case}");
        let long = monitor.long();
        // What is open then is its event loop's and its signals'.
        wait::eventually(Deadline::after(SOON), "the monitor to let go of all it held", || {
            let fds = dunnage_testing::descriptors(&long.proc_dir()).expect("its descriptors");
            let held =
                |target: &str| ["pipe:", "/dev/ptmx", "/tmp", "socket:"].iter().any(|kind| target.starts_with(kind));
            let free = fds.range(3..).filter(|(_, fd)| held(&fd.target)).count() <= 2;
            free && !sandbox.bundle().join("attach").exists()
        });
        assert!(long.zombies().is_empty(), "{case}");
        let memory = long.own_memory_kib();
        assert!(memory <= 300, "{case}: {memory} KiB");
        let told = Instant::now();
        long.signal(15);
        ran.wait();
        monitor.end();
        assert!(told.elapsed() < SOON, "{case}: {:?}", told.elapsed());
    }
}

#[test]
fn b13_an_exec_that_leaks_a_process_blocks_nothing() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    sandbox.script(&Script::new([Step::wait("end"), Step::out("last\n"), Step::Exit(5)]));
    let mut container = dunnage(&sandbox).start();
    container.pid();

    let beside = Sandbox::new();
    let leak = Step::Spawn(vec![Step::Setsid, Step::out("leaked\n"), Step::fire("leaked"), Step::Hang]);
    let leaked = beside.event("leaked");
    beside.script(&Script::new([leak, Step::wait("end"), Step::Exit(4)]));
    let done = beside.event("end");
    let mut exec = dunnage(&beside).exec().start();
    exec.pid();
    leaked.wait();
    done.fire();
    assert_eq!(exec.message().expect("a message")["data"], 4);

    let started = Instant::now();
    let client = container.attach();
    container.control("2 0 0\n");
    container.accepted(1);
    end.fire();
    assert_eq!(client.receive_all().stdout, b"last\n");
    assert_eq!(container.exit_code(), "5");
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

#[test]
fn k03_an_exec_is_resized_before_it_is_started() {
    for round in 0..200 {
        let sandbox = Sandbox::new();
        let go = sandbox.event("go");
        sandbox.script(&Script::new([Step::wait("go"), Step::run(&["stty", "size"])]));
        let mut monitor = dunnage(&sandbox).exec_attach().flag("-t").start();
        monitor.attach_message();
        let client = monitor.attach();
        monitor.control("1 40 120\n");
        monitor.go();
        // From now on the runtime starts the process, which has had its terminal since.
        monitor.pid();
        go.fire();
        assert_eq!(String::from_utf8_lossy(&client.receive_all().stdout), "40 120\r\n", "round {round}");
    }
}

#[test]
fn m01_an_execs_exit_command_runs_once_however_it_ended() {
    let cases: [(&str, Script, Change); 4] = [
        ("ended", Script::new([Step::Exit(3)]), |monitor| monitor),
        ("killed", Script::new([Step::Raise(9)]), |monitor| monitor),
        ("failed", Script::runtime([Step::err("no\n"), Step::Exit(1)]), |monitor| monitor),
        ("timed out", Script::new([Step::Hang]), |monitor| monitor.option("-T", "1")),
    ];
    for (case, script, change) in cases {
        let sandbox = Sandbox::with(&script);
        let count = format!("echo ran >> {}/runs", sandbox.root().display());
        let mut monitor = change(dunnage(&sandbox)).exec().exit_command(&[Step::shell(&count)]).start();
        monitor.messages();
        monitor.status();
        monitor.end();
        let runs = wait::file_exists(&sandbox.root().join("runs"), Deadline::usual());
        assert_eq!(String::from_utf8_lossy(&runs), "ran\n", "{case}");
    }
}

#[test]
fn m02_an_execs_exit_command_waits_for_its_delay() {
    let sandbox = Sandbox::with(&Script::new([Step::Exit(3)]));
    let command = [Step::report("exit-command.json")];
    let mut monitor = dunnage(&sandbox).exec().exit_command(&command).option("--exit-delay", "1").start();
    monitor.pid();
    assert_eq!(monitor.message().expect("a message")["data"], 3);
    let ended = Instant::now();
    assert!(monitor.message().is_none());
    assert!(ended.elapsed() < Duration::from_millis(900), "the pipe was closed at once");
    let _: Facts = sandbox.report("exit-command.json");
    let delay = ended.elapsed();
    assert!(delay > Duration::from_millis(800) && delay < SOON, "{delay:?}");
}

#[test]
fn exec_attach_tells_its_caller_in_order() {
    let sandbox = Sandbox::with(&Script::new([Step::cat()]));
    let mut monitor = dunnage(&sandbox).exec_attach().flag("-i").start();
    assert_eq!(monitor.attach_message(), Some(serde_json::json!({"data": 0})));
    assert_eq!(monitor.attach_message(), None, "one message, then the end");
    let made = |name: &str| sandbox.bundle().join(name).exists();
    assert!(made("attach") && made("ctl") && made("winsz"));
    let client = monitor.attach();
    // Its loop turns, so what it starts by itself would have been started.
    monitor.accepted(1);
    assert!(monitor.long().children().is_empty(), "nothing starts before the second byte");
    assert!(!made(script::RUNTIME_FACTS));
    client.send(b"typed before it started\n");
    client.half_close();
    monitor.go();
    assert_eq!(client.receive_all().stdout, b"typed before it started\n");
    monitor.pid();
    assert_eq!(monitor.message(), Some(serde_json::json!({"data": 0})));
}

#[test]
fn an_exec_whose_caller_gave_up_is_not_started() {
    let legacy: [(&str, Change); 2] =
        [("data", |monitor| monitor.exec()), ("exit_code", |monitor| monitor.exec().legacy())];
    for (key, change) in legacy {
        let sandbox = Sandbox::with(&Script::new([]));
        let mut monitor = change(dunnage(&sandbox)).hold().start();
        monitor.close_start();
        let messages = monitor.messages();
        assert!(messages.iter().all(|message| message[key] == -1 && message["message"].is_string()), "{messages:?}");
        assert_eq!(messages.len(), 1, "it is said on the sync pipe, too");
        assert_eq!(monitor.status(), Status::Exited(1));
        assert!(!sandbox.bundle().join(script::RUNTIME_FACTS).exists());
    }
    let sandbox = Sandbox::with(&Script::new([]));
    let mut monitor = dunnage(&sandbox).exec_attach().exit_command(&[Step::report("exited.json")]).start();
    monitor.attach_message();
    monitor.close_start();
    let messages = monitor.messages();
    assert_eq!(messages.len(), 1);
    assert!(messages[0]["data"] == -1 && messages[0]["message"].is_string(), "{messages:?}");
    monitor.status();
    monitor.end();
    assert!(!sandbox.bundle().join(script::RUNTIME_FACTS).exists());
    assert!(!sandbox.bundle().join("attach").exists());
    assert!(!sandbox.bundle().join("exited.json").exists(), "nothing was forked for which it could run");
}

#[test]
fn an_exec_that_waits_for_its_caller_ends_when_it_is_told_to() {
    let sandbox = Sandbox::with(&Script::new([]));
    let mut monitor = dunnage(&sandbox).exec_attach().start();
    monitor.attach_message();
    monitor.status();
    monitor.long().signal(15);
    let messages = monitor.messages();
    assert!(messages.len() == 1 && messages[0]["data"] == -1, "{messages:?}");
    monitor.end();
    assert!(!sandbox.bundle().join("attach").exists());
}

#[test]
fn an_exec_without_a_bundle_makes_no_sockets() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    sandbox.script(&Script::new([Step::wait("end")]));
    let mut monitor = dunnage(&sandbox).exec().socket_dir().start();
    monitor.pid();
    let made = dunnage_testing::tree(sandbox.root()).expect("the sandbox");
    let mut sockets: BTreeMap<_, _> = made;
    sockets.retain(|path, what| {
        path != "bundle/end" && ["socket", "fifo", "link"].iter().any(|kind| what.starts_with(kind))
    });
    assert_eq!(sockets, BTreeMap::new());
    end.fire();
    monitor.messages();
}

#[test]
fn an_exec_that_has_already_ended_when_it_is_known() {
    let dead = "dead";
    let [payload, console, pid] = Step::usual();
    for (case, end, code) in [("exit", Step::Exit(5), 5), ("signal", Step::Raise(9), 137)] {
        let sandbox = Sandbox::new();
        let event = sandbox.event(dead);
        let runtime = [payload.clone(), Step::wait(dead), console.clone(), pid.clone()];
        sandbox.script(&Script::runtime(runtime).payload([Step::out("bye\n"), end]));
        let mut monitor = dunnage(&sandbox).exec().option("-T", "5").start();
        let runtime: Facts = sandbox.report(script::RUNTIME_FACTS);
        let runtime = Process::open(runtime.pid).expect("the runtime waits");
        wait::eventually(Deadline::usual(), "the process to have ended", || !runtime.zombies().is_empty());
        event.fire();
        monitor.pid();
        assert_eq!(monitor.message().expect("a message")["data"], code, "{case}");
        assert_eq!(monitor.exit_code(), code.to_string(), "{case}");
        assert!(monitor.log().is(b"bye\n", b""), "{case}");
    }
}

#[test]
fn a_runtime_that_wrote_no_pid_into_the_callers_file_has_failed() {
    for runtime in [vec![Step::Exit(0)], vec![Step::Exit(1)], vec![Step::PidFile(String::new())]] {
        let sandbox = Sandbox::with(&Script::runtime(runtime.clone()));
        fs::write(sandbox.pid_file(), "").expect("CRI-O makes it");
        let mut monitor = dunnage(&sandbox).exec_sync().start();
        let messages = monitor.messages();
        assert!(messages.len() == 1 && messages[0]["exit_code"] == -1, "{runtime:?}: {messages:?}");
        assert_ne!(messages[0]["message"], "", "{runtime:?}");
    }
}

#[test]
fn an_old_pid_in_the_callers_file_is_nobodys() {
    // Of an earlier exec of the same name: whoever has that pid now is not ours.
    let stranger = Process::spawn(&["/bin/sleep".into(), "100".into()], &[], &[]);
    let sandbox = Sandbox::with(&Script::runtime([Step::err("no\n"), Step::Exit(1)]));
    fs::write(sandbox.pid_file(), stranger.pid().to_string()).expect("an old pid file");
    let mut monitor = dunnage(&sandbox).exec().start();
    let messages = monitor.messages();
    assert!(messages.len() == 1 && messages[0]["data"] == -1, "{messages:?}");
    monitor.end();
    assert!(!stranger.has_ended(), "a stranger is left alone");
    stranger.signal(9);
    stranger.wait_status(Deadline::usual(), "the stranger");
}
