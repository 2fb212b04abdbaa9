//! Containers of Podman, which passes on a directory for control sockets and no option.

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Podman, Runtime};

#[test]
fn podmans_containers_are_found_by_their_names() {
    let podman = Podman::with_control_dir(Runtime::Runc);
    podman.run(&["run", "-d", "--name", "web"], &["sleep", "1000"]).ok();
    let ctl = podman.dunnagectl();
    // Started, it still is the runtime for a moment.
    wait::eventually(Deadline::usual(), "the container's command", || {
        let text = ctl.run(&["ps"]).ok();
        text.contains("  web ") && text.contains("running") && text.ends_with("sleep 1000\n")
    });
    assert_eq!(ctl.run(&["exec", "web", "sh", "-c", "echo $PATH; exit 3"]).exited(3), "/bin\n");
    // An exec of Podman's has a monitor of its own, and that no socket.
    assert_eq!(podman.ok(&["exec", "web", "echo", "hello"]), "hello\n");
    podman.ok(&["restart", "-t", "0", "web"]);
    assert!(ctl.run(&["status", "web"]).ok().contains("running"));
    ctl.run(&["shutdown", "--timeout", "3s", "web"]).ok();
    podman.ok(&["wait", "web"]);
    podman.all_ended();
    assert_eq!(ctl.run(&["ps", "-q"]).ok(), "");
}
