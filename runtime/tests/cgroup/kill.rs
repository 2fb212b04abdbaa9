//! Killing, and proof of emptiness: G20 to G25.

use std::ffi::CString;
use std::fs;
use std::time::{Duration, Instant};

use dunnage_runtime::cgroup::{CgroupError, Eviction, Intent, Name, Parent, Proof};
use dunnage_runtime::generation::{Number, Role};
use dunnage_runtime::sys;

use crate::processes::{Lifeline, comet, family, sleeper, stubborn};
use crate::tree::{BOUND, Loop, Tree, drive, name};

#[test]
fn g20_a_fork_bomb_is_killed_and_proven() {
    let tree = Tree::new("bomb");
    tree.make("gen-1");
    let mut lifeline = Lifeline::new();
    let _bomb: Vec<_> = (0..4).map(|_| lifeline.spawn(&tree.path_of("gen-1"), comet)).collect();
    let start = Instant::now();
    lifeline.expect(1000);
    println!("1000 forks in {:?}", start.elapsed());
    let start = Instant::now();
    tree.kill("gen-1");
    println!("killed in {:?}", start.elapsed());
    assert!(lifeline.has_ended());
}

#[test]
fn g20_what_ignores_sigterm_and_left_its_session_is_killed() {
    let tree = Tree::new("stubborn");
    tree.make("gen-1");
    let mut lifeline = Lifeline::new();
    let leader = lifeline.spawn(&tree.path_of("gen-1"), stubborn);
    lifeline.expect(1);
    leader.wait_for_zombie();
    // The leader's exit says nothing of what it forked.
    assert!(tree.is_populated("gen-1"));
    tree.kill("gen-1");
    assert!(lifeline.has_ended());
}

#[test]
fn g20_the_proof_comes_by_notification_alone() {
    let tree = Tree::new("notification");
    tree.make("gen-1");
    let mut lifeline = Lifeline::new();
    let _process = lifeline.spawn(&tree.path_of("gen-1"), family);
    lifeline.expect(20);
    let mut eviction = tree.evict("gen-1", Intent::Kill);
    let mut events = Loop::new();
    events.watch(eviction.watched().unwrap());
    while !matches!(eviction.advance(&tree.parent, Instant::now()).unwrap(), Proof::Empty) {
        // Never for its own timeouts.
        assert!(events.wait(Instant::now() + BOUND), "no event");
    }
    assert!(lifeline.has_ended());
}

#[test]
fn g20_populated_0_is_there_while_the_leader_is_a_zombie() {
    let tree = Tree::new("zombie");
    tree.make("gen-1");
    let mut lifeline = Lifeline::new();
    let leader = lifeline.spawn(&tree.path_of("gen-1"), sleeper);
    tree.kill("gen-1");
    assert!(lifeline.has_ended());
    // Whom its parent, this program, has still to reap.
    leader.wait_for_zombie();
}

#[test]
fn g20_late_entrants_are_killed() {
    let tree = Tree::new("late");
    tree.make("gen-1");
    tree.make("elsewhere");
    let mut lifeline = Lifeline::new();
    let _first = lifeline.spawn(&tree.path_of("gen-1"), sleeper);
    let late = lifeline.spawn(&tree.path_of("elsewhere"), sleeper);
    let mut eviction = tree.evict("gen-1", Intent::Kill);
    // Frozen, what is in it dies all the same; and it stays populated from before the kill to after it.
    let _ = eviction.advance(&tree.parent, Instant::now()).unwrap();
    assert!(eviction.has_killed());
    tree.write("gen-1/cgroup.procs", &late.pid.to_string());
    drive(&tree.parent, &mut eviction).unwrap();
    assert!(!tree.is_populated("gen-1"));
    late.wait_for_zombie();
    assert!(lifeline.has_ended());
}

#[test]
fn g20_what_is_left_at_the_deadline_is_named_with_the_obstacle() {
    let tree = Tree::new("left");
    for child in ["gen-1", "gen-2"] {
        tree.make(child);
    }
    make_threaded(&tree, &["gen-1", "gen-2"]);
    let mut lifeline = Lifeline::new();
    let [one, two] = [(); 2].map(|()| lifeline.spawn(&tree.path, sleeper));
    tree.write("gen-1/cgroup.procs", &one.pid.to_string());
    tree.write("gen-2/cgroup.procs", &two.pid.to_string());
    let now = Instant::now();
    let deadline = now + Duration::from_millis(100);
    let mut eviction = Eviction::begin(&tree.parent, name("gen-1"), Intent::Kill, now, deadline).unwrap();
    // G25: its domain root is the parent, where the other one would die as well.
    let unproven = drive(&tree.parent, &mut eviction).unwrap_err();
    assert!(Instant::now() >= deadline);
    assert_eq!(unproven.left.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [one.pid]);
    let obstacle = unproven.obstacle.unwrap();
    assert!(matches!(&obstacle, CgroupError::SharedDomain { .. }), "{obstacle}");
    assert!(obstacle.to_string().contains("gen-2"), "{obstacle}");
    assert!(!lifeline.has_ended());
}

#[test]
fn g20_a_deadline_that_has_passed_still_kills_once() {
    let tree = Tree::new("deadline");
    tree.make("gen-1");
    let mut lifeline = Lifeline::new();
    let process = lifeline.spawn(&tree.path_of("gen-1"), sleeper);
    let now = Instant::now();
    let mut eviction = Eviction::begin(&tree.parent, name("gen-1"), Intent::Kill, now, now).unwrap();
    // The process may be dying still, or not.
    assert!(!matches!(eviction.advance(&tree.parent, now).unwrap(), Proof::Pending));
    process.wait_for_zombie();
    assert!(lifeline.has_ended());
}

#[test]
fn g21_a_kill_leaves_a_mark_that_others_see() {
    let tree = Tree::new("mark");
    tree.make("gen-1");
    assert!(!tree.is_killed("gen-1"));
    let mut eviction = tree.evict("gen-1", Intent::Kill);
    drive(&tree.parent, &mut eviction).unwrap();
    assert!(eviction.has_killed());
    assert!(eviction.mark_failure().is_none());
    // On the directory, not in the memory of who killed.
    assert!(Parent::open(&tree.path).unwrap().child(&name("gen-1")).unwrap().unwrap().is_killed().unwrap());
}

#[test]
fn g21_where_the_mark_cannot_be_set_the_kill_goes_on_and_says_so() {
    let tree = Tree::new("unmarked");
    let child = tree.make("gen-1");
    // As many as the kernel lets a cgroup have.
    let mut attributes = 0;
    while sys::set_attribute(&child, &CString::new(format!("user.{attributes}")).unwrap()).is_ok() {
        attributes += 1;
    }
    let mut lifeline = Lifeline::new();
    let _process = lifeline.spawn(&tree.path_of("gen-1"), sleeper);
    let mut eviction = tree.evict("gen-1", Intent::Kill);
    drive(&tree.parent, &mut eviction).unwrap();
    assert!(lifeline.has_ended());
    assert!(eviction.has_killed() && eviction.mark_failure().is_some());
    assert!(!tree.is_killed("gen-1"));
}

#[test]
fn g22_what_is_empty_is_left_without_a_kill_and_a_mark() {
    let tree = Tree::new("empty");
    tree.make("gen-1");
    let mut eviction = tree.evict("gen-1", Intent::KillUnlessEmpty);
    drive(&tree.parent, &mut eviction).unwrap();
    assert!(!eviction.has_killed());
    assert!(!tree.is_killed("gen-1"));
    let mut lifeline = Lifeline::new();
    let _process = lifeline.spawn(&tree.path_of("gen-1"), sleeper);
    let mut eviction = tree.evict("gen-1", Intent::KillUnlessEmpty);
    drive(&tree.parent, &mut eviction).unwrap();
    assert!(eviction.has_killed() && tree.is_killed("gen-1"));
    assert!(lifeline.has_ended());
}

#[test]
fn g23_an_absent_cgroup_is_empty() {
    let tree = Tree::new("absent");
    let mut eviction = tree.evict("gen-1", Intent::Kill);
    assert!(eviction.watched().is_none());
    drive(&tree.parent, &mut eviction).unwrap();
    // Also below a parent that was removed while it was open.
    fs::remove_dir(&tree.path).unwrap();
    drive(&tree.parent, &mut tree.evict("gen-1", Intent::Kill)).unwrap();
}

#[test]
fn g24_every_child_is_killed_alone() {
    let tree = Tree::new("children");
    let names = [Role::Worker, Role::Sidecar, Role::Generation(Number::new(1).unwrap())].map(Name::of);
    let mut lifelines: Vec<_> = names
        .iter()
        .map(|name| {
            tree.make(name.as_str());
            let lifeline = Lifeline::new();
            let process = lifeline.spawn(&tree.path_of(name.as_str()), sleeper);
            (lifeline, process)
        })
        .collect();
    for (killed, name) in names.iter().enumerate() {
        tree.kill(name.as_str());
        let ended: Vec<bool> = lifelines.iter_mut().map(|(lifeline, _)| lifeline.has_ended()).collect();
        assert_eq!(ended, [true, killed >= 1, killed >= 2]);
    }
}

#[test]
fn g25_a_frozen_cgroup_is_killed() {
    let tree = Tree::new("frozen");
    let child = tree.make("gen-1");
    let mut lifeline = Lifeline::new();
    let _process = lifeline.spawn(&tree.path_of("gen-1"), family);
    lifeline.expect(20);
    child.freeze(true).unwrap();
    tree.kill("gen-1");
    assert!(lifeline.has_ended());
}

#[test]
fn g25_a_cgroup_below_a_frozen_one_is_killed() {
    let tree = Tree::new("below");
    tree.make("gen-1");
    let mut lifeline = Lifeline::new();
    let _process = lifeline.spawn(&tree.path_of("gen-1"), sleeper);
    tree.write("cgroup.freeze", "1");
    tree.kill("gen-1");
    assert!(lifeline.has_ended());
}

#[test]
fn g25_a_threaded_cgroup_is_killed_at_its_domain_root() {
    let tree = Tree::new("threaded");
    tree.make("gen-1");
    tree.make("gen-2");
    make_threaded(&tree, &["gen-1"]);
    let mut lifeline = Lifeline::new();
    let process = lifeline.spawn(&tree.path, sleeper);
    tree.write("gen-1/cgroup.procs", &process.pid.to_string());
    tree.kill("gen-1");
    assert!(lifeline.has_ended());
    // The kill reached the other one, too.
    assert!(tree.is_killed("gen-1") && tree.is_killed("gen-2"));
}

#[test]
fn g25_threaded_cgroups_within_a_child_are_killed_with_it() {
    let tree = Tree::new("within");
    tree.make("gen-1");
    tree.mkdir("gen-1/workers");
    make_threaded(&tree, &["gen-1/workers"]);
    let mut lifeline = Lifeline::new();
    let process = lifeline.spawn(&tree.path_of("gen-1"), sleeper);
    tree.write("gen-1/workers/cgroup.procs", &process.pid.to_string());
    tree.kill("gen-1");
    assert!(lifeline.has_ended());
}

#[test]
fn g25_a_cgroup_with_nested_children_is_emptied_whole() {
    let tree = Tree::new("nested");
    tree.make("gen-1");
    tree.mkdir("gen-1/a");
    tree.mkdir("gen-1/a/b");
    let mut lifeline = Lifeline::new();
    let _processes = ["gen-1/a", "gen-1/a/b"].map(|path| lifeline.spawn(&tree.path_of(path), sleeper));
    tree.write("gen-1/a/b/cgroup.freeze", "1");
    tree.kill("gen-1");
    assert!(lifeline.has_ended());
}

#[test]
fn g20_a_removal_by_another_at_any_step_is_no_failure_and_no_hang() {
    let tree = Tree::new("steps");
    for step in 0..3 {
        tree.make("gen-1");
        let mut lifeline = Lifeline::new();
        let process = lifeline.spawn(&tree.path_of("gen-1"), sleeper);
        let end = |tree: &Tree| {
            process.kill();
            tree.rmdir("gen-1");
        };
        if step == 0 {
            end(&tree);
        }
        let start = Instant::now();
        let mut eviction = tree.evict("gen-1", Intent::Kill);
        if step == 1 {
            end(&tree);
        }
        let first = eviction.advance(&tree.parent, start).unwrap();
        if step == 2 {
            // The kill is its end; before anybody looks, another has removed it, and no notification comes.
            tree.rmdir("gen-1");
        } else {
            assert!(matches!(first, Proof::Empty), "{first:?}");
        }
        drive(&tree.parent, &mut eviction).unwrap();
        // Not at the deadline only.
        assert!(start.elapsed() < BOUND / 2);
        assert!(lifeline.has_ended());
    }
}

fn make_threaded(tree: &Tree, children: &[&str]) {
    for child in children {
        tree.write(&format!("{child}/cgroup.type"), "threaded");
    }
}
