//! Moving: G28.

use std::fs;
use std::time::{Duration, Instant};

use dunnage_runtime::cgroup::{CgroupError, Migration, Moved};

use crate::processes::{Lifeline, count, family, sleeper, wanderer};
use crate::tree::{BOUND, Tree, drive_move, name};

#[test]
fn g28_a_forking_group_is_moved_and_no_process_lost() {
    let tree = Tree::new("move");
    let source = tree.make("gen-1");
    let target = tree.make("gen-1-moved");
    let mut lifeline = Lifeline::new();
    let leaders = [(); 8].map(|()| lifeline.spawn(source.path(), family));
    lifeline.expect(8 * 20);
    let _wanderers = [(); 8].map(|()| lifeline.spawn(source.path(), wanderer));
    lifeline.expect(50);
    assert!(matches!(drive_move(&mut tree.migrate("gen-1", "gen-1-moved").unwrap()), Moved::All));
    assert!(!tree.is_populated("gen-1"));
    // The leaders, those that stay, and the wanderers.
    assert!(count(target.path()) >= 8 * (1 + 20) + 8 * 2, "{}", count(target.path()));
    assert!(leaders.iter().all(|leader| !leader.is_zombie()));
    // They go on there.
    lifeline.drain();
    lifeline.expect(50);
    assert!(!tree.is_populated("gen-1"));
    assert!(!source.events().unwrap().frozen && !target.events().unwrap().frozen);
    // No process is anywhere else.
    tree.kill("gen-1-moved");
    assert!(lifeline.has_ended());
}

#[test]
fn g28_what_is_in_nested_and_frozen_cgroups_is_moved_as_well() {
    let tree = Tree::new("move-nested");
    tree.make("gen-1");
    tree.mkdir("gen-1/a");
    tree.mkdir("gen-1/a/b");
    let target = tree.make("moved");
    let lifeline = Lifeline::new();
    let _processes = ["gen-1/a", "gen-1/a/b"].map(|path| lifeline.spawn(&tree.path_of(path), sleeper));
    tree.write("gen-1/a/b/cgroup.freeze", "1");
    assert!(matches!(drive_move(&mut tree.migrate("gen-1", "moved").unwrap()), Moved::All));
    assert_eq!(count(target.path()), 2);
}

#[test]
fn g28_an_empty_source_is_moved_at_once() {
    let tree = Tree::new("move-empty");
    tree.make("gen-1");
    tree.make("moved");
    let mut migration = tree.migrate("gen-1", "moved").unwrap();
    assert!(matches!(migration.advance(Instant::now()).unwrap(), Moved::All));
    // Also if another removes it.
    tree.rmdir("gen-1");
    assert!(matches!(migration.advance(Instant::now()).unwrap(), Moved::All));
}

#[test]
fn g28_targets_that_were_killed_or_hold_others_are_refused() {
    let tree = Tree::new("move-refused");
    let source = tree.make("gen-1");
    let mut lifeline = Lifeline::new();
    let _process = lifeline.spawn(source.path(), wanderer);
    tree.make("killed");
    tree.kill("killed");
    tree.make("used");
    let _other = lifeline.spawn(&tree.path_of("used"), sleeper);
    let refused = |target| tree.migrate("gen-1", target).unwrap_err();
    assert!(matches!(refused("killed"), CgroupError::Killed { .. }));
    assert!(matches!(refused("used"), CgroupError::InUse { .. }));
    assert!(matches!(refused("gen-1"), CgroupError::SameCgroup { .. }));
    assert!(matches!(refused("missing"), CgroupError::Absent { .. }));
    assert!(matches!(tree.migrate("missing", "killed"), Err(CgroupError::Absent { .. })));
    // None of them froze anything.
    assert!(!source.events().unwrap().frozen);
    lifeline.drain();
    lifeline.expect(10);
}

#[test]
fn g28_a_move_that_cannot_be_done_ends_at_its_deadline_and_thaws() {
    let tree = Tree::new("move-failed");
    let source = tree.make("gen-1");
    tree.make("moved");
    let mut lifeline = Lifeline::new();
    let _wanderer = lifeline.spawn(source.path(), wanderer);
    let now = Instant::now();
    let deadline = now + Duration::from_millis(200);
    let mut migration = Migration::begin(&tree.parent, &name("gen-1"), &name("moved"), now, deadline).unwrap();
    // Another removes the target.
    tree.rmdir("moved");
    let Moved::Unproven { left, obstacle } = drive_move(&mut migration) else { panic!("moved to nowhere") };
    assert!(Instant::now() >= deadline);
    assert!(!left.processes.is_empty());
    assert!(matches!(obstacle, Some(CgroupError::Refused { .. })), "{obstacle:?}");
    drop(migration);
    lifeline.drain();
    lifeline.expect(10);
    assert!(tree.is_populated("gen-1"));
}

#[test]
fn g28_a_move_that_is_given_up_thaws_the_source() {
    let tree = Tree::new("move-dropped");
    let source = tree.make("gen-1");
    tree.make("moved");
    let migration = tree.migrate("gen-1", "moved").unwrap();
    assert_eq!(fs::read_to_string(source.path().join("cgroup.freeze")).unwrap(), "1\n");
    assert!(migration.next_timeout() <= Instant::now() + BOUND);
    drop(migration);
    assert_eq!(fs::read_to_string(source.path().join("cgroup.freeze")).unwrap(), "0\n");
}
