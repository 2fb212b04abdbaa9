//! What cannot be done.

use dunnage_testing::{Podman, Runtime, Status};

#[test]
fn a_command_that_is_not_there() {
    let podman = Podman::new(Runtime::Runc);
    for terminal in ["--tty=false", "--tty=true"] {
        let run = podman.run(&["run", "--rm", terminal], &["/no/such/program"]);
        assert!(run.stderr().contains("runc create failed"), "{run:?}");
        assert!(run.stderr().contains("/no/such/program"), "{run:?}");
        run.exited(127);
        podman.all_ended();
        assert_eq!(podman.ok(&["ps", "--all", "--quiet"]), "");
    }
}

#[test]
fn a_command_that_is_not_there_and_a_container_that_stays() {
    let podman = Podman::new(Runtime::Runc);
    podman.run(&["create", "--name", "c", "-i"], &["/bin/later"]).ok();
    let start = podman.command(&["start", "c"]);
    assert_ne!(start.status, Status::Exited(0));
    assert!(start.stderr().contains("/bin/later"), "{start:?}");
    podman.all_ended();
    podman.ok(&["rm", "c"]);
}
