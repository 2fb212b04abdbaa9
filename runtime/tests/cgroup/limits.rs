//! Limits: G11 to G14. They need controllers, which a hybrid machine has on v1.

use std::fs;
use std::path::Path;
use std::time::Instant;

use dunnage_runtime::cgroup::{CgroupError, Moved, Parent};
use dunnage_runtime::generation::{CpuMax, Limit, Tier};
use dunnage_testing::wait::{self, Deadline};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};

use crate::processes::{self, Lifeline, TMPFS_FILE, cacher, comet, count, family, hog, sleeper, tmpfs_writer};
use crate::tree::{BOUND, Tree, drive_move, name};

const MIB: u64 = 1 << 20;
const LEFT_BEHIND: u64 = processes::LEFT_BEHIND as u64;

pub(crate) fn are_possible_here() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

fn tier(memory: u64, cpu: &str, pids: u64) -> Tier {
    Tier {
        memory_max: Limit::Value(memory),
        memory_high: Limit::Max,
        cpu_max: cpu.parse().unwrap(),
        cpu_weight: 100,
        pids_max: Limit::Value(pids),
    }
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g5_limits_are_there_before_the_first_process() {
    let tree = Tree::new("limits");
    let wanted = Tier { memory_high: Limit::Value(24 * MIB), cpu_weight: 7, ..tier(32 * MIB, "20000 50000", 5) };
    let child = tree.parent.make(&name("gen-1"), &wanted).unwrap();
    assert_eq!(child.limits().unwrap(), wanted);
    let read = |file: &str| tree.read(&format!("gen-1/{file}"));
    let files = ["memory.max", "memory.high", "cpu.max", "cpu.weight", "pids.max"];
    assert_eq!(files.map(read), ["33554432", "25165824", "20000 50000", "7", "5"]);
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g5_limits_hold() {
    let tree = Tree::new("hold");
    let mut lifeline = Lifeline::new();
    let few = tree.parent.make(&name("few"), &tier(64 * MIB, "max", 5)).unwrap();
    let _family = lifeline.spawn(few.path(), family);
    lifeline.expect(4);
    assert_eq!(count(few.path()), 5);

    let slow = tree.parent.make(&name("slow"), &tier(64 * MIB, "2000 100000", 50)).unwrap();
    let _comet = lifeline.spawn(slow.path(), comet);
    wait::eventually(Deadline::after(BOUND), "throttling", || !tree.read("slow/cpu.stat").contains("nr_throttled 0"));

    let small = tree.parent.make(&name("small"), &tier(8 * MIB, "max", 5)).unwrap();
    let hog = lifeline.spawn(small.path(), hog);
    let ended = waitpid(hog.pid, None).unwrap();
    assert!(matches!(ended, WaitStatus::Signaled(_, Signal::SIGKILL, _)), "{ended:?}");
    assert!(tree.read("small/memory.events").contains("oom_kill 1"));
    std::mem::forget(hog);
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g11_the_parent_gets_the_sum_of_both_tiers_and_back() {
    let tree = Tree::new("sum");
    let one = Tier { cpu_weight: 50, ..tier(32 * MIB, "5000 10000", 10) };
    let two = Tier { cpu_weight: 300, ..tier(64 * MIB, "70000 100000", 20) };
    let parent = tree.parent.cgroup();
    parent.set_limits(&one).unwrap();
    parent.set_limits(&one.sum(two)).unwrap();
    let files = ["memory.max", "memory.high", "cpu.max", "cpu.weight", "pids.max"];
    assert_eq!(files.map(|file| tree.read(file)), ["100663296", "max", "120000 100000", "300", "30"]);
    parent.set_limits(&two).unwrap();
    assert_eq!(parent.limits().unwrap(), two);
    parent.set_limits(&two.sum(Tier::UNLIMITED)).unwrap();
    let unlimited = parent.limits().unwrap();
    assert_eq!((unlimited.memory_max, unlimited.cpu_max, unlimited.pids_max), (Limit::Max, CpuMax::MAX, Limit::Max));
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g12_lowering_reclaims_what_an_ended_generation_left() {
    let tree = Tree::new("reclaim");
    let parent = tree.parent.cgroup();
    parent.set_limits(&tier(256 * MIB, "max", 100)).unwrap();
    leave_behind(&tree, cacher);
    let lifeline = Lifeline::new();
    tree.parent.make(&name("gen-2"), &tier(8 * MIB, "max", 10)).unwrap();
    let successor = lifeline.spawn(&tree.path_of("gen-2"), sleeper);
    assert!(parent.memory_current().unwrap().unwrap() > LEFT_BEHIND);
    let wanted = tier(LEFT_BEHIND / 2, "max", 100);
    parent.set_limits(&wanted).unwrap();
    assert_eq!(parent.limits().unwrap(), wanted);
    assert!(parent.memory_current().unwrap().unwrap() <= LEFT_BEHIND / 2);
    assert!(!successor.is_zombie());
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g12_lowering_never_kills() {
    struct Left;
    impl Drop for Left {
        fn drop(&mut self) {
            let _ = fs::remove_file(TMPFS_FILE.to_str().unwrap());
        }
    }
    let _left = Left;
    let tree = Tree::new("never-kills");
    let parent = tree.parent.cgroup();
    parent.set_limits(&tier(256 * MIB, "max", 100)).unwrap();
    leave_behind(&tree, tmpfs_writer);
    let lifeline = Lifeline::new();
    tree.parent.make(&name("gen-2"), &tier(8 * MIB, "max", 10)).unwrap();
    let successor = lifeline.spawn(&tree.path_of("gen-2"), sleeper);
    let error = parent.set_limits(&tier(8 * MIB, "max", 50)).unwrap_err();
    let CgroupError::MemoryInUse { wanted, current, .. } = &error else { panic!("{error}") };
    assert!(*wanted == 8 * MIB && *current >= LEFT_BEHIND, "{error}");
    assert!(error.to_string().contains(&wanted.to_string()) && error.to_string().contains(&current.to_string()));
    // The old limit stays; what could be lowered was.
    assert_eq!(parent.limits().unwrap(), tier(256 * MIB, "max", 50));
    assert!(!successor.is_zombie());
    assert!(tree.read("memory.events").contains("oom_kill 0"));
    // Once that memory is free it goes through.
    drop(Left);
    parent.set_limits(&tier(8 * MIB, "max", 50)).unwrap();
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g13_raising_limits_are_written_first_and_lowering_ones_last() {
    let tree = Tree::new("order");
    let parent = tree.parent.cgroup();
    parent.set_limits(&tier(64 * MIB, "50000", 50)).unwrap();
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
    inotify.add_watch(&tree.path, AddWatchFlags::IN_MODIFY).unwrap();
    let written = || {
        let events = inotify.read_events().unwrap_or_default();
        events.into_iter().filter_map(|event| event.name?.into_string().ok()).collect::<Vec<_>>()
    };
    parent.set_limits(&tier(128 * MIB, "20000", 100)).unwrap();
    assert_eq!(written(), ["pids.max", "memory.max", "cpu.max"]);
    parent.set_limits(&tier(32 * MIB, "max", 50)).unwrap();
    assert_eq!(written(), ["cpu.max", "pids.max", "memory.max"]);
    parent.set_limits(&tier(32 * MIB, "max", 50)).unwrap();
    assert_eq!(written(), [""; 0]);
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g13_a_refusal_names_file_and_value_and_the_files_tell_what_holds() {
    let tree = Tree::new("refused");
    let parent = tree.parent.cgroup();
    parent.set_limits(&tier(64 * MIB, "50000", 50)).unwrap();
    // Less than a millisecond is refused.
    let error = parent.set_limits(&tier(64 * MIB, "500", 100)).unwrap_err();
    assert!(matches!(&error, CgroupError::Refused { value, .. } if value == "500 100000"), "{error}");
    assert!(error.to_string().contains(&format!("{}/cpu.max", tree.path.display())), "{error}");
    assert_eq!(parent.limits().unwrap(), tier(64 * MIB, "50000", 100));
    // A child that cannot have its limits is not made.
    let error = tree.parent.make(&name("gen-1"), &tier(64 * MIB, "500", 100)).unwrap_err();
    assert!(matches!(error, CgroupError::Refused { .. }), "{error}");
    assert_eq!(tree.children(), 0);
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g14_only_what_the_tier_needs_is_enabled_and_only_what_is_missing_named() {
    let tree = Tree::new("needed");
    tree.mkdir("service");
    tree.write("cgroup.subtree_control", "+pids +cpu");
    let service = Parent::open(&tree.path_of("service")).unwrap();
    let few = Tier { pids_max: Limit::Value(5), ..Tier::UNLIMITED };
    service.make(&name("gen-1"), &Tier::UNLIMITED).unwrap();
    assert_eq!(tree.read("service/cgroup.subtree_control"), "");
    service.make(&name("gen-2"), &few).unwrap();
    assert_eq!(tree.read("service/cgroup.subtree_control"), "pids");
    let error = service.make(&name("gen-3"), &tier(64 * MIB, "5000", 5)).unwrap_err();
    let CgroupError::NoController { missing, .. } = &error else { panic!("{error}") };
    assert_eq!(missing.to_string(), "memory");
    assert_eq!(tree.read("service/cgroup.subtree_control"), "pids");
    assert!(!tree.exists("service/gen-3"));
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn o02_a_parent_with_controllers_and_processes_is_refused_and_not_changed() {
    let tree = Tree::new("internal");
    tree.write("cgroup.subtree_control", "+pids");
    let lifeline = Lifeline::new();
    let _process = lifeline.spawn(&tree.path, sleeper);
    // By which it has become one.
    assert_eq!(tree.read("cgroup.type"), "domain threaded");
    let error = tree.parent.make(&name("gen-1"), &tier(64 * MIB, "max", 5)).unwrap_err();
    assert!(matches!(error, CgroupError::Threaded { .. }), "{error}");
    assert_eq!((tree.read("cgroup.subtree_control"), tree.children()), ("pids".into(), 0));
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g28_a_generation_is_moved_under_the_same_limits() {
    let tree = Tree::new("move-limits");
    let limits = tier(64 * MIB, "50000", 100);
    let source = tree.parent.make(&name("gen-1"), &limits).unwrap();
    let target = tree.parent.make(&name("moved"), &source.limits().unwrap()).unwrap();
    assert_eq!(target.limits().unwrap(), limits);
    let mut lifeline = Lifeline::new();
    let _leader = lifeline.spawn(source.path(), family);
    lifeline.expect(20);
    assert!(matches!(drive_move(&mut tree.migrate("gen-1", "moved").unwrap()), Moved::All));
    assert_eq!(count(target.path()), 21);
    tree.kill("moved");
    assert!(lifeline.has_ended());
}

/// Has a generation end that leaves memory charged to the parent.
fn leave_behind(tree: &Tree, what: fn() -> !) {
    let start = Instant::now();
    tree.parent.make(&name("gen-1"), &tier(64 * MIB, "max", 10)).unwrap();
    let mut lifeline = Lifeline::new();
    let process = lifeline.spawn(&tree.path_of("gen-1"), what);
    assert_eq!(waitpid(process.pid, None), Ok(WaitStatus::Exited(process.pid, 0)));
    std::mem::forget(process);
    tree.kill("gen-1");
    assert!(lifeline.has_ended());
    tree.rmdir("gen-1");
    println!("left behind after {:?}", start.elapsed());
}
