//! Processes executed in a container, many at a time: by the control socket of its one monitor, and by a monitor each, as
//! CRI-O's ExecSync has it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use dunnage_testing::Process;
use dunnage_testing::wait::{self, Deadline};
use nix::unistd::pipe;
use serde_json::{Value, json};

use super::life::{call_runc, make_bundle, runc};
use crate::bench::{BOUND, Bench, Shim};
use crate::figure::{Figure, Goal, Pair, Samples, Who};
use crate::proc;

/// How many, unless `BENCH_EXECS` says otherwise.
const EXECS: usize = 5_000;

const AT_A_TIME: usize = 20;

/// How many there are before memory is looked at first: all that is done once was done then.
const WARM: usize = 40;

/// How often memory is looked at.
const INTERVAL: Duration = Duration::from_millis(10);

/// Longer than what was needed for a burst is kept.
const QUIET: Duration = Duration::from_secs(3);

/// What so many execs took.
#[derive(Default)]
struct Taken {
    time: Duration,
    /// Of the monitors alone: what runtimes and processes take is the same for both.
    cpu: Duration,
    /// The most private dirty memory that all monitors had at one time, in KiB.
    peak: u64,
}

pub(crate) fn execs(bench: &Bench) -> Vec<Figure> {
    if Command::new("runc").arg("--version").output().is_err() {
        eprintln!("bench: there is no runc, so execs are left out");
        return Vec::new();
    }
    let count = env::var("BENCH_EXECS").ok().map_or(EXECS, |count| count.parse().expect("BENCH_EXECS is a number"));
    let (mut time, mut cpu, mut peak) = (Pair::default(), Pair::default(), Pair::default());
    let mut grown = Samples::default();
    for who in Who::BOTH {
        let container = Container::start(bench, who);
        let taken = match who {
            Who::Dunnage => {
                container.by_one_monitor(WARM);
                let before = container.memory_at_rest();
                let taken = container.by_one_monitor(count);
                #[expect(clippy::cast_precision_loss)]
                grown.push(container.memory_at_rest() as f64 - before as f64);
                assert_eq!(container.shim.long.zombies().len(), 0, "zombies are left");
                taken
            }
            Who::Conmon => {
                container.by_a_monitor_each(WARM);
                container.by_a_monitor_each(count)
            }
        };
        time.push(who, taken.time.as_secs_f64());
        cpu.push(who, taken.cpu.as_secs_f64());
        #[expect(clippy::cast_precision_loss)]
        peak.push(who, taken.peak as f64);
        container.end();
    }
    vec![
        time.figure(&format!("{count} execs with runc, {AT_A_TIME} at a time"), "s", Goal::Shown),
        cpu.figure("  processor time of the monitors", "s", Goal::AtMostTimes(0.5)),
        peak.figure("  private dirty memory of all monitors, at most", "KiB", Goal::AtMostTimes(0.1)),
        Figure::alone("  more of it afterwards than before", "KiB", grown, Goal::AtMost(64.0)),
    ]
}

/// A container that runs.
struct Container<'a> {
    bench: &'a Bench,
    who: Who,
    shim: Shim<'a>,
    id: String,
    root: PathBuf,
}

impl<'a> Container<'a> {
    fn start(bench: &'a Bench, who: Who) -> Self {
        let (bundle, root) = (bench.dir.join(format!("exec-bundle-{who:?}")), bench.dir.join("exec-root"));
        make_bundle(bench, &bundle);
        let id = format!("bench-{}-execs-{who:?}", std::process::id()).to_lowercase();
        let mut monitor = bench.monitor(who, "").id(&id).runtime(&runc(), &bundle, &root);
        if who == Who::Dunnage {
            monitor = monitor.option(&["--control-socket", &socket(bench).to_string_lossy()]);
        }
        let shim = monitor.start();
        call_runc(&root, &["start", &id]);
        Self { bench, who, shim, id, root }
    }

    fn end(self) {
        self.shim.kill();
        call_runc(&self.root, &["delete", "--force", &self.id]);
    }

    fn memory_at_rest(&self) -> u64 {
        proc::cpu_when_quiet(&self.shim.long, QUIET);
        proc::memory(&self.shim.long).dirty
    }

    /// By calls of `ExecSync`.
    fn by_one_monitor(&self, count: usize) -> Taken {
        let socket = socket(self.bench);
        let before = proc::cpu(&self.shim.long);
        let (time, peak) = self.many(count, &Mutex::default(), |connection: &mut Option<Caller>| {
            connection.get_or_insert_with(|| Caller::connect(&socket)).execute();
        });
        Taken { time, cpu: proc::cpu(&self.shim.long).saturating_sub(before), peak }
    }

    /// By a monitor each, which waits for its process to end.
    fn by_a_monitor_each(&self, count: usize) -> Taken {
        let (running, cpu, number) = (Mutex::default(), Mutex::new(Duration::ZERO), AtomicUsize::new(0));
        let spec = self.bench.dir.join("exec.json");
        fs::write(&spec, process().to_string()).expect("a process");
        let (time, peak) = self.many(count, &running, |_: &mut Option<()>| {
            let files = self.bench.dir.join(format!("exec-{}", number.fetch_add(1, Ordering::Relaxed)));
            let took = self.execute_by_monitor(&spec, &files, &running);
            *cpu.lock().expect("nobody panicked") += took;
        });
        Taken { time, cpu: cpu.into_inner().expect("nobody panicked"), peak }
    }

    /// How long the monitor of one exec ran.
    fn execute_by_monitor(&self, spec: &Path, files: &Path, running: &Mutex<Vec<i32>>) -> Duration {
        let log: OsString = [OsString::from("k8s-file:"), files.with_extension("log").into()].into_iter().collect();
        let root = format!("--root={}", self.root.display());
        let argv: [OsString; 17] = [
            self.bench.program(self.who).into(),
            "--sync".into(),
            "-c".into(),
            self.id.clone().into(),
            "-n".into(),
            self.id.clone().into(),
            "-r".into(),
            runc().into(),
            "--runtime-arg".into(),
            root.into(),
            "-p".into(),
            files.with_extension("pid").into(),
            "-l".into(),
            log,
            "-e".into(),
            "--exec-process-spec".into(),
            spec.into(),
        ];
        let (sync, its_sync) = pipe().expect("a pipe");
        let null = File::options().read(true).write(true).open("/dev/null").expect("/dev/null");
        let mut environment = self.bench.environment("");
        environment.push(("_OCI_SYNCPIPE".into(), "3".into()));
        let fds = [(null.as_fd(), 0), (null.as_fd(), 1), (null.as_fd(), 2), (its_sync.as_fd(), 3)];
        let monitor = Process::spawn(&argv, &environment, &fds);
        drop(its_sync);
        running.lock().expect("nobody panicked").push(monitor.pid());
        monitor.wait_end(Deadline::after(BOUND), "an exec's monitor");
        running.lock().expect("nobody panicked").retain(|pid| *pid != monitor.pid());
        // Of a zombie, as long as nobody waits for it.
        let cpu = proc::cpu(&monitor);
        monitor.wait_status(Deadline::usual(), "an exec's monitor");
        let mut messages = String::new();
        File::from(sync).read_to_string(&mut messages).expect("the sync pipe");
        let last: Value = messages.lines().last().and_then(|line| serde_json::from_str(line).ok()).expect("a message");
        assert_eq!(last["exit_code"], 0, "{messages}");
        for extension in ["log", "pid"] {
            let _ = fs::remove_file(files.with_extension(extension));
        }
        cpu
    }

    /// Does something so often, so many at a time. How long that took, and how much memory the container's monitor and
    /// those that `running` names had at most.
    fn many<T: Default>(
        &self,
        count: usize,
        running: &Mutex<Vec<i32>>,
        once: impl Fn(&mut T) + Sync,
    ) -> (Duration, u64) {
        let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let begin = Instant::now();
        thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut peak = 0;
                while !over.load(Ordering::Relaxed) {
                    let others = running.lock().expect("nobody panicked").clone();
                    let others = others.into_iter().filter_map(proc::dirty_of).sum::<u64>();
                    peak = peak.max(proc::memory(&self.shim.long).dirty + others);
                    thread::sleep(INTERVAL);
                }
                peak
            });
            let callers: Vec<_> = (0..AT_A_TIME)
                .map(|_| {
                    scope.spawn(|| {
                        let mut kept = T::default();
                        while next.fetch_add(1, Ordering::Relaxed) < count {
                            once(&mut kept);
                        }
                    })
                })
                .collect();
            let ended: Vec<_> = callers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            let time = begin.elapsed();
            over.store(true, Ordering::Relaxed);
            let peak = watch.join().expect("the watch");
            assert!(ended.iter().all(Result::is_ok), "an exec failed");
            (time, peak)
        })
    }
}

fn socket(bench: &Bench) -> PathBuf {
    bench.dir.join("control")
}

/// What is executed: a program that does nothing.
fn process() -> Value {
    let user = json!({"uid": 0, "gid": 0});
    json!({"terminal": false, "user": user, "args": ["/payload", "payload", "read 0"], "env": [], "cwd": "/"})
}

/// A client of the control socket.
struct Caller(BufReader<UnixStream>);

impl Caller {
    fn connect(path: &Path) -> Self {
        Self(BufReader::new(UnixStream::connect(path).expect("the control socket")))
    }

    fn execute(&mut self) {
        let call = json!({"method": "org.dunnage.shim.ExecSync", "parameters": {"process": process()}});
        self.0.get_mut().write_all(format!("{call}\0").as_bytes()).expect("a call");
        wait::readable(self.0.get_ref(), Deadline::after(BOUND), "an answer");
        let mut answer = Vec::new();
        self.0.read_until(0, &mut answer).expect("an answer");
        let answer: Value = serde_json::from_slice(&answer[..answer.len() - 1]).expect("JSON");
        assert_eq!(answer["parameters"]["exit_code"], 0, "{answer}");
    }
}
