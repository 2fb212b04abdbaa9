//! Group K: terminals and their size. And E-17, their last output.

use std::fs;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Console, Out, Sandbox, Script, Step, script};

use crate::{dunnage, idle};

fn size() -> Step {
    Step::run(&["stty", "size"])
}

#[test]
fn e17_the_last_output_of_a_terminal_is_never_lost() {
    for _ in 0..15 {
        let sandbox = Sandbox::new();
        let go = sandbox.event("go");
        sandbox.script(&Script::new([Step::wait("go"), Step::Lines(Out::Stdout, 20_000, 9), Step::Exit(0)]));
        let mut monitor = dunnage(&sandbox).flag("-t").start();
        monitor.pid();
        let mut client = monitor.attach();
        client.send(b"hi\n");
        client.expect("hi");
        go.fire();
        let output = client.receive_all();
        assert!(output.stdout.ends_with(b"19999...\r\n"), "the client has the last line");
        monitor.end();
        let expected = String::from_utf8(script::lines(20_000, 9)).expect("text").replace('\n', "\r\n");
        assert!(monitor.log().is(format!("hi\r\n{expected}").as_bytes(), b""), "the log has every line");
    }
}

#[test]
fn k01_a_terminal_gets_its_size() {
    let sandbox = Sandbox::new();
    let ready = sandbox.event("ready");
    sandbox.script(&Script::new([Step::Block(28), Step::fire("ready"), Step::AwaitSignal(28), size()]));
    let mut monitor = dunnage(&sandbox).flag("-t").start();
    monitor.pid();
    ready.wait();
    monitor.control("1 40 120\n");
    monitor.exit_code();
    assert!(monitor.log().is(b"40 120\r\n", b""), "{:?}", monitor.log());
}

#[test]
fn k02_a_size_that_comes_before_the_terminal_is_kept() {
    let sandbox = Sandbox::new();
    let (started, go, sized) = (sandbox.event("started"), sandbox.event("go"), sandbox.event("sized"));
    let [payload, console, pid] = Step::usual();
    let runtime = [Step::fire("started"), Step::wait("go"), payload, console, pid];
    sandbox.script(&Script::runtime(runtime).payload([Step::wait("sized"), size()]));
    let mut monitor = dunnage(&sandbox).flag("-t").start();
    started.wait();
    monitor.control("1 10 20\n");
    monitor.control("1 40 120\n");
    go.fire();
    monitor.pid();
    sized.fire();
    monitor.exit_code();
    // The latest of several.
    assert!(monitor.log().is(b"40 120\r\n", b""), "{:?}", monitor.log());
}

#[test]
fn input_that_comes_before_the_terminal_is_kept() {
    let sandbox = Sandbox::new();
    let (started, go) = (sandbox.event("started"), sandbox.event("go"));
    let [payload, console, pid] = Step::usual();
    let runtime = [Step::fire("started"), Step::wait("go"), payload, console, pid];
    let typed = Step::Stdin(Some(6), dunnage_testing::Sink::File("typed".to_owned()));
    sandbox.script(&Script::runtime(runtime).payload([typed]));
    let mut monitor = dunnage(&sandbox).flag("-t").start();
    started.wait();
    let client = monitor.attach();
    client.send(b"hello\n");
    go.fire();
    monitor.pid();
    assert_eq!(monitor.exit_code(), "0");
    assert_eq!(fs::read(sandbox.bundle().join("typed")).expect("what was typed"), b"hello\n");
}

#[test]
fn k04_a_size_without_a_terminal_is_nothing() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    sandbox.script(&Script::new([Step::wait("end"), Step::out("after\n"), Step::Exit(3)]));
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    monitor.control("1 40 120\n");
    let old = sandbox.root().join("old.log");
    fs::rename(sandbox.log(), &old).expect("the log can be renamed");
    monitor.control("2 0 0\n");
    wait::file_exists(&sandbox.log(), Deadline::usual());
    // The writers have left: a monitor that spins on that would run now.
    idle(monitor.long());
    end.fire();
    assert_eq!(monitor.exit_code(), "3");
}

#[test]
fn k06_the_runtimes_error_counts_even_if_the_terminal_failed_too() {
    for console in [Console::PlainFile, Console::NoDescriptor, Console::Nothing] {
        let runtime = [Step::Payload, Step::Console(console), Step::err("the real reason\n"), Step::Exit(1)];
        let sandbox = Sandbox::with(&Script::runtime(runtime).payload([Step::Exit(0)]));
        let mut monitor = dunnage(&sandbox).flag("-t").start();
        let messages = monitor.messages();
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert_eq!(messages[0]["data"], -1);
        assert_eq!(messages[0]["message"], "the real reason\n", "{console:?}");
    }
}

#[test]
fn r16_a_runtime_that_succeeds_without_a_terminal_has_failed() {
    let runtimes = [
        vec![Step::Payload, Step::Console(Console::PlainFile), Step::pid()],
        vec![Step::Payload, Step::Console(Console::NoDescriptor), Step::pid()],
        vec![Step::Payload, Step::Console(Console::Nothing), Step::pid()],
        vec![Step::Payload, Step::pid()],
    ];
    for runtime in runtimes {
        let sandbox = Sandbox::with(&Script::runtime(runtime.clone()).payload([Step::Hang]));
        let mut monitor = dunnage(&sandbox).flag("-t").option("--runtime-grace", "1").start();
        let messages = monitor.messages();
        assert_eq!(messages.len(), 1, "{runtime:?}: {messages:?}");
        assert_eq!(messages[0]["data"], -1, "{runtime:?}");
        monitor.end();
        // Its payload was killed with it.
        assert!(sandbox.processes().is_empty(), "{runtime:?}");
    }
}

#[test]
fn a_terminal_without_users_can_come_to_life_again() {
    let sandbox = Sandbox::new();
    let (closed, go) = (sandbox.event("closed"), sandbox.event("go"));
    // Its process lets go of the terminal, and opens it again later.
    let script = format!(
        "t=$(tty); exec <&- >&- 2>&-; echo . > {0}/closed; head -c 1 {0}/go; exec > $t; echo again; exit 4",
        sandbox.bundle().display()
    );
    sandbox.script(&Script::new([Step::shell(&script)]));
    let mut monitor = dunnage(&sandbox).flag("-t").start();
    monitor.pid();
    closed.wait();
    go.fire();
    assert_eq!(monitor.exit_code(), "4");
    assert!(monitor.log().stream(Out::Stdout).ends_with(b"again\r\n"), "{:?}", monitor.log());
}
