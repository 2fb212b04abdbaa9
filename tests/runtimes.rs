//! Real runtimes under dunnage, without an engine between.

use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Bundle, Out, Runtime, script};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

/// Each of these tests with each runtime.
macro_rules! with_runc_and_crun {
    ($($test:ident)+) => {
        mod runc {
            $(#[test] fn $test() { super::$test(super::Runtime::Runc); })+
        }
        mod crun {
            $(#[test] fn $test() { super::Runtime::Crun.run(|| super::$test(super::Runtime::Crun)); })+
        }
    };
}

with_runc_and_crun! {
    pipes
    input
    terminal
    terminal_is_resized
    codes_of_signals
    a_signal_to_the_monitor
    much_output
    never_started
    bad_command
    bad_root_filesystem
    a_background_process_holds_the_output
    zombies_in_the_container
    orphans_of_the_container
}

fn pipes(runtime: Runtime) {
    let bundle = Bundle::new(runtime, "echo out; echo err >&2; printf 'no end'; exit 3");
    let mut monitor = bundle.monitor().start();
    let payload = monitor.payload();
    let client = monitor.attach();
    let long = monitor.long();
    assert_eq!(long.children(), [payload.pid()], "the container's process is the monitor's child");
    bundle.start();
    assert_eq!(monitor.exit_code(), "3");
    let output = client.receive_all();
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\nno end"[..], &b"err\n"[..]));
    assert!(monitor.log().is(b"out\nno end", b"err\n"), "{:?}", monitor.log());
    monitor.end();
    bundle.delete();
}

fn input(runtime: Runtime) {
    let bundle = Bundle::new(runtime, "cat; echo; echo the end");
    let mut monitor = bundle.monitor().flag("-i").start();
    monitor.pid();
    let client = monitor.attach();
    // Before the container runs, too.
    client.send(b"early ");
    bundle.start();
    client.send(b"late");
    client.half_close();
    assert_eq!(client.receive_all().stdout, b"early late\nthe end\n");
    assert_eq!(monitor.exit_code(), "0");
    monitor.end();
    bundle.delete();
}

fn terminal(runtime: Runtime) {
    let bundle = Bundle::new(runtime, "tty; read line; echo \"got <$line>\"; exit 4").terminal();
    let mut monitor = bundle.monitor().flag("-t").start();
    monitor.pid();
    let mut client = monitor.attach();
    bundle.start();
    client.expect("/dev/pts/0\r\n");
    client.send(b"hello\n");
    client.expect("got <hello>\r\n");
    assert_eq!(monitor.exit_code(), "4");
    let output = client.receive_all();
    assert_eq!(output.stdout, b"/dev/pts/0\r\nhello\r\ngot <hello>\r\n");
    assert!(monitor.log().is(&output.stdout, b""), "{:?}", monitor.log());
    monitor.end();
    bundle.delete();
}

fn terminal_is_resized(runtime: Runtime) {
    let script = "show() { echo size $(stty size); }; trap show WINCH; show; while :; do sleep 1000 & wait $!; done";
    let bundle = Bundle::new(runtime, script).terminal();
    let mut monitor = bundle.monitor().flag("-t").start();
    monitor.pid();
    let mut client = monitor.attach();
    // Before the container runs it is its first size.
    monitor.control("1 30 100\n");
    bundle.start();
    client.expect("size 30 100\r\n");
    monitor.control("1 40 120\n");
    client.expect("size 40 120\r\n");
    bundle.kill("KILL");
    assert_eq!(monitor.exit_code(), "137");
    monitor.end();
    bundle.delete();
}

fn codes_of_signals(runtime: Runtime) {
    for (signal, code) in [("KILL", "137"), ("TERM", "143"), ("SEGV", "139"), ("ABRT", "134")] {
        // The first process of a PID namespace does not die of most signals.
        let bundle = Bundle::new(runtime, "echo ready; exec sleep 1000").host_pids();
        let mut monitor = bundle.monitor().start();
        monitor.pid();
        bundle.start();
        monitor.log_has("ready");
        bundle.kill(signal);
        assert_eq!(monitor.exit_code(), code, "of SIG{signal}");
        monitor.end();
        bundle.delete();
    }
}

fn a_signal_to_the_monitor(runtime: Runtime) {
    let bundle =
        Bundle::new(runtime, "trap 'echo stopping; exit 7' TERM; echo ready; while :; do sleep 1000 & wait $!; done");
    let mut monitor = bundle.monitor().start();
    monitor.pid();
    bundle.start();
    monitor.log_has("ready");
    monitor.long().signal(15);
    assert_eq!(monitor.exit_code(), "7");
    assert!(monitor.log().is(b"ready\nstopping\n", b""), "{:?}", monitor.log());
    monitor.end();
    bundle.delete();
}

fn much_output(runtime: Runtime) {
    let bundle = Bundle::new(runtime, "cat /out & cat /err >&2 & wait; exit 9");
    let (stdout, stderr) = (script::noise(10 << 20, 1), script::noise(10 << 20, 2));
    for (name, bytes) in [("out", &stdout), ("err", &stderr)] {
        fs::write(bundle.sandbox().bundle().join("rootfs").join(name), bytes).expect("a file in the container");
    }
    let mut monitor = bundle.monitor().start();
    monitor.pid();
    let client = monitor.attach();
    bundle.start();
    let output = client.receive_all();
    assert_eq!(monitor.exit_code(), "9");
    monitor.end();
    assert!(output.stdout == stdout && output.stderr == stderr, "the client misses something");
    assert!(monitor.log().is(&stdout, &stderr), "the log misses something");
    bundle.delete();
}

fn never_started(runtime: Runtime) {
    let bundle = Bundle::new(runtime, "echo never");
    let mut monitor = bundle.monitor().start();
    monitor.pid();
    bundle.runtime(&["delete", "--force", bundle.sandbox().id()]).ok();
    assert_eq!(monitor.exit_code(), "137");
    assert!(monitor.log().is(b"", b""), "{:?}", monitor.log());
    monitor.end();
}

fn bad_command(runtime: Runtime) {
    fails(runtime, |config| config["process"]["args"] = json!(["/no/such/\"program\"", "a\tb"]), "/no/such/");
}

fn bad_root_filesystem(runtime: Runtime) {
    fails(runtime, |config| config["root"]["path"] = "no/such/root".into(), "no/such/root");
}

/// A create that fails: the caller gets what the runtime itself says, and nothing is left.
fn fails(runtime: Runtime, change: fn(&mut serde_json::Value), says: &str) {
    for terminal in [false, true] {
        let mut bundle = Bundle::new(runtime, "");
        bundle.change(change);
        let flag: &[&str] = if terminal { &["-t"] } else { &[] };
        if terminal {
            bundle = bundle.terminal();
        }
        let mut monitor = flag.iter().fold(bundle.monitor(), |monitor, flag| monitor.flag(flag)).start();
        let messages = monitor.messages();
        let [message] = messages.as_slice() else { panic!("one message, not {messages:?}") };
        assert_eq!(message["data"], -1);
        let text = message["message"].as_str().expect("a text");
        assert!(text.contains(says), "{text}");
        monitor.end();
        assert!(!bundle.sandbox().exit_file().exists(), "what never ran has no exit code");
        assert!(!bundle.sandbox().bundle().join("attach").exists(), "the socket is gone");
        assert_eq!(bundle.sandbox().processes().len(), 0);
    }
}

fn a_background_process_holds_the_output(runtime: Runtime) {
    let bundle = Bundle::new(runtime, "sleep 1000 & printf 'the last words'; exit 4").host_pids();
    let mut monitor = bundle.monitor().start();
    monitor.pid();
    let client = monitor.attach();
    let started = Instant::now();
    bundle.start();
    assert_eq!(monitor.exit_code(), "4");
    assert_eq!(client.receive_all().stdout, b"the last words");
    monitor.end();
    // Far above what it takes, far below what the background process takes.
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(monitor.log().is(b"the last words", b""), "{:?}", monitor.log());
    bundle.runtime(&["delete", "--force", bundle.sandbox().id()]).ok();
}

fn zombies_in_the_container(runtime: Runtime) {
    // The init is a cat, which waits for nobody. What it adopted lives until it may read a line.
    let script = "for i in $(seq 50); do (read line < /go &); done; echo ready; exec cat";
    let bundle = Bundle::new(runtime, script);
    let go = bundle.sandbox().bundle().join("rootfs/go");
    mkfifo(&go, Mode::S_IRUSR | Mode::S_IWUSR).expect("a fifo");
    let mut go = File::options().read(true).write(true).open(go).expect("the fifo");
    let mut monitor = bundle.monitor().flag("-i").start();
    let payload = monitor.payload();
    let client = monitor.attach();
    bundle.start();
    monitor.log_has("ready");
    go.write_all(&[b'\n'; 50]).expect("the fifo takes lines");
    wait::eventually(Deadline::usual(), "zombies in the container", || payload.zombies().len() == 50);
    client.half_close();
    assert_eq!(monitor.exit_code(), "0");
    monitor.end();
    bundle.delete();
}

fn orphans_of_the_container(runtime: Runtime) {
    // Without a PID namespace they are the monitor's to reap.
    let bundle =
        Bundle::new(runtime, "for i in $(seq 50); do (true & true &); done; echo ready; cat; exit 5").host_pids();
    let mut monitor = bundle.monitor().flag("-i").start();
    let payload = monitor.pid();
    let client = monitor.attach();
    bundle.start();
    monitor.log_has("ready");
    let long = monitor.long();
    wait::eventually(Deadline::usual(), "the orphans to be reaped", || long.children() == [payload]);
    client.half_close();
    assert_eq!(monitor.exit_code(), "5");
    assert_eq!(monitor.log().stream(Out::Stdout), b"ready\n");
    monitor.end();
    bundle.delete();
}
