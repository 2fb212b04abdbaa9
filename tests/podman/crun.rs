//! The same with crun, in short.

use dunnage_testing::{Podman, Runtime};

#[test]
fn run() {
    Runtime::Crun.run(|| {
        let podman = Podman::new(Runtime::Crun);
        let run = podman.run(&["run"], &["sh", "-c", "echo out; echo err >&2; exit 3"]);
        assert_eq!(run.stderr(), "err\n");
        assert_eq!(run.exited(3), "out\n");
        assert_eq!(podman.run(&["run", "-t"], &["sh", "-c", "tty; echo out"]).ok(), "/dev/pts/0\r\nout\r\n");
    });
}

#[test]
fn in_the_background() {
    Runtime::Crun.run(|| {
        let podman = Podman::new(Runtime::Crun);
        let script = "trap 'exit 7' TERM; echo ready; sleep 1000 & wait";
        podman.run(&["run", "--name", "c", "-d"], &["sh", "-c", script]).ok();
        let mut follower = podman.start(&["logs", "--follow", "c"]);
        follower.expect("ready");
        podman.ok(&["stop", "c"]);
        assert_eq!(podman.ok(&["wait", "c"]), "7\n");
        assert_eq!(follower.finish().ok(), "ready\n");
        podman.ok(&["rm", "c"]);
    });
}

#[test]
fn a_command_that_is_not_there() {
    Runtime::Crun.run(|| {
        let podman = Podman::new(Runtime::Crun);
        let run = podman.run(&["run", "--rm"], &["/no/such/program"]);
        assert!(run.stderr().contains("/no/such/program"), "{run:?}");
        run.exited(127);
        podman.all_ended();
        assert_eq!(podman.ok(&["ps", "--all", "--quiet"]), "");
    });
}
