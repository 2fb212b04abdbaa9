//! Making children: G5, G14, G21, G23, G33.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use dunnage_runtime::cgroup::{CgroupError, Kind, Parent};
use dunnage_runtime::generation::{Limit, Tier};
use nix::sys::wait::{WaitStatus, waitpid};

use crate::processes::{BIRTHPLACE, Lifeline, bearer, count, is_born_alive, sleeper};
use crate::tree::{Tree, name};

#[test]
fn g21_a_child_that_exists_is_made_afresh_and_never_used() {
    let tree = Tree::new("afresh");
    tree.make("gen-1");
    tree.kill("gen-1");
    tree.mkdir("gen-1/below");
    let before = tree.identity("gen-1");
    tree.make("gen-1");
    assert_ne!(tree.identity("gen-1"), before);
    assert!(!tree.is_killed("gen-1") && !tree.exists("gen-1/below"));
}

#[test]
fn g21_a_child_with_a_process_is_refused_and_names_it() {
    let tree = Tree::new("in-use");
    tree.make("gen-1");
    let before = tree.identity("gen-1");
    let lifeline = Lifeline::new();
    let process = lifeline.spawn(&tree.path_of("gen-1"), sleeper);
    let error = tree.parent.make(&name("gen-1"), &Tier::UNLIMITED).unwrap_err();
    assert!(matches!(error, CgroupError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&format!("process {} (", process.pid)), "{error}");
    assert_eq!(tree.identity("gen-1"), before);
}

#[test]
fn g5_what_is_made_after_a_kill_is_born_alive() {
    let tree = Tree::new("born");
    assert!(is_born_alive(tree.make("gen-1")));
    tree.kill("gen-1");
    assert!(is_born_alive(tree.make("gen-1")));
    // The kill of a cgroup above counts only for what was there then.
    tree.write("cgroup.kill", "1");
    assert!(is_born_alive(tree.make("gen-1")));
    assert!(is_born_alive(tree.make("gen-2")));
}

#[test]
fn g5_the_second_way_in_works_where_the_kernel_kills_at_birth() {
    let tree = Tree::new("second-way");
    let killed = tree.make("killed");
    let below = tree.make("below");
    fs::write(killed.path().join("cgroup.kill"), "1").unwrap();
    fs::write(tree.path.join("cgroup.kill"), "1").unwrap();
    let born = [&killed, &below].map(is_born_alive);
    // It is the difference that counts: so a fresh cgroup is no better for who lives in a killed one.
    let fresh = tree.make("fresh");
    BIRTHPLACE.set(CString::new(fresh.path().as_os_str().as_bytes()).unwrap()).unwrap();
    let mut lifeline = Lifeline::new();
    let bearer = lifeline.spawn(killed.path(), bearer);
    let status = waitpid(bearer.pid, None).unwrap();
    std::mem::forget(bearer);
    let born = [born[0], born[1], status == WaitStatus::Exited(status.pid().unwrap(), 0)];
    // Linux 6.18 kills all of them, 6.1 none.
    println!("born alive: {born:?}");
    assert!(born == [true; 3] || born == [false; 3], "{born:?}");
    let _processes = ["killed", "below"].map(|child| lifeline.spawn(&tree.path_of(child), sleeper));
    assert_eq!((count(killed.path()), count(below.path())), (1, 1));
    assert!(!lifeline.has_ended());
}

#[test]
fn g5_nothing_is_made_below_a_frozen_cgroup() {
    let tree = Tree::new("frozen-above");
    tree.write("cgroup.freeze", "1");
    let error = tree.parent.make(&name("gen-1"), &Tier::UNLIMITED).unwrap_err();
    assert!(matches!(error, CgroupError::Frozen { .. }), "{error}");
    assert_eq!(tree.children(), 0);
    // Nor further below.
    tree.mkdir("service");
    let service = Parent::open(&tree.path_of("service")).unwrap();
    assert!(matches!(service.make(&name("gen-1"), &Tier::UNLIMITED), Err(CgroupError::Frozen { .. })));
    tree.write("cgroup.freeze", "0");
    service.make(&name("gen-1"), &Tier::UNLIMITED).unwrap();
}

#[test]
fn o02_a_parent_with_processes_is_refused_and_not_changed() {
    let tree = Tree::new("processes");
    let lifeline = Lifeline::new();
    let _process = lifeline.spawn(&tree.path, sleeper);
    let error = tree.parent.make(&name("gen-1"), &Tier::UNLIMITED).unwrap_err();
    assert!(matches!(error, CgroupError::HasProcesses { .. }), "{error}");
    assert_eq!((tree.read("cgroup.type"), tree.children()), ("domain".into(), 0));
}

#[test]
fn o02_nothing_is_made_in_a_threaded_subtree_and_nothing_changed() {
    let tree = Tree::new("threads");
    tree.make("other");
    tree.write("other/cgroup.type", "threaded");
    let error = tree.parent.make(&name("gen-1"), &Tier::UNLIMITED).unwrap_err();
    assert!(matches!(&error, CgroupError::Threaded { kind: Kind::DomainThreaded, .. }), "{error}");
    let inside = Parent::open(&tree.path_of("other")).unwrap();
    let error = inside.make(&name("gen-1"), &Tier::UNLIMITED).unwrap_err();
    assert!(matches!(&error, CgroupError::Threaded { kind: Kind::Other(_), .. }), "{error}");
    assert_eq!((tree.children(), tree.read("other/cgroup.type")), (1, "threaded".into()));
}

#[test]
fn g14_a_controller_that_is_not_delegated_is_named() {
    let tree = Tree::new("undelegated");
    // Below it nothing is delegated, whatever there is above.
    tree.mkdir("service");
    let service = Parent::open(&tree.path_of("service")).unwrap();
    assert!(service.controllers().unwrap().is_empty());
    let tier = Tier { memory_max: Limit::Value(1 << 20), pids_max: Limit::Value(9), ..Tier::UNLIMITED };
    let error = service.make(&name("gen-1"), &tier).unwrap_err();
    assert!(matches!(error, CgroupError::NoController { .. }), "{error}");
    assert!(error.to_string().contains("memory, pids"), "{error}");
    assert!(!tree.exists("service/gen-1"));
    // The same for limits of its own.
    let error = service.cgroup().set_limits(&tier).unwrap_err();
    assert!(matches!(error, CgroupError::NoController { .. }), "{error}");
    // G33: what needs none can be made anywhere.
    service.make(&name("gen-1"), &Tier::UNLIMITED).unwrap();
    service.cgroup().set_limits(&Tier::UNLIMITED).unwrap();
    assert_eq!(service.cgroup().limits().unwrap(), Tier::UNLIMITED);
}

#[test]
fn g23_a_cgroup_that_may_not_be_written_is_no_delegation() {
    let tree = Tree::new("undelegated-user");
    let path = tree.path.clone();
    let opened = std::thread::spawn(move || {
        // SAFETY: takes integers. The system call, unlike libc's function, changes this thread alone.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) }, 0);
        Parent::open(&path)
    });
    let error = opened.join().unwrap().unwrap_err();
    assert!(matches!(error, CgroupError::NoDelegation { .. }), "{error}");
    assert!(error.to_string().contains("is not writable"), "{error}");
}

#[test]
fn o05_what_another_removed_is_reported_as_absent() {
    let tree = Tree::new("gone-behind");
    let child = tree.make("gen-1");
    tree.rmdir("gen-1");
    for error in [
        child.set_limits(&Tier::UNLIMITED).unwrap_err(),
        child.limits().unwrap_err(),
        child.events().map(|_| ()).unwrap_err(),
        child.freeze(true).unwrap_err(),
        child.entrance().map(|_| ()).unwrap_err(),
        child.kind().map(|_| ()).unwrap_err(),
    ] {
        assert!(matches!(error, CgroupError::Absent { .. }), "{error}");
    }
    assert!(tree.parent.child(&name("gen-1")).unwrap().is_none());
    fs::remove_dir(&tree.path).unwrap();
    let error = tree.parent.make(&name("gen-1"), &Tier::UNLIMITED).unwrap_err();
    assert!(matches!(error, CgroupError::Absent { .. }), "{error}");
}
