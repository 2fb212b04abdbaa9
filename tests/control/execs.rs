//! Execs under the container's own shim.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Client, Console, Out, Process, Running, Sandbox, Script, Sink, Step, Wire};
use nix::libc;
use serde_json::{Value, json};

use crate::{caller, exec_sync, process, running, socket_of};
use dunnage_testing::decode;

/// What is left of execs beside the control socket.
fn leftovers(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.root()).expect("the sandbox");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("dunnage-")).collect()
}

/// The absolute name of an event: an exec's own directory is another than the bundle.
fn event(sandbox: &Sandbox, name: &str) -> String {
    sandbox.bundle().join(name).to_string_lossy().into_owned()
}

/// The monitor's private memory in KiB.
fn private(monitor: &Running<'_>) -> usize {
    let rollup = fs::read_to_string(monitor.long().proc_dir().join("smaps_rollup")).expect("the monitor's memory");
    let dirty = rollup.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).expect("a line");
    dirty.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn exec_sync_answers_with_code_and_output() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    let mut caller = caller(&sandbox);
    let executed = caller.call("ExecSync", &exec_sync([Step::out("to out\n"), Step::err("to err"), Step::Exit(42)]));
    assert_eq!(executed["exit_code"], 42);
    assert_eq!(executed["timed_out"], false);
    assert_eq!(executed["truncated"], false);
    assert_eq!((decode(&executed["stdout"]), decode(&executed["stderr"])), ("to out\n".into(), "to err".into()));

    let killed = caller.call("ExecSync", &exec_sync([Step::Raise(libc::SIGKILL)]));
    assert_eq!(killed["exit_code"], 137);
    assert_eq!(leftovers(&sandbox), Vec::<String>::new());
    assert!(monitor.long().zombies().is_empty());
}

#[test]
fn of_much_output_the_first_is_kept() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let mut caller = caller(&sandbox);
    let mut asked = exec_sync([Step::Lines(Out::Stdout, 100_000, 80), Step::err("12345")]);
    asked["max_output"] = json!(5);
    let executed = caller.call("ExecSync", &asked);
    assert_eq!((decode(&executed["stdout"]), decode(&executed["stderr"])), ("0....".into(), "12345".into()));
    assert_eq!((&executed["truncated"], &executed["exit_code"]), (&json!(true), &json!(0)));

    asked["max_output"] = json!(8_000_000);
    let executed = caller.call("ExecSync", &asked);
    assert_eq!(decode(&executed["stdout"]).len(), 8_000_000);
    assert_eq!(executed["truncated"], false);
}

#[test]
fn r17_an_exec_is_killed_at_its_timeout_with_all_below_it() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    let below = sandbox.event("below");
    let far = vec![
        Step::Setsid,
        Step::Report(event(&sandbox, "facts.json")),
        Step::Fire(event(&sandbox, "below")),
        Step::Hang,
    ];
    let mut asked = exec_sync([Step::out("before"), Step::Spawn(vec![Step::Spawn(far), Step::Hang]), Step::Hang]);
    asked["timeout_ms"] = json!(1500);
    let mut caller = caller(&sandbox);
    caller.ask("ExecSync", &asked);
    below.wait();
    let facts: dunnage_testing::Facts = sandbox.report("facts.json");
    let grandchild = Process::open(facts.pid).expect("the process below");
    let executed = caller.answer()["parameters"].clone();
    assert_eq!((&executed["timed_out"], &executed["exit_code"]), (&json!(true), &json!(-1)));
    assert_eq!(decode(&executed["stdout"]), "before");
    grandchild.wait_end(Deadline::usual(), "the process below");
    // One that ended in time never says so.
    let mut asked = exec_sync([Step::Exit(0)]);
    asked["timeout_ms"] = json!(60_000);
    assert_eq!(caller.call("ExecSync", &asked)["timed_out"], false);
    drop(monitor);
}

#[test]
fn k4_errors_say_whether_something_ran() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let mut caller = caller(&sandbox);
    let failing = |runtime: Vec<Step>| json!({"process": Script::runtime(runtime).to_json()});
    let refused = caller.refusal("ExecSync", &failing(vec![Step::err("no such user\n"), Step::Exit(255)]));
    let parameters = json!({"exit_code": 255, "stderr": "no such user\n"});
    assert_eq!(refused, ("org.dunnage.shim.Runtime".to_owned(), parameters));

    let (error, parameters) = caller.refusal("ExecSync", &failing(vec![Step::Exit(0)]));
    assert_eq!(error, "org.dunnage.shim.StartUncertain");
    assert_eq!(parameters["reason"], "the runtime ended well, but wrote no PID file");

    let (error, parameters) = caller.refusal("ExecSync", &failing(vec![Step::PidFile("1".to_owned())]));
    assert_eq!(error, "org.dunnage.shim.StartUncertain");
    assert!(parameters["reason"].to_string().contains("not valid"), "{parameters}");
    // Nothing of it stays.
    assert_eq!(leftovers(&sandbox), Vec::<String>::new());
}

#[test]
fn k4_a_directory_that_takes_no_files_starts_nothing() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let mut caller = caller(&sandbox);
    let root = sandbox.root().to_owned();
    let away = root.with_extension("away");
    fs::rename(&root, &away).expect("the sandbox goes away");
    let (error, parameters) = caller.refusal("ExecSync", &exec_sync([Step::Exit(0)]));
    fs::rename(&away, &root).expect("the sandbox comes back");
    assert_eq!(error, "org.dunnage.shim.LaunchFailed");
    assert!(parameters["reason"].to_string().contains("cannot make the directory"), "{parameters}");
}

#[test]
fn k3_an_exec_goes_on_without_its_caller_unless_that_asked_otherwise() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let (go, done) = (sandbox.event("go"), sandbox.event("done"));
    let steps = [Step::Await(event(&sandbox, "go")), Step::Fire(event(&sandbox, "done")), Step::Exit(0)];
    let mut subscriber = caller(&sandbox);
    subscriber.ask_for_more("Events", &json!({}));

    let mut leaving = caller(&sandbox);
    leaving.ask("ExecSync", &exec_sync(steps.clone()));
    subscriber.event_of("started");
    drop(leaving);
    go.fire();
    done.wait();
    assert_eq!(subscriber.event_of("exited")["exit_code"], 0);

    let mut leaving = caller(&sandbox);
    let mut asked = exec_sync([Step::Spawn(vec![Step::Setsid, Step::Hang]), Step::Hang]);
    asked["cancel_on_disconnect"] = json!(true);
    leaving.ask("ExecSync", &asked);
    let started = subscriber.event_of("started");
    let exec = i32::try_from(started["pid"].as_i64().expect("a pid")).expect("a pid");
    let exec = Process::open(exec).expect("the exec");
    drop(leaving);
    exec.wait_end(Deadline::usual(), "the exec that nobody waits for");
    assert_eq!(subscriber.event_of("exited")["exit_code"], -1);
    wait::eventually(Deadline::usual(), "its files to go", || leftovers(&sandbox).is_empty());
}

#[test]
fn k3_an_exec_that_is_still_being_started_is_cancelled_as_well() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let (called, go) = (sandbox.event("called"), sandbox.event("go"));
    let runtime =
        [Step::Fire(event(&sandbox, "called")), Step::Await(event(&sandbox, "go")), Step::Payload, Step::pid()];
    let script = Script::runtime(runtime).payload([Step::Hang]);
    let mut leaving = caller(&sandbox);
    leaving.ask("ExecSync", &json!({"process": script.to_json(), "cancel_on_disconnect": true}));
    called.wait();
    drop(leaving);
    go.fire();
    wait::eventually(Deadline::usual(), "its files to go", || leftovers(&sandbox).is_empty());
    let status = caller(&sandbox).call("Status", &json!({}));
    assert_eq!(status["processes"].as_array().map(Vec::len), Some(1), "{status}");
}

/// Starts an exec for clients; its id and where they attach.
fn start(caller: &mut dunnage_testing::Caller, parameters: &Value) -> (String, Value) {
    caller.ask_for_more("Exec", parameters);
    let answer = caller.answer();
    assert_eq!(answer["continues"], true, "{answer}");
    let started = answer["parameters"]["started"].clone();
    (started["exec_id"].as_str().expect("an id").to_owned(), started)
}

fn attach(started: &Value) -> Client {
    Client::connect(Path::new(started["socket"].as_str().expect("a path"))).expect("an attach client")
}

#[test]
fn exec_lets_a_client_attach_that_gets_all_output_and_whose_input_arrives() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let steps =
        [Step::out("first\n"), Step::Stdin(Some(3), Sink::Stdout), Step::Stdin(None, Sink::Nowhere), Step::Exit(9)];
    let mut caller = caller(&sandbox);
    let parameters = json!({"process": process(steps), "terminal": false, "stdin": true});
    let (id, started) = start(&mut caller, &parameters);
    let status = crate::caller(&sandbox).call("Status", &json!({}));
    let listed =
        status["processes"].as_array().expect("processes").iter().find(|process| process["target"] == id.as_str());
    assert_eq!(listed.expect("the exec")["pid"], started["pid"]);
    // The output was there before the client.
    let mut client = attach(&started);
    client.expect("first\n");
    client.send(b"abc");
    client.expect("first\nabc");
    crate::caller(&sandbox).call("CloseStdin", &json!({"target": id}));
    let exited = caller.answer();
    let expected = json!({"exec_id": id, "exit_code": 9, "timed_out": false});
    assert_eq!(exited, json!({"parameters": {"exited": expected}}));
    client.receive_all();
    wait::eventually(Deadline::usual(), "its files to go", || leftovers(&sandbox).is_empty());
}

#[test]
fn a_client_may_attach_when_the_exec_has_ended_already() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let mut caller = caller(&sandbox);
    let steps = [Step::Lines(Out::Stdout, 20_000, 50), Step::Exit(0)];
    let (_, started) = start(&mut caller, &json!({"process": process(steps), "terminal": false, "stdin": false}));
    caller.answer();
    let output = attach(&started).receive_all();
    assert!(output.stdout == dunnage_testing::script::lines(20_000, 50), "{} bytes", output.stdout.len());
}

#[test]
fn exec_with_a_terminal_can_be_resized_and_signalled() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let mut caller = caller(&sandbox);
    let script = Script::new([Step::shell("read -r line; stty size; echo \"got $line\"; sleep 60")]);
    let parameters = json!({"process": script.to_json(), "terminal": true, "stdin": true});
    let (id, started) = start(&mut caller, &parameters);
    let mut other = crate::caller(&sandbox);
    other.call("Resize", &json!({"target": id, "height": 33, "width": 101}));
    let mut client = attach(&started);
    client.send(b"hello\r");
    client.receive_until(Out::Stdout, "the size", |output| String::from_utf8_lossy(output).contains("33 101"));
    client.receive_until(Out::Stdout, "the line", |output| String::from_utf8_lossy(output).contains("got hello"));
    other.call("Signal", &json!({"target": id, "signal": "KILL"}));
    assert_eq!(caller.answer()["parameters"]["exited"]["exit_code"], 137);
    client.receive_all();
    let (error, _) = other.refusal("Signal", &json!({"target": id, "signal": "KILL"}));
    assert_eq!(error, "org.dunnage.shim.NotFound");
}

#[test]
fn nothing_is_left_of_a_console_socket_in_a_directory_of_another_user() {
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let temporary = sandbox.temporary();
    chown(&temporary, Some(1000), Some(1000)).expect("a user's directory");
    fs::set_permissions(&temporary, Permissions::from_mode(0o700)).expect("a mode");
    let mut monitor = crate::shim(&sandbox).env("TMPDIR", &temporary).start();
    monitor.pid();
    let mut caller = caller(&sandbox);
    start(&mut caller, &json!({"process": process([Step::Hang]), "terminal": true, "stdin": false}));
    wait::eventually(Deadline::usual(), "an empty directory", || {
        fs::read_dir(&temporary).is_ok_and(|mut entries| entries.next().is_none())
    });
}

#[test]
fn an_exec_whose_terminal_never_comes_fails() {
    let sandbox = Sandbox::new();
    sandbox.script(&Script::new([Step::Hang]));
    let mut monitor = crate::shim(&sandbox).option("--runtime-grace", "0.2").start();
    monitor.pid();
    let script = Script::runtime([Step::Payload, Step::Console(Console::Nothing), Step::pid()]).payload([Step::Hang]);
    let mut caller = caller(&sandbox);
    caller.ask_for_more("Exec", &json!({"process": script.to_json(), "terminal": true, "stdin": false}));
    let answer = caller.answer();
    assert_eq!(answer["error"], "org.dunnage.shim.LaunchFailed");
    assert_eq!(answer["parameters"]["reason"], "Runtime did not set up terminal");
}

#[test]
fn a_client_finds_the_end_of_an_exec_that_said_nothing_before_it_came() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let mut caller = caller(&sandbox);
    let (_, started) =
        start(&mut caller, &json!({"process": process([Step::Exit(3)]), "terminal": false, "stdin": false}));
    // It is over, and its socket is still there.
    assert_eq!(caller.answer()["parameters"]["exited"]["exit_code"], 3);
    let output = attach(&started).receive_all();
    assert_eq!((output.stdout, output.stderr), (Vec::new(), Vec::new()));
    wait::eventually(Deadline::usual(), "its files to go", || leftovers(&sandbox).is_empty());
}

#[test]
fn r13_a_runtime_that_says_much_is_not_kept_waiting_for_a_client() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let runtime = [Step::Noise(Out::Stderr, 16 << 20, 1), Step::Payload, Step::pid()];
    let script = Script::runtime(runtime).payload([Step::Exit(3)]);
    let mut caller = caller(&sandbox);
    start(&mut caller, &json!({"process": script.to_json(), "terminal": false, "stdin": false}));
    assert_eq!(caller.answer()["parameters"]["exited"]["exit_code"], 3);
}

#[test]
fn an_exec_that_nobody_attaches_to_goes_on_when_its_caller_left() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let done = sandbox.event("done");
    let steps = [Step::Lines(Out::Stdout, 200_000, 80), Step::Fire(event(&sandbox, "done"))];
    let mut leaving = caller(&sandbox);
    start(&mut leaving, &json!({"process": process(steps), "terminal": false, "stdin": false}));
    drop(leaving);
    done.wait();
}

#[test]
fn execs_do_not_outlive_the_shim() {
    let sandbox = Sandbox::with(&Script::new([Step::wait("end"), Step::Exit(0)]));
    let end = sandbox.event("end");
    let mut monitor = crate::shim(&sandbox).start();
    monitor.pid();
    monitor.long();
    let mut caller = caller(&sandbox);
    let (_, started) =
        start(&mut caller, &json!({"process": process([Step::Hang]), "terminal": false, "stdin": false}));
    let exec = Process::open(i32::try_from(started["pid"].as_i64().expect("a pid")).expect("a pid")).expect("the exec");
    // One whose runtime hangs, besides.
    let in_progress = sandbox.event("called");
    let hanging = Script::runtime([Step::Fire(event(&sandbox, "called")), Step::Hang]);
    let mut hung = crate::caller(&sandbox);
    hung.ask("ExecSync", &json!({"process": hanging.to_json()}));
    in_progress.wait();
    end.fire();
    assert_eq!(monitor.exit_code(), "0");
    // Killed, and not only left alone: it is told.
    let exited = caller.answer();
    assert_eq!(exited["parameters"]["exited"]["exit_code"], -1, "{exited}");
    assert_eq!(hung.answer()["error"], "org.dunnage.shim.ShuttingDown");
    monitor.end();
    exec.wait_end(Deadline::usual(), "the exec");
    assert_eq!(leftovers(&sandbox), Vec::<String>::new());
    assert!(!socket_of(&sandbox).exists());
}

#[test]
fn there_is_a_bound_on_execs() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    let mut leaving = Vec::new();
    for _ in 0..64 {
        let mut caller = caller(&sandbox);
        start(&mut caller, &json!({"process": process([Step::Hang]), "terminal": false, "stdin": false}));
        leaving.push(caller);
        // Connections are fewer.
        leaving.clear();
    }
    let (error, parameters) = caller(&sandbox).refusal("ExecSync", &exec_sync([Step::Exit(0)]));
    assert_eq!(error, "org.dunnage.shim.Busy");
    assert_eq!(parameters["reason"], "64 execs run already");
}

#[test]
fn two_hundred_execs_twenty_at_a_time_have_their_codes_and_leave_no_memory() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    let round = |count: usize| {
        let next = Mutex::new(0);
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let mut caller = caller(&sandbox);
                    loop {
                        let number = {
                            let mut next = next.lock().expect("a number");
                            if *next == count {
                                return;
                            }
                            *next += 1;
                            *next
                        };
                        let code = i32::try_from(number % 256).expect("a code");
                        let executed =
                            caller.call("ExecSync", &exec_sync([Step::out(&number.to_string()), Step::Exit(code)]));
                        assert_eq!(executed["exit_code"], code);
                        assert_eq!(decode(&executed["stdout"]), number.to_string());
                    }
                });
            }
        });
    };
    round(20);
    let idle = || {
        // What a burst used is given back within a second.
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(1500) {
            thread::sleep(Duration::from_millis(100));
        }
        private(&monitor)
    };
    let before = idle();
    round(200);
    let after = idle();
    assert!(after <= before + 64, "{before} KiB, then {after} KiB");
    assert!(monitor.long().zombies().is_empty());
    assert_eq!(leftovers(&sandbox), Vec::<String>::new());
}
