//! What ends or judges a container from outside: its time, and its health.

use std::time::{Duration, Instant};

use dunnage_testing::{Podman, Runtime};

#[test]
fn a_container_whose_time_is_over() {
    let podman = Podman::new(Runtime::Runc);
    let started = Instant::now();
    // It ignores what could be ignored, and has left descendants in other sessions.
    let script = "trap '' TERM INT; echo started; setsid sleep 1000 & (setsid sleep 1000 &); sleep 1000; sleep 1000";
    let run = podman.run(&["run", "--name", "c", "--timeout", "1"], &["sh", "-c", script]);
    assert_eq!(run.exited(255), "started\n");
    assert!(started.elapsed() > Duration::from_secs(1));
    assert_eq!(podman.inspect("c", "{{.State.Status}} {{.State.ExitCode}}"), "exited -1");
    podman.all_ended();
}

#[test]
fn a_container_that_ends_in_its_time() {
    let podman = Podman::new(Runtime::Runc);
    podman.run(&["run", "--name", "c", "--timeout", "600"], &["sh", "-c", "exit 4"]).exited(4);
}

#[test]
fn health_checks() {
    let podman = Podman::new(Runtime::Runc);
    // Without systemd there is nobody who runs them from time to time.
    let options = ["run", "--name", "c", "-d", "--health-interval", "disable", "--health-retries", "1"];
    let check = ["--health-cmd", "test -e /well || { echo unwell; exit 1; }"];
    podman.run(&[&options[..], &check].concat(), &["sleep", "1000"]).ok();
    podman.command(&["healthcheck", "run", "c"]).exited(1);
    assert_eq!(podman.inspect("c", "{{.State.Health.Status}}"), "unhealthy");
    let last = "{{with index .State.Health.Log 0}}{{.ExitCode}} {{.Output}}{{end}}";
    assert_eq!(podman.inspect("c", last), "1 unwell");
    podman.ok(&["exec", "c", "touch", "/well"]);
    for _ in 0..3 {
        podman.ok(&["healthcheck", "run", "c"]);
    }
    assert_eq!(podman.inspect("c", "{{.State.Health.Status}}"), "healthy");
}
