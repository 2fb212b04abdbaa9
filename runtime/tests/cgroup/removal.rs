//! Removal: G25.

use std::time::{Duration, Instant};

use dunnage_runtime::cgroup::{Removal, Removed};
use dunnage_runtime::generation::Tier;

use crate::processes::{Lifeline, sleeper};
use crate::tree::{BOUND, Tree, name};

#[test]
fn g25_removal_retries_while_the_cgroup_is_busy() {
    let tree = Tree::new("busy");
    tree.make("gen-1");
    let lifeline = Lifeline::new();
    let process = lifeline.spawn(&tree.path_of("gen-1"), sleeper);
    let now = Instant::now();
    let mut removal = Removal::begin(name("gen-1"), now, now + BOUND);
    let mut retries = Vec::new();
    for _ in 0..3 {
        let now = removal.next_timeout();
        assert_eq!(removal.advance(&tree.parent, now).unwrap(), Removed::NotYet);
        retries.push((removal.next_timeout() - now).as_millis());
    }
    assert_eq!(retries, [5, 10, 20]);
    process.kill();
    assert_eq!(tree.remove("gen-1"), Removed::Yes);
    assert!(!tree.exists("gen-1"));
}

#[test]
fn g25_what_is_busy_at_the_deadline_is_named() {
    let tree = Tree::new("busy-end");
    tree.make("gen-1");
    let lifeline = Lifeline::new();
    let process = lifeline.spawn(&tree.path_of("gen-1"), sleeper);
    let now = Instant::now();
    let deadline = now + Duration::from_millis(7);
    let mut removal = Removal::begin(name("gen-1"), now, deadline);
    assert_eq!(removal.advance(&tree.parent, now).unwrap(), Removed::NotYet);
    assert_eq!(removal.next_timeout(), now + Duration::from_millis(5));
    assert_eq!(removal.advance(&tree.parent, now + Duration::from_millis(5)).unwrap(), Removed::NotYet);
    assert_eq!(removal.next_timeout(), deadline);
    let Removed::Busy(left) = removal.advance(&tree.parent, deadline).unwrap() else { panic!("not busy") };
    assert_eq!(left.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [process.pid]);
}

#[test]
fn g25_nested_cgroups_are_removed_with_it() {
    let tree = Tree::new("whole");
    tree.make("gen-1");
    // More than one call's share.
    for child in 0..100 {
        tree.mkdir(&format!("gen-1/{child}"));
        tree.mkdir(&format!("gen-1/{child}/below"));
    }
    let now = Instant::now();
    let mut removal = Removal::begin(name("gen-1"), now, now + BOUND);
    assert_eq!(removal.advance(&tree.parent, now).unwrap(), Removed::NotYet);
    assert_eq!(tree.remove("gen-1"), Removed::Yes);
    assert!(!tree.exists("gen-1"));
}

#[test]
fn g25_nothing_is_removed_below_one_with_a_process() {
    let tree = Tree::new("in-part");
    tree.make("gen-1");
    tree.mkdir("gen-1/a");
    tree.mkdir("gen-1/b");
    let lifeline = Lifeline::new();
    let _process = lifeline.spawn(&tree.path_of("gen-1/b"), sleeper);
    let now = Instant::now();
    assert!(matches!(Removal::begin(name("gen-1"), now, now).advance(&tree.parent, now).unwrap(), Removed::Busy(_)));
    assert!(tree.exists("gen-1/a"));
}

#[test]
fn g25_what_another_removed_is_removed() {
    let tree = Tree::new("gone");
    tree.make("gen-1");
    tree.rmdir("gen-1");
    assert_eq!(tree.remove("gen-1"), Removed::Yes);
}

#[test]
fn o09_restarts_leave_no_cgroups_behind() {
    let tree = Tree::new("restarts");
    for generation in 1..=20 {
        let child = format!("gen-{generation}");
        tree.parent.make(&name(&child), &Tier::UNLIMITED).unwrap();
        let mut lifeline = Lifeline::new();
        let _process = lifeline.spawn(&tree.path_of(&child), crate::processes::stubborn);
        lifeline.expect(1);
        tree.kill(&child);
        assert_eq!(tree.remove(&child), Removed::Yes);
        assert_eq!(tree.children(), 0);
    }
}
