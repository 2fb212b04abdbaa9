//! Where it all happens: a directory, the programs that are measured, and a monitor that was started there.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, process};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Client, Process};
use nix::libc::{SIGKILL, SIGTERM};
use nix::sys::stat::Mode;
use nix::unistd::{mkfifo, pipe};

use crate::figure::Who;

/// How long anything may take that is measured.
pub(crate) const BOUND: Duration = Duration::from_secs(120);

/// The bench's own directory, removed when it goes.
pub(crate) struct Bench {
    pub(crate) dir: PathBuf,
    /// The fake runtime.
    pub(crate) runtime: PathBuf,
    dunnage: PathBuf,
    go: File,
    done: File,
}

impl Bench {
    /// Makes the directory, in memory where there is `/dev/shm`: a disk is not what is measured.
    pub(crate) fn new() -> Self {
        let base = env::var_os("BENCH_DIR").map_or_else(
            || if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { env::temp_dir() },
            PathBuf::from,
        );
        let dir = base.join(format!("dunnage-bench-{}", process::id()));
        for part in ["bundle", "exits", "sockets"] {
            fs::create_dir_all(dir.join(part)).expect("a directory");
        }
        // All are built into one directory. The bench is there to find them.
        let built = env::current_exe().expect("its own path").with_file_name("");
        let fifo = |name: &str| {
            let path = dir.join(name);
            mkfifo(&path, Mode::S_IRWXU).expect("a fifo");
            OpenOptions::new().read(true).write(true).open(path).expect("a fifo")
        };
        let dunnage = env::var_os("BENCH_DUNNAGE").map_or_else(|| built.join("dunnage"), PathBuf::from);
        // A program that was just built counts as dirty memory of who runs it, until it is on the disk.
        File::open(&dunnage).and_then(|file| file.sync_all()).expect("dunnage, built");
        Self { runtime: built.join("bench-runtime"), dunnage, go: fifo("go"), done: fifo("done"), dir }
    }

    /// The program of a monitor.
    pub(crate) fn program(&self, who: Who) -> PathBuf {
        match who {
            Who::Dunnage => self.dunnage.clone(),
            Who::Conmon => "/usr/bin/conmon".into(),
        }
    }

    /// Lets a payload that waits go on.
    pub(crate) fn go(&self) {
        (&self.go).write_all(b"x").expect("a fifo takes a byte");
    }

    /// Waits for a payload's `done`.
    pub(crate) fn wait_done(&self) {
        wait::readable(&self.done, Deadline::after(BOUND), "a payload to be done");
        (&self.done).read_exact(&mut [0]).expect("a byte");
    }

    /// Whether a payload's `done` has come.
    pub(crate) fn is_done(&self) -> bool {
        let done = wait::poll_for(self.done.as_fd(), nix::poll::PollFlags::POLLIN, Deadline::after(Duration::ZERO));
        if done {
            self.wait_done();
        }
        done
    }

    /// The log of the container that was started last.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The environment of what is started.
    pub(crate) fn environment(&self, steps: &str) -> Vec<(OsString, OsString)> {
        vec![
            ("PATH".into(), env::var_os("PATH").unwrap_or_default()),
            ("BENCH_STEPS".into(), steps.into()),
            ("BENCH_GO".into(), self.dir.join("go").into()),
            ("BENCH_DONE".into(), self.dir.join("done").into()),
        ]
    }

    /// A monitor to start, for a container that does these steps.
    pub(crate) fn monitor(&self, who: Who, steps: &str) -> Monitor<'_> {
        Monitor {
            bench: self,
            program: self.program(who),
            id: "container".into(),
            runtime: self.runtime.clone(),
            bundle: self.dir.join("bundle"),
            log: self.log(),
            env: self.environment(steps),
            options: Vec::new(),
        }
    }

    /// The least that a monitor is, started.
    pub(crate) fn bare_monitor(&self, steps: &str) -> Shim<'_> {
        let monitor = self.monitor(Who::Dunnage, steps);
        let mut argv = monitor.argv();
        argv.splice(..1, [self.runtime.clone().into(), "monitor".into()]);
        monitor.start_as(&argv)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A monitor that was not started yet.
pub(crate) struct Monitor<'a> {
    bench: &'a Bench,
    program: PathBuf,
    id: String,
    runtime: PathBuf,
    bundle: PathBuf,
    log: PathBuf,
    env: Vec<(OsString, OsString)>,
    options: Vec<OsString>,
}

impl<'a> Monitor<'a> {
    pub(crate) fn id(mut self, id: &str) -> Self {
        id.clone_into(&mut self.id);
        self
    }

    pub(crate) fn bundle(mut self, bundle: &Path) -> Self {
        bundle.clone_into(&mut self.bundle);
        self
    }

    pub(crate) fn log(mut self, log: impl Into<PathBuf>) -> Self {
        self.log = log.into();
        self
    }

    pub(crate) fn option(mut self, words: &[&str]) -> Self {
        self.options.extend(words.iter().map(Into::into));
        self
    }

    /// Another runtime, and a bundle for it.
    pub(crate) fn runtime(mut self, runtime: &str, bundle: &Path, root: &Path) -> Self {
        self = self.bundle(bundle);
        self.runtime = runtime.into();
        self.options.extend(["--runtime-arg".into(), format!("--root={}", root.display()).into()]);
        self
    }

    /// The command line, as CRI-O would make it.
    pub(crate) fn argv(&self) -> Vec<OsString> {
        let dir = &self.bench.dir;
        let mut argv: Vec<OsString> = vec![self.program.clone().into(), "--no-sync-log".into()];
        let options: [(&str, OsString); 9] = [
            ("-c", self.id.clone().into()),
            ("-u", self.id.clone().into()),
            ("-r", self.runtime.clone().into()),
            ("-b", self.bundle.clone().into()),
            ("-p", dir.join("pid").into()),
            ("-P", dir.join("monitor-pid").into()),
            ("-l", [OsString::from("k8s-file:"), self.log.clone().into()].into_iter().collect()),
            ("--exit-dir", dir.join("exits").into()),
            ("--socket-dir-path", dir.join("sockets").into()),
        ];
        for (name, value) in options {
            argv.extend([name.into(), value]);
        }
        argv.extend(self.options.iter().cloned());
        argv
    }

    /// Starts it and waits for the pid on the sync pipe.
    pub(crate) fn start(self) -> Shim<'a> {
        let argv = self.argv();
        self.start_as(&argv)
    }

    /// The same, with something in front of the command line.
    pub(crate) fn start_as(mut self, argv: &[OsString]) -> Shim<'a> {
        let (sync, its_sync) = pipe().expect("a pipe");
        let null = OpenOptions::new().read(true).write(true).open("/dev/null").expect("/dev/null");
        self.env.push(("_OCI_SYNCPIPE".into(), "3".into()));
        let fds = [(null.as_fd(), 0), (null.as_fd(), 1), (null.as_fd(), 2), (its_sync.as_fd(), 3)];
        let begin = Instant::now();
        let started = Process::spawn(argv, &self.env, &fds);
        drop(its_sync);
        let pid = pid_from(&sync);
        let start = begin.elapsed();
        // The short side, which has nothing left to do.
        started.wait_status(Deadline::usual(), "the short side");
        let read = fs::read_to_string(self.bench.dir.join("monitor-pid")).expect("the monitor's pid");
        let long = Process::open(read.parse().expect("a number")).expect("the monitor");
        let payload = Process::open(pid).expect("the container");
        Shim { bench: self.bench, id: self.id, start, long, payload }
    }
}

/// The container's pid, as the monitor tells it.
pub(crate) fn pid_from(sync: &OwnedFd) -> i32 {
    let mut message = [0; 4096];
    wait::readable(sync, Deadline::usual(), "the pid");
    let length = nix::unistd::read(sync, &mut message).expect("the sync pipe can be read");
    let value: serde_json::Value = serde_json::from_slice(&message[..length]).expect("JSON");
    let pid = value.get("pid").and_then(serde_json::Value::as_i64).and_then(|pid| i32::try_from(pid).ok());
    pid.filter(|pid| *pid > 0).unwrap_or_else(|| panic!("the create failed: {value}"))
}

/// A monitor with its container.
pub(crate) struct Shim<'a> {
    bench: &'a Bench,
    id: String,
    /// From just before it was executed to the pid.
    pub(crate) start: Duration,
    pub(crate) long: Process,
    pub(crate) payload: Process,
}

impl Shim<'_> {
    /// An attach client, accepted.
    pub(crate) fn attach(&self) -> Client {
        let before = crate::proc::sockets(&self.long);
        let path = self.bench.dir.join("sockets").join(&self.id).join("attach");
        let client = Client::connect(&path).expect("an attach socket");
        wait::eventually(Deadline::usual(), "a client to be accepted", || crate::proc::sockets(&self.long) > before);
        client
    }

    /// Kills the container. How long it takes until the exit file is there.
    pub(crate) fn kill(self) -> Duration {
        let exit_file = self.exit_file();
        let payload = self.payload.pid();
        let begin = Instant::now();
        // Not by the pidfd, to lose no time; it was not reaped yet.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(payload), nix::sys::signal::SIGKILL);
        // Not by inotify, whose end alone takes the kernel some 12 ms.
        while !exit_file.exists() {
            assert!(begin.elapsed() < BOUND, "waited in vain for the exit file");
            std::thread::yield_now();
        }
        let exit = begin.elapsed();
        self.finish();
        exit
    }

    /// Waits for the end of a container that ends by itself.
    pub(crate) fn end(self) {
        wait::file_exists(&self.exit_file(), Deadline::after(BOUND));
        self.finish();
    }

    fn exit_file(&self) -> PathBuf {
        self.bench.dir.join("exits").join(&self.id)
    }

    fn finish(self) {
        fs::remove_file(self.exit_file()).expect("an exit file");
        // conmon may wait for what a container left.
        for child in self.long.children() {
            if let Some(child) = Process::open(child) {
                child.signal(SIGKILL);
            }
        }
        if !ends_within(&self.long, Duration::from_secs(5)) {
            self.long.signal(SIGTERM);
        }
        self.long.wait_end(Deadline::usual(), "the monitor");
    }
}

fn ends_within(process: &Process, bound: Duration) -> bool {
    let deadline = Deadline::after(bound);
    while !process.has_ended() {
        if deadline.passed() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
