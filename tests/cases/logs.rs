//! Group F: logs.

use std::fs;
use std::os::unix::fs::symlink;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Log, Out, Sandbox, Script, Status, Step, script};

use crate::dunnage;

#[test]
fn f01_a_limited_log_has_whole_records_alone() {
    let mut steps = Vec::new();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    for round in 0..30 {
        steps.push(Step::Lines(Out::Stdout, 50, 40));
        stdout.extend(script::lines(50, 40));
        steps.push(Step::err("partial "));
        stderr.extend(b"partial ");
        let (long, text) = if round % 2 == 0 { (Out::Stdout, &mut stdout) } else { (Out::Stderr, &mut stderr) };
        steps.push(Step::Lines(long, 1, 100_000));
        text.extend(script::lines(1, 100_000));
        steps.push(Step::err("\n"));
        stderr.extend(b"\n");
    }
    let sandbox = Sandbox::with(&Script::new(steps));
    let mut monitor = dunnage(&sandbox).option("--log-size-max", "20480").start();
    monitor.messages();
    monitor.end();
    // Read strictly: a torn record fails.
    let log = monitor.log();
    let size = fs::metadata(sandbox.log()).expect("the log").len();
    assert!(size <= 20480 || log.entries.len() == 1, "{size} bytes");
    // What is there is the end of what was written.
    assert!(stdout.ends_with(&log.stream(Out::Stdout)) && stderr.ends_with(&log.stream(Out::Stderr)), "{log:?}");
    assert!(!log.entries.is_empty());
}

#[test]
fn f02_every_way_to_name_a_log_works() {
    type Paths = fn(&str) -> Vec<String>;
    let ways: [Paths; 5] = [
        |log| vec![format!("k8s-file:{log}")],
        |log| vec![log.to_owned()],
        |log| vec![format!(":{log}")],
        |log| vec!["k8s-file:/dev/null".to_owned(), format!("k8s-file:{log}")],
        |log| vec![format!("k8s-file:{log}"), "none".to_owned()],
    ];
    for way in ways {
        for limit in ["0", "10000"] {
            let sandbox = Sandbox::with(&Script::new([Step::out("hello\n"), Step::Exit(1)]));
            let mut monitor = dunnage(&sandbox).without("-l").option("--log-size-max", limit);
            let paths = way(sandbox.log().to_str().expect("a plain path"));
            for path in &paths {
                monitor = monitor.also("-l", path);
            }
            let mut monitor = monitor.start();
            monitor.messages();
            monitor.end();
            assert!(monitor.log().is(b"hello\n", b""), "{paths:?}, limit {limit}");
        }
    }
}

#[test]
fn f06_single_bytes_come_together_again() {
    let text = b"one byte at a time\n";
    let steps: Vec<Step> = text.iter().map(|byte| Step::out(&char::from(*byte).to_string())).collect();
    let sandbox = Sandbox::with(&Script::new(steps));
    let mut monitor = dunnage(&sandbox).start();
    monitor.messages();
    monitor.end();
    assert!(monitor.log().is(text, b""));
}

#[test]
fn f07_a_full_disk_costs_output_and_nothing_else() {
    let sandbox = Sandbox::new();
    let (go, done, end) = (sandbox.event("go"), sandbox.event("done"), sandbox.event("end"));
    let dir = sandbox.root().join("small");
    fs::create_dir(&dir).expect("a directory");
    sandbox.script(&Script::new([
        Step::wait("go"),
        Step::Lines(Out::Stdout, 10_000, 100),
        Step::fire("done"),
        Step::wait("go"),
        Step::out("after\n"),
        Step::wait("end"),
        Step::Exit(6),
    ]));
    // Mounted for the monitor and what it starts alone; seen through its root.
    let small = "mount -t tmpfs -o size=64k tmpfs \"$DUNNAGE_SANDBOX/small\"; exec \"$@\"";
    let mut monitor = dunnage(&sandbox)
        .option("-l", dir.join("log"))
        .through(&format!("exec unshare -m --propagation private sh -c '{small}' sh"))
        .start();
    monitor.pid();
    let seen = monitor.long().proc_dir().join("root").join(dir.strip_prefix("/").expect("absolute"));
    let mut client = monitor.attach();
    monitor.accepted(1);
    go.fire();
    done.wait();
    // What the client has, the log had its chance to take.
    client.receive_until(Out::Stdout, "all output", |output| output.len() == 10_000 * 100);
    // The container was not held up, and what is there is whole.
    let before = Log::parse(&fs::read(seen.join("log")).expect("the log"));
    assert!(before.entries.len() > 10, "{before:?}");
    // Now there is room again, and the log says what is missing.
    fs::OpenOptions::new().write(true).truncate(true).open(seen.join("log")).expect("the log can be emptied");
    wait::file(&seen.join("log"), Deadline::usual(), "what was lost", |log| {
        (lost(&Log::parse(log?)) > 0).then_some(())
    });
    go.fire();
    let after = wait::file(&seen.join("log"), Deadline::usual(), "the line after", |log| {
        let log = log.filter(|log| log.ends_with(b" after\n"))?;
        Some(Log::parse(log))
    });
    // A note may have found its room in the full log too.
    let accounted = |log: &Log| log.stream(Out::Stdout).len() + lost(log);
    let printed = 10_000 * 100 + "after\n".len();
    assert_eq!(accounted(&before) + accounted(&after), printed, "every byte is logged or counted as lost");
    end.fire();
    assert_eq!(monitor.exit_code(), "6");
}

/// How many bytes a log says are missing in it.
fn lost(log: &Log) -> usize {
    let missing = log.entries.iter().filter_map(|entry| {
        let text = std::str::from_utf8(&entry.text).ok()?;
        text.strip_prefix("dunnage: ")?.split_once(" bytes of output")?.0.parse::<usize>().ok()
    });
    missing.sum()
}

#[test]
fn f13_a_log_is_reopened_while_the_container_is_stopping() {
    let sandbox = Sandbox::new();
    let (ready, end) = (sandbox.event("ready"), sandbox.event("end"));
    sandbox.script(&Script::new([
        Step::out("before\n"),
        Step::Block(15),
        Step::fire("ready"),
        Step::AwaitSignal(15),
        Step::fire("ready"),
        Step::wait("end"),
        Step::out("after\n"),
    ]));
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    monitor.log_has("before");
    ready.wait();
    monitor.long().signal(15);
    ready.wait();
    let old = sandbox.root().join("old.log");
    fs::rename(sandbox.log(), &old).expect("the log can be renamed");
    monitor.control("2 0 0\n");
    wait::file_exists(&sandbox.log(), Deadline::usual());
    end.fire();
    monitor.end();
    assert!(monitor.log().is(b"after\n", b""));
    assert!(Log::parse(&fs::read(old).expect("the old log")).is(b"before\n", b""));
}

#[test]
fn f16_the_last_line_is_never_lost() {
    for _ in 0..50 {
        let sandbox = Sandbox::with(&Script::new([Step::out("first\nlast"), Step::Exit(0)]));
        let mut monitor = dunnage(&sandbox).start();
        monitor.pid();
        monitor.exit_code();
        // All of it is there before the exit file is.
        assert!(monitor.log().is(b"first\nlast", b""), "{:?}", monitor.log());
    }
}

#[test]
fn f17_many_lines_take_few_writes() {
    let sandbox = Sandbox::new();
    let done = sandbox.event("done");
    let lines = 500_000;
    sandbox.script(&Script::new([Step::Lines(Out::Stdout, lines, 1), Step::fire("done"), Step::Hang]));
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    done.wait();
    let io = fs::read_to_string(monitor.long().proc_dir().join("io")).expect("the monitor's counters");
    let writes = io.lines().find_map(|line| line.strip_prefix("syscw: ")).expect("a counter");
    let writes: usize = writes.parse().expect("a number");
    assert!(writes < lines / 20, "{writes} writes for {lines} lines");
}

#[test]
fn log_and_exit_file_are_synced_unless_told_otherwise() {
    for (told_otherwise, synced) in [(false, vec!["/exit", "/exits/", "ctr.log"]), (true, vec![])] {
        let sandbox = Sandbox::with(&Script::new([Step::out("hello\n"), Step::Exit(0)]));
        let trace = "exec strace -f -qq -y -e signal=none -e trace=fsync,fdatasync -o \"$DUNNAGE_SANDBOX/trace\"";
        let mut monitor = dunnage(&sandbox).through(trace);
        if told_otherwise {
            monitor = monitor.flag("--no-sync-log");
        }
        let mut monitor = monitor.start();
        assert_eq!(monitor.exit_code(), "0");
        // It ends after all that it traces.
        assert_eq!(monitor.status(), Status::Exited(0));
        let trace = fs::read_to_string(sandbox.root().join("trace")).expect("a trace");
        println!("{trace}");
        assert_eq!(trace.lines().count() == 0, told_otherwise);
        for file in synced {
            assert!(trace.contains(file), "{file} is not synced");
        }
    }
}

#[test]
fn a_control_line_that_means_nothing_harms_no_later_one() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    sandbox.script(&Script::new([Step::wait("end"), Step::out("after\n")]));
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    let old = sandbox.root().join("old.log");
    for line in ["7 7 7\n", "garbage\n", "1 20 30\n", "1 5000 1\n", "\n", "1 2\n", &"x".repeat(3000)] {
        monitor.control(line);
    }
    fs::rename(sandbox.log(), &old).expect("the log can be renamed");
    monitor.control("\n9 9 9\n2 0 0\n");
    wait::file_exists(&sandbox.log(), Deadline::usual());
    end.fire();
    monitor.messages();
    monitor.end();
    assert!(monitor.log().is(b"after\n", b""));
}

#[test]
fn a_control_line_may_come_in_pieces() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    sandbox.script(&Script::new([Step::wait("end"), Step::out("after\n")]));
    let mut monitor = dunnage(&sandbox).start();
    monitor.pid();
    let old = sandbox.root().join("old.log");
    fs::rename(sandbox.log(), &old).expect("the log can be renamed");
    monitor.control("2 0");
    monitor.control(" 0\n");
    wait::file_exists(&sandbox.log(), Deadline::usual());
    end.fire();
    assert_eq!(monitor.exit_code(), "0");
    assert!(monitor.log().is(b"after\n", b""));
}

#[test]
fn a_log_that_is_no_regular_file_is_never_replaced() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    sandbox.script(&Script::new([Step::Lines(Out::Stdout, 1000, 100), Step::wait("end"), Step::Exit(3)]));
    // Only the link would be lost if it went wrong.
    symlink("/dev/null", sandbox.log()).expect("a link");
    let mut monitor = dunnage(&sandbox).option("--log-size-max", "1000").start();
    monitor.pid();
    monitor.control("2 0 0\n");
    end.fire();
    assert_eq!(monitor.exit_code(), "3");
    monitor.end();
    assert_eq!(fs::read_link(sandbox.log()).expect("it is a link still").to_str(), Some("/dev/null"));
}

#[test]
fn g05_any_bytes_go_through() {
    let bytes = [script::noise(300_000, 11), vec![0; 10_000], vec![b'\r'; 10_000], vec![0xff; 10_000]].concat();
    let sandbox = Sandbox::new();
    fs::write(sandbox.bundle().join("bytes"), &bytes).expect("a file");
    let cat = format!("cat {}", sandbox.bundle().join("bytes").display());
    sandbox.script(&Script::new([Step::shell(&cat)]));
    let mut monitor = dunnage(&sandbox).start();
    monitor.messages();
    monitor.end();
    assert!(monitor.log().is(&bytes, b""));
}
