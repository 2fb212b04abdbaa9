//! The relay on real pipes, terminals and sockets, driven by a real loop.

mod clients_input;
mod clients_output;
mod logs;
mod streams;
mod terminal;
mod the_end;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use dunnage_runtime::event_loop::Events;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::{OpenptyResult, openpty};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr, connect, recv, send, shutdown, socket,
};
use nix::sys::stat::fstat;
use nix::sys::termios::cfmakeraw;

use super::*;

/// How long anything may take before its test fails.
const BOUND: Duration = Duration::from_secs(20);

/// A directory of the test's own, removed at its end.
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("dunnage-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("create_dir");
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A log that keeps everything.
#[derive(Default)]
struct Recording {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// It has no room, but for what is written at the end.
    full: bool,
    ended: Vec<Stream>,
    grown: bool,
}

impl Sink for Recording {
    fn write(&mut self, stream: Stream, output: &[u8]) {
        match stream {
            Stream::Stdout => self.stdout.extend_from_slice(output),
            Stream::Stderr => self.stderr.extend_from_slice(output),
        }
        assert!(!self.full, "nobody made room");
    }

    fn has_room(&self) -> bool {
        !self.full
    }

    fn make_room(&mut self) {
        self.full = false;
    }

    fn end(&mut self, stream: Stream) {
        self.ended.push(stream);
    }

    fn has_grown(&mut self) -> bool {
        mem::take(&mut self.grown)
    }
}

/// What a shim has of a relay, and the loop that drives it.
struct Shim {
    relay: Relay,
    event_loop: EventLoop<Source>,
    events: Events,
    log: Recording,
    /// How many events there were.
    turns: usize,
    directory: Directory,
}

impl Shim {
    fn new(stdio: Stdio) -> (Self, ChildStdio) {
        Self::with(stdio, false, None)
    }

    fn with(stdio: Stdio, leave_stdin_open: bool, stall_timeout: Option<Duration>) -> (Self, ChildStdio) {
        let event_loop = EventLoop::new().expect("a loop");
        let (mut relay, child) =
            Relay::new(&event_loop, Target::Container, stdio, leave_stdin_open, stall_timeout).expect("a relay");
        let directory = Directory::new();
        let (made, listener) = AttachSocket::create(directory.path(), None, "uuid".as_ref()).expect("a socket");
        // Clients connect for as long as the directory is there.
        std::mem::forget(made);
        relay.listen(&event_loop, listener).expect("listen");
        let shim = Self {
            relay,
            event_loop,
            events: Events::with_capacity(64),
            log: Recording::default(),
            turns: 0,
            directory,
        };
        (shim, child)
    }

    /// One wait, until `deadline` at most, and all that it brings.
    fn turn(&mut self, deadline: Instant) {
        let next = self.relay.next_timeout().map_or(deadline, |when| when.min(deadline));
        self.event_loop.wait(&mut self.events, Some(next)).expect("wait");
        let now = Instant::now();
        for event in self.events.iter::<Source>() {
            let Source::Relay(Target::Container, source) = event.source else {
                panic!("{event:?} is none of the relay's")
            };
            self.turns += 1;
            let event = Event { source, readable: event.readable, writable: event.writable };
            self.relay.handle(&self.event_loop, &mut self.log, event, now);
        }
        self.relay.handle_timeout(&self.event_loop, &self.log, now);
    }

    /// Runs the loop until `done`, which is `what`.
    #[track_caller]
    fn run_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + BOUND;
        while !done(self) {
            assert!(Instant::now() < deadline, "in vain waited for: {what}");
            // A condition may come true elsewhere than in the loop.
            self.turn(deadline.min(Instant::now() + Duration::from_millis(2)));
        }
    }

    /// Runs the loop until nothing happens for a moment. It must come to that.
    #[track_caller]
    fn run_until_idle(&mut self) {
        let mut before = usize::MAX;
        self.run_until("no more events", |shim| {
            let idle = shim.turns == before;
            before = shim.turns;
            idle
        });
    }

    fn attach(&mut self) -> Client {
        let client = Client::connect(self.directory.path());
        let before = self.relay.clients.accepted();
        self.run_until("an accepted client", |shim| shim.relay.clients.accepted() > before);
        client
    }

    fn logged(&mut self, what: &str, len: usize) {
        self.run_until(what, |shim| shim.log.stdout.len() + shim.log.stderr.len() >= len);
    }

    /// The container's end, as the lead of it all handles it.
    fn end(&mut self) {
        let now = Instant::now();
        self.relay.drain(&self.event_loop, &mut self.log, now);
    }

    fn close(&mut self) {
        self.relay.close(&self.event_loop);
    }
}

/// An attach client.
struct Client(OwnedFd);

impl Client {
    fn connect(bundle: &Path) -> Self {
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("socket");
        connect(socket.as_raw_fd(), &UnixAddr::new(&bundle.join("attach")).expect("an address")).expect("connect");
        Self(socket)
    }

    fn raw(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// The next packet, if there is one by now; empty at the end.
    fn packet(&self) -> Option<Vec<u8>> {
        let mut buffer = [0; 2 * ring::MAX_PAYLOAD];
        match recv(self.raw(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(len) => Some(buffer[..len].to_vec()),
            Err(Errno::EAGAIN) => None,
            Err(error) => panic!("a client saw {error}"),
        }
    }

    /// All packets there are by now.
    fn packets(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.packet().filter(|packet| !packet.is_empty())).collect()
    }

    /// Adds the output there is by now to what was received before.
    fn take(&self, received: &mut Recording) {
        for packet in self.packets() {
            received.take(&packet);
        }
    }

    /// Reads to the end, on a thread of its own.
    fn read_to_end(self) -> JoinHandle<Recording> {
        thread::spawn(move || {
            let mut received = Recording::default();
            let mut buffer = [0; ring::MAX_PAYLOAD + 1];
            loop {
                match recv(self.raw(), &mut buffer, MsgFlags::empty()).expect("a packet") {
                    0 => return received,
                    len => received.take(&buffer[..len]),
                }
            }
        })
    }

    fn send(&self, input: &[u8]) {
        assert_eq!(send(self.raw(), input, MsgFlags::MSG_DONTWAIT), Ok(input.len()));
    }

    fn end_input(&self) {
        shutdown(self.raw(), Shutdown::Write).expect("shutdown");
    }
}

impl Recording {
    fn take(&mut self, packet: &[u8]) {
        let stream = match packet[0] {
            2 => Stream::Stdout,
            3 => Stream::Stderr,
            tag => panic!("a packet of stream {tag}"),
        };
        assert!(packet.len() > 1 && packet.len() <= ring::MAX_PAYLOAD + 1, "a packet of {} bytes", packet.len());
        self.write(stream, &packet[1..]);
    }
}

/// Bytes that show where they belong.
fn pattern(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let bytes = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    });
    bytes.flatten().take(len).collect()
}

#[track_caller]
fn assert_same(found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "length");
    let difference = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert_eq!(difference, None, "the first byte that differs");
}

/// Writes on a thread, as a container does.
fn write_all(fd: OwnedFd, bytes: &[u8]) -> JoinHandle<()> {
    let bytes = bytes.to_vec();
    thread::spawn(move || File::from(fd).write_all(&bytes).expect("the container's output"))
}

/// Reads to the end on a thread.
fn read_all(fd: OwnedFd) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        File::from(fd).read_to_end(&mut bytes).expect("the container's input");
        bytes
    })
}

fn written(fd: &OwnedFd, bytes: &[u8]) {
    assert_eq!(nix::unistd::write(fd, bytes), Ok(bytes.len()));
}

/// What is in a pipe or terminal by now.
fn available(fd: &OwnedFd) -> Vec<u8> {
    set_nonblocking(fd).expect("nonblocking");
    let mut bytes = vec![0; 1 << 16];
    let len = nix::unistd::read(fd, &mut bytes).unwrap_or(0);
    bytes.truncate(len);
    bytes
}

/// A terminal whose bytes are left alone in either direction.
fn raw_terminal() -> OpenptyResult {
    let pty = openpty(None, None).expect("openpty");
    let mut attributes = tcgetattr(&pty.slave).expect("tcgetattr");
    cfmakeraw(&mut attributes);
    tcsetattr(&pty.slave, SetArg::TCSANOW, &attributes).expect("tcsetattr");
    pty
}

/// The path by which a terminal can be opened again.
fn terminal_path(slave: &OwnedFd) -> PathBuf {
    std::fs::read_link(format!("/proc/self/fd/{}", slave.as_raw_fd())).expect("read_link")
}

/// Runs a test whose subject is the whole process in a process of its own.
fn alone(name: &str, test: impl FnOnce()) {
    const MARK: &str = "DUNNAGE_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        return test();
    }
    let name = format!("relay::tests::{name}");
    let program = std::env::current_exe().expect("this program");
    let output = std::process::Command::new(program).args([&name, "--exact"]).env(MARK, "").output().expect("a test");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && report.contains("1 passed"), "{report}");
}

/// The memory that only this process has, in KiB.
fn private_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("smaps_rollup");
    let value = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("Anonymous");
    value.trim().trim_end_matches(" kB").parse().expect("a number")
}
