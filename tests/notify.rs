//! Notifications of a container on their way to the host's service manager.

use std::fs;
use std::io::{ErrorKind, IoSlice, pipe};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dunnage_testing::script::RUNTIME_FACTS;
use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Facts, Monitor, Process, Running, Sandbox, Script, Step, Tool, descriptors, mode};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

/// The host's side.
struct Host(UnixDatagram);

impl Host {
    fn bind(path: &Path) -> Self {
        Self::with(UnixDatagram::bind(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    fn with(socket: UnixDatagram) -> Self {
        socket.set_nonblocking(true).expect("a socket can be made nonblocking");
        Self(socket)
    }

    /// The next message.
    fn receive(&self) -> String {
        wait::readable(&self.0, Deadline::usual(), "a notification");
        let mut buffer = [0; 8192];
        let length = self.0.recv(&mut buffer).expect("a notification");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    fn has_nothing(&self) -> bool {
        self.0.recv(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

fn host_path(sandbox: &Sandbox) -> PathBuf {
    sandbox.root().join("host")
}

/// The container's side, as the caller sees it.
fn socket(sandbox: &Sandbox) -> PathBuf {
    sandbox.bundle().join("notify/notify.sock")
}

/// A container that lives until the event, and whose caller has made the directory.
fn start<'a>(sandbox: &'a Sandbox, change: impl FnOnce(Monitor<'a>) -> Monitor<'a>) -> Running<'a> {
    sandbox.script(&Script::new([Step::wait("end"), Step::Exit(0)]));
    fs::create_dir(sandbox.bundle().join("notify")).expect("a directory");
    let monitor = sandbox.monitor(&Tool::under_test()).option("--sdnotify-socket", host_path(sandbox));
    let mut monitor = change(monitor).start();
    monitor.pid();
    monitor
}

/// The container speaks.
fn client(sandbox: &Sandbox) -> UnixDatagram {
    let client = UnixDatagram::unbound().expect("a socket");
    client.connect(socket(sandbox)).expect("the socket takes senders");
    client
}

fn say(sandbox: &Sandbox, message: &str) {
    client(sandbox).send(message.as_bytes()).expect("the socket takes messages");
}

#[test]
fn j01_the_container_says_what_it_may_and_the_start_does_not_wait_for_it() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    let host = Host::bind(&host_path(&sandbox));
    // Its start returns although nothing was said yet.
    let monitor = start(&sandbox, |monitor| monitor);
    assert_eq!(mode(&socket(&sandbox).symlink_metadata().expect("the socket")), "socket 0777");
    for message in ["MAINPID=1", "STATUS=half\nMAINPID=1\nFDSTORE=1\n", "READY=1\nERRNO=2\nX_FOO=1"] {
        say(&sandbox, message);
    }
    assert_eq!(host.receive(), "STATUS=half");
    assert_eq!(host.receive(), "READY=1\nERRNO=2");
    assert!(host.has_nothing());
    end.fire();
    assert_eq!(monitor.exit_code(), "0");
}

#[test]
fn both_monitors_say_that_it_is_ready() {
    for tool in [Tool::conmon(), Tool::under_test()] {
        let sandbox = Sandbox::with(&Script::new([Step::wait("end"), Step::Exit(0)]));
        let end = sandbox.event("end");
        let host = Host::bind(&host_path(&sandbox));
        fs::create_dir(sandbox.bundle().join("notify")).expect("a directory");
        let mut monitor = sandbox.monitor(&tool).option("--sdnotify-socket", host_path(&sandbox)).start();
        monitor.pid();
        assert_eq!(mode(&socket(&sandbox).symlink_metadata().expect("the socket")), "socket 0777", "{}", tool.name);
        for message in ["MAINPID=1\n", "READY=1\nMAINPID=1\n", "FDSTORE=1", "WATCHDOG=1\n"] {
            say(&sandbox, message);
        }
        assert_eq!([host.receive(), host.receive()], ["READY=1", "WATCHDOG=1"], "{}", tool.name);
        end.fire();
        assert_eq!(monitor.exit_code(), "0");
        monitor.end();
        // Both leave the socket to the caller, whose directory it is in.
        assert!(socket(&sandbox).exists(), "{}", tool.name);
    }
}

#[test]
fn the_runtime_gets_the_environment_as_it_is_from_both() {
    for tool in [Tool::conmon(), Tool::under_test()] {
        let sandbox = Sandbox::with(&Script::new([Step::Exit(0)]));
        fs::create_dir(sandbox.bundle().join("notify")).expect("a directory");
        for (given, expected) in [(None, None), (Some("/run/host"), Some("/run/host"))] {
            let monitor = sandbox.monitor(&tool).option("--sdnotify-socket", host_path(&sandbox));
            let monitor = if let Some(given) = given { monitor.env("NOTIFY_SOCKET", given) } else { monitor };
            let monitor = monitor.start();
            assert_eq!(monitor.exit_code(), "0");
            monitor.end();
            let facts: Facts = sandbox.report(RUNTIME_FACTS);
            assert_eq!(facts.env.get("NOTIFY_SOCKET").map(String::as_str), expected, "{}", tool.name);
            fs::remove_file(sandbox.exit_file()).expect("the exit file");
        }
    }
}

#[test]
fn the_last_words_arrive_before_the_end_is_known() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    let host = Host::bind(&host_path(&sandbox));
    let monitor = start(&sandbox, |monitor| monitor);
    let pid = fs::read_to_string(sandbox.pid_file()).expect("the pid file").parse().expect("a pid");
    let container = Process::open(pid).expect("the container lives");
    // When the monitor looks again, the end is there and more messages than it passes on in one turn.
    monitor.long().signal(nix::libc::SIGSTOP);
    for _ in 0..8 {
        say(&sandbox, "MAINPID=1");
    }
    say(&sandbox, "STOPPING=1");
    end.fire();
    container.wait_end(Deadline::usual(), "the container");
    monitor.long().signal(nix::libc::SIGCONT);
    assert_eq!(monitor.exit_code(), "0");
    assert_eq!(host.receive(), "STOPPING=1");
}

#[test]
fn descriptors_that_come_along_are_closed() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    let host = Host::bind(&host_path(&sandbox));
    let monitor = start(&sandbox, |monitor| monitor);
    say(&sandbox, "STATUS=begun");
    // The start is over: nothing else is opened or closed from here on.
    assert_eq!(host.receive(), "STATUS=begun");
    let before = descriptors(&monitor.long().proc_dir()).expect("descriptors");
    let client = client(&sandbox);
    for message in ["BARRIER=1", "READY=1"] {
        let (reader, writer) = pipe().expect("a pipe");
        let fds = [writer.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&fds)];
        let data = [IoSlice::new(message.as_bytes())];
        sendmsg::<()>(client.as_raw_fd(), &data, &rights, MsgFlags::empty(), None).expect("a message");
        drop(writer);
        // As systemd-notify waits: until nobody holds the other end.
        wait::readable(&reader, Deadline::usual(), "the end of the pipe that was sent");
    }
    assert_eq!(host.receive(), "READY=1");
    let after = descriptors(&monitor.long().proc_dir()).expect("descriptors");
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    end.fire();
    assert_eq!(monitor.exit_code(), "0");
}

#[test]
fn j02_a_host_that_is_gone_holds_nobody_up() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    let monitor = start(&sandbox, |monitor| monitor);
    // Many more than any queue holds; each is taken.
    for _ in 0..1000 {
        say(&sandbox, "READY=1");
    }
    end.fire();
    assert_eq!(monitor.exit_code(), "0");
}

#[test]
fn j02_a_host_that_takes_nothing_holds_nobody_up() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    let host = Host::bind(&host_path(&sandbox));
    let monitor = start(&sandbox, |monitor| monitor);
    for _ in 0..1000 {
        say(&sandbox, "WATCHDOG=1");
    }
    end.fire();
    assert_eq!(monitor.exit_code(), "0");
    assert_eq!(host.receive(), "WATCHDOG=1");
}

#[test]
fn a_flood_hinders_neither_output_nor_the_end() {
    let sandbox = Sandbox::with(&Script::new([Step::wait("talk"), Step::out("hello\n"), Step::wait("end")]));
    let [talk, end] = ["talk", "end"].map(|name| sandbox.event(name));
    fs::create_dir(sandbox.bundle().join("notify")).expect("a directory");
    let mut monitor = sandbox.monitor(&Tool::under_test()).option("--sdnotify-socket", host_path(&sandbox)).start();
    monitor.pid();
    let client = client(&sandbox);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Ends with the monitor at the latest, which then refuses.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if client.send(b"STATUS=x").is_err() {
                    return;
                }
            }
        });
        talk.fire();
        monitor.log_has("hello");
        end.fire();
        let code = monitor.exit_code();
        done.store(true, Ordering::Relaxed);
        assert_eq!(code, "0");
    });
}

#[test]
fn the_host_may_have_an_abstract_name() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    let name = sandbox.root().display().to_string();
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let host = Host::with(UnixDatagram::bind_addr(&address).expect("an abstract socket"));
    let monitor = start(&sandbox, |monitor| monitor.option("--sdnotify-socket", format!("@{name}")));
    say(&sandbox, "READY=1");
    assert_eq!(host.receive(), "READY=1");
    end.fire();
    assert_eq!(monitor.exit_code(), "0");
}

#[test]
fn j02_the_longest_path_is_reached_in_full() {
    let sandbox = Sandbox::new();
    let end = sandbox.event("end");
    let root = sandbox.root().display().to_string();
    let path = PathBuf::from(format!("{root}/{}", "h".repeat(107 - root.len() - 1)));
    let host = Host::bind(&path);
    let monitor = start(&sandbox, |monitor| monitor.option("--sdnotify-socket", &path));
    say(&sandbox, "READY=1");
    assert_eq!(host.receive(), "READY=1");
    end.fire();
    assert_eq!(monitor.exit_code(), "0");
}

#[test]
fn without_the_directory_nothing_is_started_and_the_caller_is_told() {
    let sandbox = Sandbox::with(&Script::new([Step::Exit(0)]));
    let monitor = sandbox.monitor(&Tool::under_test()).option("--sdnotify-socket", host_path(&sandbox));
    let messages = monitor.start().messages();
    assert_eq!(messages[0]["data"], -1);
    assert!(messages[0]["message"].as_str().is_some_and(|text| text.contains("notify.sock")), "{messages:?}");
}
