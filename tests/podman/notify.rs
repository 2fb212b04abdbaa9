//! `--sdnotify container`.

use std::os::unix::net::UnixDatagram;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Podman, Runtime};

#[test]
fn the_containers_readiness_reaches_the_host() {
    let podman = Podman::new(Runtime::Runc);
    let path = podman.root().join("host");
    let host = UnixDatagram::bind(&path).expect("the host's socket");
    let receive = || {
        wait::readable(&host, Deadline::usual(), "a notification");
        let mut buffer = [0; 4096];
        let length = host.recv(&mut buffer).expect("a notification");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let script = "echo $NOTIFY_SOCKET; exec sleep 1000";
    let run = ["run", "-d", "--name", "c", "--sdnotify", "container"];
    // It returns before the container is ready.
    podman.run_with(&[("NOTIFY_SOCKET", path.as_os_str())], &run, &["sh", "-c", script]).ok();
    let monitor = podman.monitor_of("c");
    assert_eq!(receive(), format!("MAINPID={}", monitor.pid()));
    let container = UnixDatagram::unbound().expect("a socket");
    let pid = podman.inspect("c", "{{.State.Pid}}");
    container.connect(format!("/proc/{pid}/root/run/notify/notify.sock")).expect("the container's socket");
    container.send(b"MAINPID=1\nSTATUS=up\nREADY=1\n").expect("a message");
    assert_eq!(receive(), "STATUS=up\nREADY=1");
    let mut logs = podman.start(&["logs", "--follow", "c"]);
    logs.expect("/run/notify/notify.sock\n");
    podman.ok(&["rm", "--force", "--time", "0", "c"]);
}
