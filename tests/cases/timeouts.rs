//! `--timeout`: R17, and what of group B is about it.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Monitor, Out, Process, Running, Sandbox, Script, Status, Step};

use crate::{SOON, dunnage};

/// What has a timeout.
type Job = (&'static str, fn(Monitor<'_>) -> Monitor<'_>);

const JOBS: [Job; 5] = [
    ("create", |monitor| monitor),
    ("create, legacy", |monitor| monitor.legacy()),
    ("restore", |monitor| monitor.option("--restore", "/c")),
    ("exec", |monitor| monitor.exec()),
    ("exec, legacy", |monitor| monitor.exec().legacy()),
];

/// A second, the shortest there is.
fn limited(monitor: Monitor<'_>) -> Monitor<'_> {
    monitor.option("--timeout", "1")
}

/// Nothing that was started in the sandbox lives on: not even what the monitor no longer sees.
fn nothing_is_left(sandbox: &Sandbox) {
    wait::eventually(Deadline::after(SOON), "all processes to be gone", || sandbox.processes().is_empty());
}

/// The exec's caller is told, and there is nothing left of it.
fn expect_timed_out(sandbox: &Sandbox, monitor: &mut Running<'_>) {
    let messages = monitor.messages();
    let last = messages.last().unwrap_or_else(|| panic!("no message; stderr: {}", monitor.stderr()));
    assert_eq!((&last["data"], &last["message"]), (&(-1).into(), &"command timed out".into()), "{messages:?}");
    monitor.status();
    monitor.end();
    nothing_is_left(sandbox);
}

#[test]
fn r17_whatever_times_out_ends_with_minus_1() {
    for (job, begin) in JOBS {
        let sandbox = Sandbox::with(&Script::new([Step::Setsid, Step::out("hello\n"), Step::Hang]));
        let mut monitor = limited(begin(dunnage(&sandbox))).start();
        let started = Instant::now();
        let messages = monitor.messages();
        assert_eq!(monitor.exit_code(), "-1", "{job}");
        let took = started.elapsed();
        assert!(took > Duration::from_millis(900) && took < Duration::from_secs(1) + SOON, "{job}: {took:?}");
        assert_eq!(fs::read_to_string(sandbox.persist().join("exit")).expect("an exit file"), "-1", "{job}");
        monitor.end();
        assert!(monitor.log().is(b"hello\n", b""), "{job}");
        let told = messages.last().expect("a message");
        match job {
            "exec" => assert_eq!((&told["data"], &told["message"]), (&(-1).into(), &"command timed out".into())),
            "exec, legacy" => {
                assert_eq!(messages.len(), 1);
                assert_eq!((&told["exit_code"], &told["message"]), (&(-1).into(), &"command timed out".into()));
            }
            // Its caller was told that it started, and reads the rest in the exit file.
            _ => assert!(messages.len() == 1 && told.get("message").is_none(), "{job}: {messages:?}"),
        }
        nothing_is_left(&sandbox);
    }
}

#[test]
fn r17_the_status_of_a_monitor_whose_process_timed_out() {
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let mut monitor = limited(dunnage(&sandbox).exec_sync()).start();
    assert_eq!(monitor.stdout() + &monitor.stderr(), "");
    assert_eq!(monitor.message().expect("a message")["message"], "command timed out");
    assert_eq!(monitor.status(), Status::Exited(255));
}

#[test]
fn r17_the_process_is_reaped_before_anybody_is_told() {
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let mut monitor = limited(dunnage(&sandbox).exec()).start();
    let payload = monitor.payload();
    assert_eq!(monitor.message().expect("a message")["message"], "command timed out");
    // A zombie would still be there.
    assert!(!payload.proc_dir().exists() || Process::open(payload.pid()).is_none());
}

#[test]
fn b01_a_timeout_ends_all_that_was_started() {
    let script = "sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & wait' &) ; echo started; wait";
    for (job, begin) in JOBS {
        let sandbox = Sandbox::with(&Script::new([Step::Setsid, Step::shell(script)]));
        let mut monitor = limited(begin(dunnage(&sandbox))).start();
        monitor.log_has("started");
        assert_eq!(monitor.exit_code(), "-1", "{job}");
        monitor.messages();
        monitor.end();
        nothing_is_left(&sandbox);
    }
}

#[test]
fn b01_a_timeout_ends_what_forks_all_the_time() {
    // In a session of its own, and as a daemon that its parent has left: some that stay, and then on and on.
    let forks = "n=0; while [ $n -lt 200 ]; do sleep 100 & n=$((n+1)); done; while :; do /bin/true; done";
    let daemons =
        "n=0; while [ $n -lt 200 ]; do (setsid sleep 100 &); n=$((n+1)); done; while :; do (setsid true &); done";
    let script = format!("setsid sh -c '{forks}' & (setsid sh -c '{daemons}' &); echo started; {forks}");
    let sandbox = Sandbox::with(&Script::new([Step::Setsid, Step::shell(&script)]));
    let mut monitor = limited(dunnage(&sandbox).exec()).start();
    monitor.log_has("started");
    expect_timed_out(&sandbox, &mut monitor);
}

#[test]
fn b01_a_timeout_ends_what_is_stopped() {
    let sandbox = Sandbox::new();
    let stopped = Step::Spawn(vec![Step::Setsid, Step::Raise(19), Step::Hang]);
    sandbox.script(&Script::new([Step::Setsid, stopped, Step::Raise(19), Step::Hang]));
    let mut monitor = limited(dunnage(&sandbox).exec()).start();
    expect_timed_out(&sandbox, &mut monitor);
}

#[test]
fn b07_a_timeout_ends_what_ignores_sigterm() {
    let sandbox =
        Sandbox::with(&Script::new([Step::Setsid, Step::shell("trap '' TERM INT HUP; sleep 1000; sleep 1000")]));
    let mut monitor = limited(dunnage(&sandbox).exec()).start();
    let started = Instant::now();
    expect_timed_out(&sandbox, &mut monitor);
    assert!(started.elapsed() < Duration::from_secs(1) + SOON, "{:?}", started.elapsed());
}

#[test]
fn b03_probes_that_time_out_leave_nothing_behind() {
    // Several at a time, as each takes its second.
    for _ in 0..5 {
        let sandboxes: Vec<_> = (0..10).map(|_| Sandbox::new()).collect();
        let mut monitors: Vec<_> = sandboxes
            .iter()
            .map(|sandbox| {
                sandbox.script(&Script::new([Step::Setsid, Step::shell("(setsid sleep 1000 &); sleep 1000")]));
                limited(dunnage(sandbox).exec()).start()
            })
            .collect();
        for (sandbox, monitor) in sandboxes.iter().zip(&mut monitors) {
            expect_timed_out(sandbox, monitor);
        }
    }
}

#[test]
fn b04_what_holds_the_output_delays_neither_the_end_nor_the_timeout() {
    let background = || Step::Spawn(vec![Step::Setsid, Step::out("background\n"), Step::fire("ready"), Step::Hang]);
    let sandbox = Sandbox::new();
    let ready = sandbox.event("ready");
    let end = sandbox.event("end");
    sandbox.script(&Script::new([background(), Step::wait("end"), Step::out("last\n"), Step::Exit(0)]));
    let mut monitor = dunnage(&sandbox).exec().option("--timeout", "2").start();
    let payload = monitor.payload();
    ready.wait();
    end.fire();
    payload.wait_end(Deadline::usual(), "the exec's process");
    let ended = Instant::now();
    let message = monitor.message().expect("a message");
    assert_eq!((&message["data"], message.get("message")), (&0.into(), None), "its own code");
    assert!(ended.elapsed() < Duration::from_secs(1), "{:?}", ended.elapsed());
    assert_eq!(monitor.exit_code(), "0");
    monitor.end();
    assert!(monitor.log().is(b"background\nlast\n", b""));

    let sandbox = Sandbox::new();
    let ready = sandbox.event("ready");
    sandbox.script(&Script::new([background(), Step::Hang]));
    let mut monitor = limited(dunnage(&sandbox).exec()).start();
    ready.wait();
    expect_timed_out(&sandbox, &mut monitor);
}

#[test]
fn r17_one_that_ended_in_time_keeps_its_code_however_late_it_is_collected() {
    for (job, begin) in JOBS {
        let sandbox = Sandbox::new();
        let end = sandbox.event("end");
        sandbox.script(&Script::new([Step::wait("end"), Step::Exit(7)]));
        let mut monitor = limited(begin(dunnage(&sandbox))).start();
        let pid = wait::file(&sandbox.pid_file(), Deadline::usual(), "the pid", |pid| {
            std::str::from_utf8(pid?).ok()?.parse().ok()
        });
        let payload = Process::open(pid).expect("the process waits");
        monitor.status();
        let long = monitor.long();
        long.signal(19);
        wait::eventually(Deadline::usual(), "the monitor to be stopped", || {
            dunnage_testing::status(&long.proc_dir()).is_ok_and(|status| status["State"].starts_with('T'))
        });
        end.fire();
        payload.wait_end(Deadline::usual(), "the process");
        // Its time is over before the monitor looks.
        thread::sleep(Duration::from_millis(1300));
        long.signal(18);
        assert_eq!(monitor.exit_code(), "7", "{job}");
        assert!(monitor.messages().iter().all(|message| message.get("message").is_none()), "{job}");
    }
}

#[test]
fn r17_the_time_counts_from_the_process_not_from_its_runtime() {
    let [payload, console, pid] = Step::usual();
    let runtime = [payload, console, Step::Sleep(1500), pid];
    let sandbox = Sandbox::with(&Script::runtime(runtime).payload([Step::wait("end"), Step::Exit(7)]));
    let end = sandbox.event("end");
    let mut monitor = limited(dunnage(&sandbox).exec()).start();
    monitor.pid();
    end.fire();
    assert_eq!(monitor.message().expect("a message")["data"], 7);
}

#[test]
fn r17_the_exit_command_follows_a_timeout() {
    let sandbox = Sandbox::with(&Script::new([Step::Hang]));
    let check = format!("cat {} >> {}/codes", sandbox.exit_file().display(), sandbox.root().display());
    let mut monitor = limited(dunnage(&sandbox).exec()).exit_command(&[Step::shell(&check)]).start();
    expect_timed_out(&sandbox, &mut monitor);
    assert_eq!(fs::read_to_string(sandbox.root().join("codes")).expect("it ran"), "-1");
}

#[test]
fn r17_what_a_flood_printed_before_its_timeout_is_logged() {
    let sandbox = Sandbox::with(&Script::new([Step::Setsid, Step::Flood(Out::Stdout)]));
    let log = sandbox.log();
    let monitor = limited(dunnage(&sandbox).exec()).option("-l", format!("k8s-file:{}", log.display()));
    let mut monitor = monitor.option("--log-size-max", "65536").start();
    expect_timed_out(&sandbox, &mut monitor);
    // Its last record is whole.
    assert!(!monitor.log().entries.is_empty());
}

#[test]
fn r17_a_client_that_does_not_read_delays_no_timeout() {
    let cases: [Job; 2] = [("pipes", |monitor| monitor), ("terminal", |monitor| monitor.flag("-t"))];
    for (case, change) in cases {
        let sandbox = Sandbox::with(&Script::new([Step::Flood(Out::Stdout)]));
        let mut monitor = limited(change(dunnage(&sandbox))).exec_attach().option("-l", "none").start();
        monitor.attach_message();
        let client = monitor.attach();
        monitor.go();
        monitor.pid();
        let started = Instant::now();
        assert_eq!(monitor.message().expect("a message")["message"], "command timed out", "{case}");
        assert_eq!(monitor.exit_code(), "-1", "{case}");
        let took = started.elapsed();
        assert!(took < Duration::from_secs(1) + SOON, "{case}: {took:?}");
        drop(client);
        monitor.end();
        nothing_is_left(&sandbox);
    }
}

#[test]
fn r17_a_timeout_may_be_as_long_as_it_likes() {
    for value in ["2147483647", "0x7fffffff"] {
        let sandbox = Sandbox::with(&Script::new([Step::Exit(3)]));
        let command = [Step::report("exited.json")];
        let mut monitor = dunnage(&sandbox).exec().option("--timeout", value).exit_command(&command).start();
        monitor.pid();
        assert_eq!(monitor.message().expect("a message")["data"], 3, "{value}");
        monitor.end();
    }
}

/// A cgroup of the test's own, removed with what is in it.
pub(crate) struct Frozen {
    path: std::path::PathBuf,
    switch: &'static str,
    on: &'static str,
    off: &'static str,
}

impl Frozen {
    /// In the v1 freezer, where SIGKILL waits for the thaw.
    pub(crate) fn v1(name: &str) -> Self {
        Self::create("/sys/fs/cgroup/freezer", name, "freezer.state", "FROZEN", "THAWED")
    }

    /// In cgroup v2, where SIGKILL kills what is frozen.
    fn v2(name: &str) -> Self {
        let root = if std::path::Path::new("/sys/fs/cgroup/unified").exists() {
            "/sys/fs/cgroup/unified"
        } else {
            "/sys/fs/cgroup"
        };
        Self::create(root, name, "cgroup.freeze", "1", "0")
    }

    fn create(root: &str, name: &str, switch: &'static str, on: &'static str, off: &'static str) -> Self {
        let path = std::path::Path::new(root).join(format!("dunnage-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, switch, on, off }
    }

    pub(crate) fn add(&self, pid: i32) {
        fs::write(self.path.join("cgroup.procs"), pid.to_string()).expect("a process can be moved");
    }

    pub(crate) fn freeze(&self) {
        fs::write(self.path.join(self.switch), self.on).expect("it can be frozen");
    }

    fn thaw(&self) {
        fs::write(self.path.join(self.switch), self.off).expect("it can be thawed");
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = fs::write(self.path.join(self.switch), self.off);
        for pid in fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default().lines() {
            if let Some(process) = pid.parse().ok().and_then(Process::open) {
                process.signal(9);
                process.wait_end(Deadline::usual(), "a process that was thawed and killed");
            }
        }
        if let Err(error) = fs::remove_dir(&self.path) {
            eprintln!("{}: {error}", self.path.display());
        }
    }
}

#[test]
fn d11_a_frozen_exec_on_cgroup_v2_times_out() {
    let sandbox = Sandbox::with(&Script::new([Step::Setsid, Step::shell("sleep 1000 & sleep 1000")]));
    let cgroup = Frozen::v2("d11");
    let mut monitor = dunnage(&sandbox).exec().option("--timeout", "2").start();
    let pid = monitor.pid();
    let started = Instant::now();
    cgroup.add(pid);
    cgroup.freeze();
    expect_timed_out(&sandbox, &mut monitor);
    assert!(started.elapsed() < Duration::from_secs(2) + SOON, "{:?}", started.elapsed());
}

#[test]
fn d11_a_frozen_exec_on_cgroup_v1_times_out_once_it_can_die() {
    let sandbox = Sandbox::with(&Script::new([Step::Setsid, Step::Hang]));
    let cgroup = Frozen::v1("d11-exec");
    let mut monitor = limited(dunnage(&sandbox).exec()).start();
    let pid = monitor.pid();
    cgroup.add(pid);
    cgroup.freeze();
    // Told to die, it cannot: 9 is among what is pending.
    wait::eventually(Deadline::usual(), "the process to be killed", || {
        let status = dunnage_testing::status(std::path::Path::new(&format!("/proc/{pid}"))).unwrap_or_default();
        let pending = |set: &str| status.get(set).and_then(|set| u64::from_str_radix(set, 16).ok()).unwrap_or(0);
        (pending("SigPnd") | pending("ShdPnd")) & (1 << 8) != 0
    });
    assert!(!sandbox.exit_file().exists(), "nobody is told of an end that was not seen");
    cgroup.thaw();
    expect_timed_out(&sandbox, &mut monitor);
}

#[test]
fn d11_an_exec_whose_runtime_is_frozen_fails_in_time() {
    let sandbox = Sandbox::new();
    let cgroup = Frozen::v1("d11-runtime");
    let (ready, go) = (sandbox.event("ready"), sandbox.event("go"));
    sandbox.script(&Script::runtime([Step::fire("ready"), Step::wait("go")]));
    let monitor = limited(dunnage(&sandbox).exec());
    let mut monitor = monitor.option("--exec-runtime-grace", "0.5").option("--runtime-grace", "0.5").start();
    ready.wait();
    let started = Instant::now();
    let runtime: dunnage_testing::Facts = sandbox.report(dunnage_testing::script::RUNTIME_FACTS);
    cgroup.add(runtime.pid);
    cgroup.freeze();
    let message = monitor.message().expect("a message");
    assert_eq!(message["data"], -1);
    assert!(message["message"].as_str().is_some_and(|text| !text.is_empty()), "{message}");
    assert!(started.elapsed() < Duration::from_secs(2) + SOON, "{:?}", started.elapsed());
    drop(go);
}
