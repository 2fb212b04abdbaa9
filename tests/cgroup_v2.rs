//! Real runtimes and Podman where cgroup v2 is all there is: in a small virtual machine.
//!
//! Its kernel is Debian 12's, 6.1, which lacks much of what later ones have. One test boots the machine and runs the
//! others, which are ignored elsewhere, in it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use dunnage_testing::{Bundle, Podman, Runtime, vm, wait};

#[test]
fn in_a_virtual_machine() {
    // Starting programs is what takes its time there.
    let stdout = vm::run_own_tests(&[(wait::SLOWNESS, "4")], &["--ignored", "--test-threads=2"]);
    assert!(stdout.contains("test result: ok. 4 passed"), "{stdout}");
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn runc() {
    container(Runtime::Runc);
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn crun() {
    container(Runtime::Crun);
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn podman_with_runc() {
    podman(Runtime::Runc);
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn podman_with_crun() {
    podman(Runtime::Crun);
}

fn container(runtime: Runtime) {
    let mut bundle = Bundle::new(runtime, "cat /sys/fs/cgroup/memory.max; echo err >&2; read line; exit 3");
    bundle.change(|config| config["linux"]["resources"]["memory"]["limit"] = (64 << 20).into());
    let socket = bundle.sandbox().root().join("control");
    let mut monitor = bundle.monitor().flag("-i").option("--control-socket", &socket).start();
    monitor.pid();
    let mut client = monitor.attach();
    bundle.start();
    client.expect("67108864\n");
    let limits = limits(&socket);
    assert_eq!(limits["memory_max"], "67108864", "{limits}");
    for (name, there) in [("memory_high", "max"), ("cpu_max", "max 100000"), ("cpu_weight", "100")] {
        assert_eq!(limits[name], there, "{limits}");
    }
    client.send(b"go\n");
    assert_eq!(monitor.exit_code(), "3");
    assert_eq!(client.receive_all().stderr, b"err\n");
    assert!(monitor.log().is(b"67108864\n", b"err\n"), "{:?}", monitor.log());
    monitor.end();
    bundle.delete();
}

/// What the control socket says of the container's limits.
fn limits(socket: &Path) -> Value {
    let mut stream = UnixStream::connect(socket).expect("the control socket");
    stream.write_all(b"{\"method\": \"org.dunnage.shim.Status\"}\0").expect("a call");
    let mut answer = Vec::new();
    BufReader::new(stream).read_until(0, &mut answer).expect("an answer");
    let answer: Value = serde_json::from_slice(&answer[..answer.len() - 1]).expect("JSON");
    answer["parameters"]["limits"].clone()
}

fn podman(runtime: Runtime) {
    let podman = Podman::new(runtime);
    let run = podman.run(&["run", "-t", "--memory", "64m"], &["sh", "-c", "cat /sys/fs/cgroup/memory.max; exit 3"]);
    assert_eq!(run.exited(3), "67108864\r\n");
    podman.run(&["run", "--name", "c", "-d"], &["sh", "-c", "trap 'exit 7' TERM; echo ready; sleep 1000 & wait"]).ok();
    let mut follower = podman.start(&["logs", "--follow", "c"]);
    follower.expect("ready\n");
    podman.ok(&["stop", "c"]);
    assert_eq!(podman.ok(&["wait", "c"]), "7\n");
    assert_eq!(follower.finish().ok(), "ready\n");
    podman.run(&["run", "--name", "hog", "--memory", "20m"], &["tail", "/dev/zero"]).exited(137);
    assert_eq!(podman.inspect("hog", "{{.State.OOMKilled}}"), "true");
}
