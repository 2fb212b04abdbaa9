//! Generations: how long they take to start, to be switched to, and to be killed and proven gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Caller, Process};
use nix::libc::SIGKILL;
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::figure::{Figure, Goal, Samples, Who};

const ROUNDS: usize = 100;

/// How many processes a generation has that is killed, and how often.
const CROWDS: [(usize, usize); 3] = [(1, ROUNDS), (100, 30), (1000, 10)];

pub(crate) fn generations(bench: &Bench) -> Vec<Figure> {
    let Some(parent) = Parent::make() else {
        eprintln!("bench: no cgroup2 is mounted, so generations are left out");
        return Vec::new();
    };
    let service = Service::start(bench, parent);
    let (mut stage, mut switch) = (Samples::default(), Samples::default());
    let mut number = 0;
    let mut kills = Vec::new();
    for (processes, rounds) in CROWDS {
        let (mut kill, mut bare) = (Samples::default(), Samples::default());
        service.describe(processes);
        for _ in 0..rounds {
            number += 1;
            let staging = service.stage(number);
            bench.wait_done();
            let switching = service.call("Switch", &json!({"n": number}));
            kill.push(service.call("KillGeneration", &json!({"n": number, "timeout_ms": 60_000})));
            bare.push(service.kill_bare(processes));
            if processes == 1 {
                stage.push(staging);
                switch.push(switching);
            }
        }
        let plural = if processes == 1 { "process" } else { "processes" };
        let what = format!("kill to proven: {processes} {plural}");
        kills.push(Figure::beside(&what, "ms", kill, ("bare", bare), Goal::Shown));
    }
    let mut figures = vec![
        Figure::alone("stage: called to running", "ms", stage, Goal::Shown),
        Figure::alone("switch", "ms", switch, Goal::Shown),
    ];
    figures.append(&mut kills);
    figures
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// The service's cgroup, emptied and removed when it goes.
struct Parent(PathBuf);

impl Parent {
    fn make() -> Option<Self> {
        let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        let mount = mounts.into_iter().find(|mount| mount.join("cgroup.procs").exists())?;
        let path = mount.join(format!("dunnage-bench-{}", std::process::id()));
        fs::create_dir(&path).expect("a cgroup");
        Some(Self(path))
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        wait::whether(Deadline::usual(), || {
            let children = fs::read_dir(&self.0).into_iter().flatten().filter_map(Result::ok);
            for child in children.filter(|child| child.path().is_dir()) {
                let _ = fs::remove_dir(child.path());
            }
            fs::remove_dir(&self.0).is_ok()
        });
    }
}

/// A shim for a service whose only build is the payload.
struct Service<'a> {
    bench: &'a Bench,
    parent: Parent,
    build: PathBuf,
    control: PathBuf,
    shim: Process,
}

impl<'a> Service<'a> {
    fn start(bench: &'a Bench, parent: Parent) -> Self {
        let dir = bench.dir.join("service");
        for part in ["run", "state"] {
            fs::create_dir_all(dir.join(part)).expect("a directory");
        }
        let build = dir.join("build");
        fs::copy(&bench.runtime, &build).expect("a build");
        let file = json!({
            "layout": "flat", "run_dir": dir.join("run"), "canonical_socket": dir.join("web.sock"), "cgroup": parent.0,
        });
        fs::write(dir.join("service.json"), file.to_string()).expect("a service file");
        let (control, pid) = (dir.join("control"), dir.join("pid"));
        let mut command = Command::new(bench.program(Who::Dunnage));
        command.args(["--cid", "bench", "--log-path", "none", "--service"]).arg(dir.join("service.json"));
        command.arg("--control-socket").arg(&control).arg("--persist-dir").arg(dir.join("state"));
        let started = command.arg("--conmon-pidfile").arg(&pid).status().expect("dunnage");
        assert!(started.success(), "the shim does not start");
        let pid = fs::read_to_string(pid).expect("the shim's pid").parse().expect("a number");
        Self { bench, parent, build, control, shim: Process::open(pid).expect("the shim") }
    }

    /// So many processes are what the build has from now on.
    fn describe(&self, processes: usize) {
        let steps = format!("listen;crowd {};done;hang", processes - 1);
        let done = format!("BENCH_DONE={}", self.bench.dir.join("done").display());
        let manifest = json!({"args": ["payload", steps], "env": [done]});
        let mut path = self.build.clone().into_os_string();
        path.push(".manifest.json");
        fs::write(path, manifest.to_string()).expect("a manifest");
    }

    /// How long a call took that must not fail.
    fn call(&self, method: &str, parameters: &Value) -> f64 {
        let mut caller = Caller::connect(&self.control);
        let begin = Instant::now();
        caller.call(method, parameters);
        millis(begin)
    }

    fn stage(&self, number: usize) -> f64 {
        let mut caller = Caller::connect(&self.control);
        let begin = Instant::now();
        caller.ask_for_more("Stage", &json!({"n": number, "build": "build", "staged_path": self.build}));
        let answer = caller.answer();
        let took = millis(begin);
        assert!(answer["parameters"]["started"].is_object(), "{answer}");
        took
    }

    /// The least that a kill and its proof can take: without a shim, by the kernel alone.
    fn kill_bare(&self, processes: usize) -> f64 {
        let cgroup = self.parent.0.join("bare");
        fs::create_dir(&cgroup).expect("a cgroup");
        let script = format!(
            "echo $$ >'{}/cgroup.procs'; exec '{}' payload 'crowd {};done;hang'",
            cgroup.display(),
            self.bench.runtime.display(),
            processes - 1
        );
        let argv = ["/bin/sh".into(), "-c".into(), script.into()];
        let leader = Process::spawn(&argv, &self.bench.environment(""), &[]);
        self.bench.wait_done();
        let is_empty = || fs::read_to_string(cgroup.join("cgroup.events")).expect("its events").contains("populated 0");
        let begin = Instant::now();
        fs::write(cgroup.join("cgroup.kill"), "1").expect("a kill");
        // Not by notification, of which the kernel gives one in 10 ms.
        while !is_empty() {
            std::hint::spin_loop();
        }
        let took = millis(begin);
        leader.wait_status(Deadline::usual(), "the end of a leader");
        wait::eventually(Deadline::usual(), "a cgroup to be removed", || fs::remove_dir(&cgroup).is_ok());
        took
    }
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        self.shim.signal(SIGKILL);
        wait::whether(Deadline::after(Duration::from_secs(5)), || self.shim.has_ended());
    }
}
