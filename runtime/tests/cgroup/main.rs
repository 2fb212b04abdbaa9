//! The rules of cgroups on the kernel's own: on this machine's, and where limits are needed, in a small virtual machine
//! with cgroup v2 alone (Linux 6.1), where all of these run once more. As root.

#![allow(clippy::unwrap_used, reason = "what tests share is test code as well")]

mod kill;
mod limits;
mod make;
mod migration;
mod processes;
mod removal;
mod tree;

use dunnage_testing::{vm, wait};

#[test]
fn in_a_virtual_machine() {
    if limits::are_possible_here() {
        // This is the machine.
        return;
    }
    let stdout = vm::run_own_tests_alone(&[(wait::SLOWNESS, "4")], &["--include-ignored", "--test-threads=2"]);
    assert!(stdout.contains(" 0 ignored; "), "{stdout}");
}
