//! What comes first where somebody waits, told by the order of the monitor's system calls.

use std::fs;
use std::path::PathBuf;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Facts, Process, Running, Sandbox, Script, Status, Step, Tool};
use nix::libc;

use super::memory::Memory;
use super::{contained, start};

/// The system calls of a monitor that stays.
struct Trace(PathBuf);

impl Trace {
    fn of(sandbox: &Sandbox) -> Self {
        Self(sandbox.root().join("trace"))
    }

    fn prelude(&self) -> String {
        format!("exec strace -qq -y -o {}", self.0.display())
    }

    /// Waits until it has this text.
    fn has(&self, text: &str) {
        wait::file(&self.0, Deadline::usual(), &format!("{text} in the trace"), |trace| {
            String::from_utf8_lossy(trace?).contains(text).then_some(())
        });
    }

    /// One a line, in order. It ends after all that it traces.
    fn to_end(&self, monitor: &mut Running<'_>) -> Vec<String> {
        assert_eq!(monitor.status(), Status::Exited(0));
        let text = fs::read_to_string(&self.0).expect("a trace");
        println!("{text}");
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn the_exit_file_comes_before_signals_and_the_end_of_the_memory_watch() {
    let memory = Memory::new("exit-order");
    let sandbox = Sandbox::new();
    let trace = Trace::of(&sandbox);
    let end = sandbox.event("end");
    let script = contained(&memory, [Step::report("payload"), Step::wait("end"), Step::Exit(0)]);
    let mut monitor = start(&sandbox, &script, |monitor| monitor.sync().through(&trace.prelude()));
    let payload = Process::open(sandbox.report::<Facts>("payload").pid).expect("the payload");
    let traced = Process::open(payload.parent()).expect("the monitor");
    // Of the runtime's end: it rests now.
    trace.has("/children");
    // So that it learns of the next end and of the signal for it at once.
    traced.signal(libc::SIGSTOP);
    trace.has("stopped by SIGSTOP");
    end.fire();
    payload.wait_end(Deadline::usual(), "the container's process");
    traced.signal(libc::SIGCONT);
    let calls = trace.to_end(&mut monitor);

    let is_exit_file = |call: &String| call.starts_with("rename") && call.contains(sandbox.id());
    let told = calls.iter().position(is_exit_file).expect("a rename to the exit file");
    let woken = calls[..told].iter().rposition(|call| call.starts_with("epoll_")).expect("a turn of the loop");
    let next = calls[told..].iter().position(|call| call.starts_with("epoll_pwait")).expect("another turn");
    let (before, after) = (&calls[woken + 1..told], &calls[told + 1..told + next]);
    // Orphans are looked for at a SIGCHLD.
    let reads_signals = |call: &String| call.starts_with("read(") && call.contains("[signalfd]");
    let ends_watch = |call: &String| {
        (call.starts_with("close(") || call.contains("EPOLL_CTL_DEL"))
            && (call.contains("[eventfd]") || call.contains("memory."))
    };
    assert!(!before.iter().any(reads_signals), "signals came first");
    assert!(!before.iter().any(ends_watch), "the end of the memory watch came first");
    assert!(after.iter().any(reads_signals) && after.iter().any(ends_watch), "they do not come in the same turn");
}

#[test]
fn the_hosts_mounts_are_read_while_the_runtime_runs() {
    let sandbox = Sandbox::new();
    let trace = Trace::of(&sandbox);
    let [begun, end] = ["begun", "end"].map(|name| sandbox.event(name));
    let runtime = [Step::fire("begun"), Step::wait("end"), Step::Payload, Step::pid()];
    sandbox.script(&Script::runtime(runtime).payload([Step::Exit(0)]));
    let mut monitor = sandbox.monitor(&Tool::under_test()).sync().through(&trace.prelude()).start();
    begun.wait();
    trace.has("mountinfo");
    end.fire();
    let calls = trace.to_end(&mut monitor);
    // The caller waits for what comes before.
    let first = |what: &[&str]| calls.iter().position(|call| what.iter().any(|what| call.contains(what)));
    assert!(first(&["fork(", "clone("]).expect("a fork") < first(&["mountinfo"]).expect("the mounts"));
}
