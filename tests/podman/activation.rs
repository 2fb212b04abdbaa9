//! Descriptors that reach the container: sockets of systemd's, and what Podman is told to pass on.

use std::fs::{self, File};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use dunnage_testing::wait::Deadline;
use dunnage_testing::{Podman, Runtime, Status};

/// What `/proc` calls a descriptor of ours.
fn name(fd: &impl AsRawFd) -> String {
    let link = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("a descriptor of ours");
    link.display().to_string()
}

#[test]
fn sockets_of_systemd() {
    let podman = Podman::new(Runtime::Runc);
    let stream = TcpListener::bind("127.0.0.1:0").expect("a listening socket");
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let script = "echo $LISTEN_FDS $LISTEN_PID $$; readlink /proc/$$/fd/3; readlink /proc/$$/fd/4; echo ready
        dd bs=100 count=1 <&4 2>/dev/null; exit 3";
    let sockets = [stream.as_fd(), datagrams.as_fd()];
    let mut run = podman.start_activated(&sockets, &["run", "--name", "c"], &["sh", "-c", script]);
    run.expect("ready");
    // The service is the container's from here on.
    let address = datagrams.local_addr().expect("an address");
    let names = [name(&stream), name(&datagrams)];
    drop((stream, datagrams));
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    client.send_to(b"a request\n", address).expect("the container's socket takes it");
    let [stream, datagrams] = names;
    assert_eq!(run.finish().exited(3), format!("2 1 1\n{stream}\n{datagrams}\nready\na request\n"));
}

#[test]
fn the_sockets_are_closed_with_the_container() {
    let podman = Podman::new(Runtime::Runc);
    let stream = TcpListener::bind("127.0.0.1:0").expect("a listening socket");
    let address = stream.local_addr().expect("an address");
    let run = podman.start_activated(&[stream.as_fd()], &["run", "--name", "c", "-d"], &["sleep", "1000"]);
    run.finish().ok();
    let monitor = podman.monitor_of("c");
    drop(stream);
    // The container and its monitor hold it: nobody else gets the port.
    assert!(TcpListener::bind(address).is_err());
    podman.ok(&["kill", "c"]);
    podman.ok(&["wait", "c"]);
    monitor.wait_end(Deadline::usual(), "the monitor");
    TcpListener::bind(address).expect("the port is free again");
}

#[test]
fn preserved_descriptors() {
    let podman = Podman::new(Runtime::Runc);
    let file = |name: &str| {
        let path = podman.root().join(name);
        fs::write(&path, format!("{name}\n")).expect("a file");
        File::open(path).expect("the file")
    };
    let (first, second) = (file("first"), file("second"));
    let show = ["sh", "-c", "cat <&3; cat <&4"];
    let run = podman.run_with_fds(&[first.as_fd(), second.as_fd()], &["run", "--rm", "--preserve-fds", "2"], &show);
    assert_eq!(run.ok(), "first\nsecond\n");

    podman.run(&["run", "--name", "c", "-d"], &["sleep", "1000"]).ok();
    let (third, fourth) = (file("third"), file("fourth"));
    let command = [&["exec", "--preserve-fds", "2", "c"][..], &show].concat();
    let exec = podman.command_with(&[third.as_fd(), fourth.as_fd()], &command);
    assert_eq!(exec.status, Status::Exited(0), "{exec:?}");
    assert_eq!(exec.ok(), "third\nfourth\n");
}
