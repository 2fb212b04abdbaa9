//! Containers that run out of memory, as Podman tells it.

use dunnage_testing::{Podman, Runtime};

#[test]
fn with_runc() {
    says_who_ran_out_of_memory(&Podman::new(Runtime::Runc));
}

#[test]
fn with_crun() {
    Runtime::Crun.run(|| says_who_ran_out_of_memory(&Podman::new(Runtime::Crun)));
}

fn says_who_ran_out_of_memory(podman: &Podman) {
    let state = |container| podman.inspect(container, "{{.State.OOMKilled}} {{.State.ExitCode}}");
    podman.run(&["run", "--name", "hog", "--memory", "20m"], &["tail", "/dev/zero"]).exited(137);
    assert_eq!(state("hog"), "true 137");
    // Killed as well, but by somebody.
    podman.run(&["run", "--name", "killed", "--memory", "20m", "-d"], &["sleep", "1000"]).ok();
    podman.ok(&["kill", "killed"]);
    podman.ok(&["wait", "killed"]);
    assert_eq!(state("killed"), "false 137");
}
