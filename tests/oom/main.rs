//! Containers that run out of memory, and ones that only look like it: on the machine's own hierarchy, v1 or v2.

mod memory;
mod order;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Monitor, Process, Running, Sandbox, Script, Step, Tool, descriptors, mode, vm};

use memory::{HOG, Memory};

/// A container in a cgroup from before its start, as a real runtime does it.
fn contained(memory: &Memory, payload: impl IntoIterator<Item = Step>) -> Script {
    let start = [memory.enter(), Step::fire("inside"), Step::wait("start"), Step::fire("started")];
    let payload: Vec<Step> = start.into_iter().chain(payload).collect();
    Script::runtime([Step::Payload, Step::wait("inside"), Step::pid()]).payload(payload)
}

/// Starts it, and once the caller knows of it, its payload.
fn start<'a>(sandbox: &'a Sandbox, script: &Script, change: impl FnOnce(Monitor<'a>) -> Monitor<'a>) -> Running<'a> {
    start_tool(&Tool::under_test(), sandbox, script, change)
}

fn start_tool<'a>(
    tool: &Tool,
    sandbox: &'a Sandbox,
    script: &Script,
    change: impl FnOnce(Monitor<'a>) -> Monitor<'a>,
) -> Running<'a> {
    sandbox.script(script);
    let _inside = sandbox.event("inside");
    let [start, started] = ["start", "started"].map(|name| sandbox.event(name));
    let mut monitor = change(sandbox.monitor(tool)).start();
    monitor.pid();
    start.fire();
    // An event that nobody has taken is lost when its two ends here are closed.
    started.wait();
    monitor
}

fn marks(sandbox: &Sandbox) -> [bool; 2] {
    [sandbox.bundle(), sandbox.persist()].map(|dir| dir.join("oom").exists())
}

const MARKED: [bool; 2] = [true, true];
const UNMARKED: [bool; 2] = [false, false];

#[test]
fn h02_an_oom_kill_is_marked_before_the_exit_files() {
    let memory = Memory::limited("kill");
    let sandbox = Sandbox::new();
    let monitor = start(&sandbox, &contained(&memory, [Step::shell(HOG)]), |monitor| monitor);
    assert_eq!(monitor.exit_code(), "137");
    assert_eq!(marks(&sandbox), MARKED);
    let exit = fs::metadata(sandbox.persist().join("exit")).expect("the exit file");
    for mark in [sandbox.bundle().join("oom"), sandbox.persist().join("oom")] {
        let mark = fs::metadata(mark).expect("the mark");
        assert_eq!((mode(&mark).as_str(), mark.len()), ("file 0644", 0));
        assert!((mark.ctime(), mark.ctime_nsec()) <= (exit.ctime(), exit.ctime_nsec()));
    }
    monitor.end();
    assert!(!Path::new("oom").exists(), "it is in the working directory");
}

#[test]
fn conmon_marks_it_in_the_persist_directory_as_well() {
    let memory = Memory::limited("conmon");
    let sandbox = Sandbox::new();
    // Its other mark is in its working directory.
    let dir = sandbox.root().display().to_string();
    let monitor = start_tool(&Tool::conmon(), &sandbox, &contained(&memory, [Step::shell(HOG)]), |monitor| {
        monitor.through(&format!("cd '{dir}'; exec"))
    });
    assert_eq!(monitor.exit_code(), "137");
    assert!(sandbox.persist().join("oom").exists());
}

#[test]
fn without_a_persist_directory_the_bundle_has_the_mark() {
    let memory = Memory::limited("bundle");
    let sandbox = Sandbox::new();
    let script = contained(&memory, [Step::shell(HOG)]);
    let monitor = start(&sandbox, &script, |monitor| monitor.without("--persist-dir"));
    assert_eq!(monitor.exit_code(), "137");
    assert_eq!(marks(&sandbox), [true, false]);
}

#[test]
fn h06_a_sigkill_is_no_oom() {
    let memory = Memory::limited("sigkill");
    let sandbox = Sandbox::new();
    let monitor = start(&sandbox, &contained(&memory, [Step::Raise(9)]), |monitor| monitor);
    assert_eq!(monitor.exit_code(), "137");
    assert_eq!(marks(&sandbox), UNMARKED);
}

#[test]
fn an_oom_from_before_the_start_does_not_count() {
    let memory = Memory::limited("before");
    memory.kill_one();
    let sandbox = Sandbox::new();
    let monitor = start(&sandbox, &contained(&memory, [Step::Exit(0)]), |monitor| monitor);
    assert_eq!(monitor.exit_code(), "0");
    assert_eq!(marks(&sandbox), UNMARKED);
}

#[test]
fn the_mark_of_a_process_that_is_killed_does_not_wait_for_the_containers_end() {
    let memory = Memory::limited("child");
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    let payload = [Step::run(&["/bin/sh", "-c", HOG]), Step::wait("end"), Step::Exit(4)];
    let monitor = start(&sandbox, &contained(&memory, payload), |monitor| monitor);
    wait::file_exists(&sandbox.persist().join("oom"), Deadline::usual());
    wait::file_exists(&sandbox.bundle().join("oom"), Deadline::usual());
    end.fire();
    assert_eq!(monitor.exit_code(), "4");
}

#[test]
fn h04_the_removal_of_the_cgroup_is_no_oom() {
    let memory = Memory::limited("removal");
    let sandbox = Sandbox::new();
    let [remove, end] = ["remove", "end"].map(|name| sandbox.event(name));
    let payload: Vec<Step> =
        [Step::wait("remove")].into_iter().chain(memory.remove()).chain([Step::wait("end"), Step::Exit(1)]).collect();
    let monitor = start(&sandbox, &contained(&memory, payload), |monitor| monitor);
    // Held until the kernel has signalled the removal, which v1 does some time later.
    monitor.long().signal(nix::libc::SIGSTOP);
    remove.fire();
    if Memory::is_v1() {
        wait::eventually(Deadline::usual(), "the removal's signal", || is_signalled(monitor.long()));
    }
    monitor.long().signal(nix::libc::SIGCONT);
    end.fire();
    assert_eq!(monitor.exit_code(), "1");
    assert!(!memory.dir.exists());
    assert_eq!(marks(&sandbox), UNMARKED);
}

/// Whether the process has an eventfd with something to read.
fn is_signalled(process: &Process) -> bool {
    let infos = fs::read_dir(process.proc_dir().join("fdinfo")).expect("descriptors");
    infos.filter_map(|info| fs::read_to_string(info.ok()?.path()).ok()).any(|info| {
        let count = info.lines().find_map(|line| line.strip_prefix("eventfd-count:"));
        count.is_some_and(|count| count.trim() != "0")
    })
}

#[test]
fn h01_a_kill_before_the_removal_of_the_cgroup_counts() {
    let memory = Memory::limited("kill-removal");
    let sandbox = Sandbox::new();
    let kill = Step::run(&["/bin/sh", "-c", HOG]);
    let payload: Vec<Step> = [kill].into_iter().chain(memory.remove()).chain([Step::Exit(1)]).collect();
    let monitor = start(&sandbox, &contained(&memory, payload), |monitor| monitor);
    assert_eq!(monitor.exit_code(), "1");
    assert!(!memory.dir.exists());
    assert_eq!(marks(&sandbox), MARKED);
}

#[test]
fn h01_the_kill_is_known_at_the_end_each_time() {
    // On v1 it is counted only after the signal, at about the time of the end.
    for round in 0..20 {
        let memory = Memory::limited(&format!("race-{round}"));
        let sandbox = Sandbox::new();
        let monitor = start(&sandbox, &contained(&memory, [Step::shell(HOG)]), |monitor| monitor);
        assert_eq!(monitor.exit_code(), "137");
        assert_eq!(marks(&sandbox), MARKED, "round {round}");
    }
}

#[test]
fn h03_a_limit_further_up_counts_for_whom_it_kills() {
    let pod = Memory::limited("pod");
    let memory = pod.below("container");
    memory.limit();
    let sandbox = Sandbox::new();
    let monitor = start(&sandbox, &contained(&memory, [Step::shell(HOG)]), |monitor| monitor);
    assert_eq!(monitor.exit_code(), "137");
    assert_eq!(marks(&sandbox), MARKED);
}

#[test]
fn h03_the_kill_of_a_sibling_does_not_count() {
    let pod = Memory::limited("siblings");
    let memory = pod.below("container");
    let sibling = pod.below("sibling");
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    let script = contained(&memory, [Step::wait("end"), Step::Exit(0)]);
    let monitor = start(&sandbox, &script, |monitor| monitor);
    sibling.kill_one();
    end.fire();
    assert_eq!(monitor.exit_code(), "0");
    assert_eq!(marks(&sandbox), UNMARKED);
}

#[test]
fn a_cgroup_namespace_of_the_monitors_own_is_no_obstacle() {
    let memory = Memory::limited("namespace");
    let sandbox = Sandbox::new();
    let script = contained(&memory, [Step::shell(HOG)]);
    let monitor = start(&sandbox, &script, |monitor| monitor.through("exec unshare --cgroup"));
    assert_eq!(monitor.exit_code(), "137");
    assert_eq!(marks(&sandbox), MARKED);
}

#[test]
fn a_container_lives_without_a_watch() {
    let memory = Memory::limited("unmounted");
    let sandbox = Sandbox::new();
    let script = contained(&memory, [Step::Exit(3)]);
    // The payload's own way into the cgroup goes through /proc/1/root.
    let hide = "unshare --mount sh -c 'mount -t tmpfs none /sys/fs/cgroup; exec \"$@\"' sh";
    let script = through_init(script);
    let monitor = start(&sandbox, &script, |monitor| monitor.through(&format!("exec {hide}")));
    assert_eq!(monitor.exit_code(), "3");
    assert_eq!(marks(&sandbox), UNMARKED);
}

/// The same script in a mount namespace that hides cgroups: they are still to be seen from init's.
fn through_init(mut script: Script) -> Script {
    for step in &mut script.payload {
        if let Step::Run(argv) = step {
            argv.iter_mut().filter(|word| word.starts_with('/') && word.contains("cgroup")).for_each(|word| {
                word.insert_str(0, "/proc/1/root");
            });
        }
    }
    script
}

#[test]
fn the_watch_holds_one_file_and_lets_it_go_with_the_mark() {
    let memory = Memory::limited("descriptors");
    let sandbox = Sandbox::new();
    let [kill, end] = ["kill", "end"].map(|name| sandbox.event(name));
    let payload = [Step::wait("kill"), Step::run(&["/bin/sh", "-c", HOG]), Step::wait("end"), Step::Exit(0)];
    let monitor = start(&sandbox, &contained(&memory, payload), |monitor| monitor);
    let held = || {
        let fds = descriptors(&monitor.long().proc_dir()).expect("descriptors");
        fds.values().filter(|fd| fd.target.contains("/memory.")).count()
    };
    assert_eq!(held(), 1);
    kill.fire();
    wait::eventually(Deadline::usual(), "the end of the watch", || held() == 0);
    assert_eq!(marks(&sandbox), MARKED);
    end.fire();
    assert_eq!(monitor.exit_code(), "0");
}

/// The same where cgroup v2 is all there is.
#[test]
fn in_a_virtual_machine() {
    if !Memory::is_v1() {
        return;
    }
    vm::run_own_tests(&[], &["--test-threads=2"]);
}
