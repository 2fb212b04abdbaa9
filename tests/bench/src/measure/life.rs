//! A container's life without output: start, rest, end.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use dunnage_testing::Process;
use dunnage_testing::wait::Deadline;

use crate::bench::Bench;
use crate::figure::{Figure, Goal, Pair, Samples, Who};
use crate::proc;

const STARTS: usize = 300;
const RUNC_STARTS: usize = 20;
const CONTAINERS: usize = 200;
const IDLE: Duration = Duration::from_secs(10);

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub(crate) fn start_and_exit(bench: &Bench) -> Vec<Figure> {
    let (mut start, mut exit) = (Pair::default(), Pair::default());
    let (mut bare_start, mut bare_exit, mut runtime) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..STARTS {
        for who in Who::BOTH {
            let shim = bench.monitor(who, "hang").start();
            start.push(who, millis(shim.start));
            exit.push(who, millis(shim.kill()));
        }
        let bare = bench.bare_monitor("hang");
        bare_start.push(millis(bare.start));
        bare_exit.push(millis(bare.kill()));
        runtime.push(millis(run_runtime(bench)));
    }
    let (starts, exits) = (start.dunnage.clone(), exit.dunnage.clone());
    let mut own = start.clone();
    for samples in [&mut own.dunnage, &mut own.conmon] {
        samples.0.iter_mut().for_each(|took| *took -= runtime.median());
    }
    vec![
        start.figure("start: executed to pid", "ms", Goal::AtMostTimes(0.4)),
        Figure::beside("  beside a bare monitor", "ms", starts, ("bare", bare_start), Goal::Shown),
        own.figure("  less what the runtime takes alone", "ms", Goal::Shown),
        exit.figure("exit: killed to exit file", "ms", Goal::AtMostTimes(0.5)),
        Figure::beside("  beside a bare monitor", "ms", exits, ("bare", bare_exit), Goal::Shown),
    ]
}

/// How long the fake runtime takes without a monitor.
fn run_runtime(bench: &Bench) -> Duration {
    let pid_file = bench.dir.join("pid");
    let argv = [bench.runtime.clone().into(), "create".into(), "--pid-file".into(), pid_file.into(), "id".into()];
    let env = bench.environment("done");
    let begin = Instant::now();
    Process::spawn(&argv, &env, &[]).wait_status(Deadline::usual(), "the runtime");
    let took = begin.elapsed();
    bench.wait_done();
    took
}

pub(crate) fn with_runc(bench: &Bench) -> Vec<Figure> {
    if Command::new("runc").arg("--version").output().is_err() {
        eprintln!("bench: there is no runc, so it is left out");
        return Vec::new();
    }
    let (bundle, root) = (bench.dir.join("runc-bundle"), bench.dir.join("runc-root"));
    make_bundle(bench, &bundle);
    let (mut start, mut exit) = (Pair::default(), Pair::default());
    for round in 0..RUNC_STARTS {
        for who in Who::BOTH {
            let id = format!("bench-{}-{round}-{who:?}", std::process::id()).to_lowercase();
            let shim = bench.monitor(who, "").id(&id).runtime(&runc(), &bundle, &root).start();
            start.push(who, millis(shim.start));
            call_runc(&root, &["start", &id]);
            exit.push(who, millis(shim.kill()));
            call_runc(&root, &["delete", "--force", &id]);
        }
    }
    vec![
        start.figure("start with runc: executed to pid", "ms", Goal::Shown),
        exit.figure("exit with runc: killed to exit file", "ms", Goal::Shown),
    ]
}

pub(super) fn runc() -> String {
    let found = Command::new("sh").args(["-c", "command -v runc"]).output().expect("sh");
    String::from_utf8_lossy(&found.stdout).trim_end().to_owned()
}

pub(super) fn call_runc(root: &Path, args: &[&str]) {
    let ran = Command::new("runc").arg("--root").arg(root).args(args).output().expect("runc");
    assert!(ran.status.success(), "runc {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// A bundle whose only program is the payload.
pub(super) fn make_bundle(bench: &Bench, bundle: &Path) {
    fs::create_dir_all(bundle.join("rootfs")).expect("a root file system");
    fs::copy(&bench.runtime, bundle.join("rootfs/payload")).expect("the payload");
    let ran = Command::new("runc").args(["spec", "--bundle"]).arg(bundle).status().expect("runc");
    assert!(ran.success(), "runc makes no spec");
    let path = bundle.join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("a spec")).expect("JSON");
    config["process"]["terminal"] = false.into();
    config["process"]["args"] = serde_json::json!(["/payload", "payload", "hang"]);
    fs::write(&path, config.to_string()).expect("a spec");
}

pub(crate) fn memory(bench: &Bench) -> Vec<Figure> {
    let (mut idle, mut after) = (Pair::default(), Pair::default());
    let mut grown = Samples::default();
    for who in Who::BOTH {
        let monitor = bench.monitor(who, "wait;lines 100 1073741824;done;hang").log("/dev/null");
        let shim = monitor.start();
        proc::cpu_when_quiet(&shim.long, Duration::from_millis(500));
        let before = proc::memory(&shim.long).dirty;
        bench.go();
        bench.wait_done();
        // Longer than large buffers are kept.
        proc::cpu_when_quiet(&shim.long, Duration::from_secs(3));
        let now = proc::memory(&shim.long).dirty;
        #[expect(clippy::cast_precision_loss)]
        {
            idle.push(who, before as f64);
            after.push(who, now as f64);
            if who == Who::Dunnage {
                grown.push(now as f64 - before as f64);
            }
        }
        shim.kill();
    }
    vec![
        Figure::alone("idle: private dirty memory", "KiB", idle.dunnage.clone(), Goal::AtMost(110.0)),
        idle.figure("idle container: private dirty memory", "KiB", Goal::AtMostTimes(0.33)),
        Figure::alone("  more after 1 GiB of output", "KiB", grown, Goal::AtMost(32.0)),
        after.figure("idle again after that: private dirty memory", "KiB", Goal::Shown),
    ]
}

pub(crate) fn idle(bench: &Bench) -> Vec<Figure> {
    let (mut private, mut wakeups) = (Pair::default(), Pair::default());
    for who in Who::BOTH {
        let shims: Vec<_> = (0..CONTAINERS)
            .map(|number| {
                let id = format!("c{number}");
                let bundle = bench.dir.join("bundles").join(&id);
                fs::create_dir_all(&bundle).expect("a bundle");
                bench.monitor(who, "hang").id(&id).bundle(&bundle).log(bundle.join("log")).start()
            })
            .collect();
        for shim in &shims {
            proc::cpu_when_quiet(&shim.long, Duration::from_millis(5));
        }
        thread::sleep(Duration::from_secs(2));
        let switches = || shims.iter().map(|shim| proc::switches(&shim.long)).sum::<u64>();
        let before = switches();
        thread::sleep(IDLE);
        let woken = switches() - before;
        let memory: u64 = shims.iter().map(|shim| proc::memory(&shim.long).private).sum();
        #[expect(clippy::cast_precision_loss)]
        {
            wakeups.push(who, woken as f64 / IDLE.as_secs_f64());
            private.push(who, memory as f64 / 1024.0);
        }
        for shim in shims {
            shim.kill();
        }
    }
    vec![
        private.figure(&format!("{CONTAINERS} idle containers: private memory"), "MiB", Goal::AtMostTimes(0.33)),
        wakeups.figure(&format!("{CONTAINERS} idle containers: wake-ups"), "/s", Goal::AtMost(0.0)),
    ]
}

pub(crate) fn binary(bench: &Bench) -> Vec<Figure> {
    let mut size = Pair::default();
    for who in Who::BOTH {
        let metadata = fs::metadata(bench.program(who)).expect("a program");
        #[expect(clippy::cast_precision_loss)]
        size.push(who, metadata.len() as f64 / f64::from(1 << 20));
    }
    let libraries = f64::from(u8::from(is_dynamic(&bench.program(Who::Dunnage))));
    vec![
        size.figure("binary", "MiB", Goal::AtMost(1.5)),
        Figure::alone("dynamic loaders it needs", "", libraries.into(), Goal::AtMost(0.0)),
    ]
}

/// Whether the kernel starts a loader for it: a program header of type `PT_INTERP` (3) in its 64-bit ELF file.
pub(crate) fn is_dynamic(program: &Path) -> bool {
    let file = fs::read(program).expect("a program");
    let number = |at: usize, length: usize| {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(&file[at..at + length]);
        usize::try_from(u64::from_le_bytes(bytes)).expect("a place in a file")
    };
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).any(|index| number(table + index * size, 4) == 3)
}
