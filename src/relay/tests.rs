//! The relay on real pipes, terminals and sockets, driven by a real loop.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use dunnage_runtime::event_loop::Events;
use nix::errno::Errno;
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

mod streams {
    use super::*;

    #[test]
    fn pipes_can_be_opened_again_by_any_user_and_ours_do_not_block() {
        let (shim, child) = Shim::new(Stdio::PipesWithStdin);
        for fd in [&child.stdin, &child.stdout, &child.stderr] {
            assert_eq!(fstat(fd).expect("fstat").st_mode & 0o777, 0o777);
            let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL).expect("F_GETFL"));
            assert!(!flags.contains(OFlag::O_NONBLOCK), "the container's end is as it expects it");
        }
        for output in shim.relay.outputs.iter() {
            let flags = OFlag::from_bits_retain(fcntl(output.fd(), FcntlArg::F_GETFL).expect("F_GETFL"));
            assert!(flags.contains(OFlag::O_NONBLOCK));
        }
    }

    #[test]
    fn without_stdin_and_with_a_terminal_the_rest_is_dev_null() {
        let null = std::fs::metadata("/dev/null").expect("metadata");
        let is_null = |fd: &OwnedFd| {
            let stat = fstat(fd).expect("fstat");
            stat.st_rdev == std::os::unix::fs::MetadataExt::rdev(&null)
        };
        let (_shim, child) = Shim::new(Stdio::Pipes);
        assert_eq!([&child.stdin, &child.stdout, &child.stderr].map(is_null), [true, false, false]);
        let (_shim, child) = Shim::new(Stdio::Terminal);
        assert_eq!([&child.stdin, &child.stdout, &child.stderr].map(is_null), [true, true, false]);
    }

    #[test]
    fn output_is_logged_by_stream() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        written(&child.stdout, b"out\n");
        written(&child.stderr, b"err\n");
        shim.logged("both lines", 8);
        assert_eq!((&shim.log.stdout[..], &shim.log.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    }

    #[test]
    fn g05_ten_mebibytes_of_each_stream_are_logged_exactly() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let output = pattern(10 << 20);
        let writers = [write_all(child.stdout, &output), write_all(child.stderr, &output)];
        shim.run_until("the end of both", |shim| shim.relay.output_closed());
        assert_same(&shim.log.stdout, &output);
        assert_same(&shim.log.stderr, &output);
        for writer in writers {
            writer.join().expect("a writer");
        }
    }

    #[test]
    fn output_in_packets_is_read_to_its_last() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        fcntl(&child.stdout, FcntlArg::F_SETFL(OFlag::O_WRONLY | OFlag::O_DIRECT)).expect("F_SETFL");
        for _ in 0..5 {
            written(&child.stdout, b"packet\n");
        }
        shim.logged("five packets", 35);
    }

    #[test]
    fn an_end_that_comes_with_the_last_bytes_is_seen() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        written(&child.stdout, b"last words");
        drop(child);
        shim.run_until("the end", |shim| shim.relay.output_closed());
        assert_eq!(shim.log.stdout, b"last words");
    }

    #[test]
    fn the_end_of_output_is_that_of_every_pipe() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        drop(child.stdout);
        shim.run_until_idle();
        assert!(!shim.relay.output_closed());
        drop(child.stderr);
        shim.run_until("the end", |shim| shim.relay.output_closed());

        let (mut shim, child) = Shim::new(Stdio::Terminal);
        assert!(!shim.relay.output_closed());
        drop(child.stderr);
        shim.run_until("the end", |shim| shim.relay.output_closed());
    }

    #[test]
    fn a_flood_leaves_the_other_stream_its_turn() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        // As much as a pipe can be made to hold, which is four turns.
        fcntl(&child.stdout, FcntlArg::F_SETPIPE_SZ(1 << 20)).expect("F_SETPIPE_SZ");
        written(&child.stdout, &pattern(1 << 20));
        written(&child.stderr, b"a word\n");
        shim.run_until("the word", |shim| !shim.log.stderr.is_empty());
        assert!(shim.log.stdout.len() < 1 << 20, "the flood had it all");
        shim.logged("all of it", (1 << 20) + 7);
        assert_same(&shim.log.stdout, &pattern(1 << 20));
    }

    #[test]
    fn r15_the_end_of_stderr_is_kept_until_it_is_taken() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        written(&child.stdout, b"not this");
        written(&child.stderr, &pattern(10_000));
        shim.logged("both", 10_008);
        assert_same(&shim.relay.take_stderr_tail(), &pattern(10_000)[10_000 - 8192..]);
        written(&child.stderr, b"later");
        shim.logged("more", 10_013);
        assert_eq!(shim.relay.take_stderr_tail(), b"");
    }

    #[test]
    fn large_buffers_are_given_back_when_idle() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let client = shim.attach();
        written(&child.stdout, b"little");
        shim.logged("little", 6);
        assert_eq!(shim.relay.next_timeout(), None, "one page is kept");

        written(&child.stdout, &pattern(60_000));
        client.send(&pattern(30_000));
        shim.logged("much", 60_006);
        shim.run_until("the input", |_| sys::unread_bytes(&child.stdin).expect("FIONREAD") == 30_000);
        let when = shim.relay.next_timeout().expect("a time to give memory back");
        assert!(shim.relay.buffer[..60_000].iter().any(|&byte| byte != 0));
        shim.relay.handle_timeout(&shim.event_loop, &shim.log, when);
        assert!(shim.relay.buffer.iter().all(|&byte| byte == 0));
        assert_eq!(shim.relay.next_timeout(), None);

        shim.log.grown = true;
        written(&child.stdout, b"many short lines");
        shim.logged("short lines", 60_022);
        assert!(shim.relay.next_timeout().is_some(), "there is a time for the log to give memory back");
    }

    #[test]
    fn a_container_that_does_not_read_wakes_nobody() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let client = shim.attach();
        for _ in 0..3 {
            client.send(&pattern(32 << 10));
        }
        shim.run_until("a full pipe", |_| sys::unread_bytes(&child.stdin).expect("FIONREAD") == 64 << 10);
        shim.run_until_idle();
        if let Some(when) = shim.relay.next_timeout() {
            shim.relay.handle_timeout(&shim.event_loop, &shim.log, when);
        }
        assert_eq!(shim.relay.next_timeout(), None, "nothing happens until the container reads");
        let mut input = available(&child.stdin);
        shim.run_until("the rest", |_| sys::unread_bytes(&child.stdin).expect("FIONREAD") == 32 << 10);
        input.extend(available(&child.stdin));
        assert_same(&input, &pattern(32 << 10).repeat(3));
        assert!(shim.relay.next_timeout().is_some(), "now there is memory to give back");
    }
}

mod logs {
    use super::*;

    #[test]
    fn a_log_without_room_makes_the_container_wait_and_nothing_is_lost() {
        let (mut shim, child) = Shim::with(Stdio::Pipes, false, Some(Duration::from_millis(1)));
        let client = shim.attach();
        written(&child.stdout, b"first");
        shim.logged("the first output", 5);
        shim.log.full = true;
        written(&child.stderr, b"error");
        let writer = write_all(child.stdout, &pattern(1 << 20));
        shim.run_until_idle();
        assert_eq!((shim.log.stdout.len(), shim.log.stderr.len()), (5, 0));
        assert_eq!(shim.relay.next_timeout(), None, "no client is to blame");
        shim.log.full = false;
        shim.relay.resume(&shim.event_loop, &shim.log);
        let mut received = Recording::default();
        shim.run_until("all output", |shim| {
            client.take(&mut received);
            received.stdout.len() == 5 + (1 << 20) && shim.log.stderr == b"error"
        });
        writer.join().expect("the writer");
        assert_same(&shim.log.stdout[5..], &pattern(1 << 20));
        assert_same(&received.stdout, &shim.log.stdout);
    }

    #[test]
    fn at_the_end_room_is_made_and_the_log_learns_of_it() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        shim.log.full = true;
        written(&child.stdout, b"last words");
        written(&child.stderr, b"and these");
        shim.run_until_idle();
        shim.end();
        assert_eq!((&*shim.log.stdout, &*shim.log.stderr), (&b"last words"[..], &b"and these"[..]));
        assert_eq!(shim.log.ended, [Stream::Stdout, Stream::Stderr]);
    }

    #[test]
    fn the_log_learns_of_a_stream_that_ends_before_the_container() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        drop(child.stderr);
        shim.run_until("the end of stderr", |shim| shim.log.ended == [Stream::Stderr]);
        written(&child.stdout, b"and on");
        shim.logged("stdout", 6);
    }
}

mod clients_output {
    use super::*;

    #[test]
    fn a_packet_is_its_stream_and_its_bytes() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let client = shim.attach();
        written(&child.stdout, b"out");
        shim.logged("stdout", 3);
        written(&child.stderr, b"err");
        shim.logged("stderr", 6);
        assert_eq!(client.packets(), [b"\x02out", b"\x03err"]);
    }

    #[test]
    fn packets_hold_at_most_8192_bytes() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let client = shim.attach();
        written(&child.stdout, &pattern(20_000));
        shim.logged("stdout", 20_000);
        let lengths: Vec<usize> = client.packets().iter().map(Vec::len).collect();
        assert_eq!(lengths, [8193, 8193, 20_000 - 2 * 8192 + 1]);
    }

    #[test]
    fn earlier_output_is_not_replayed() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        written(&child.stdout, b"before");
        shim.logged("before", 6);
        let client = shim.attach();
        written(&child.stdout, b"after");
        shim.logged("after", 11);
        assert_eq!(client.packets(), [b"\x02after"]);
    }

    #[test]
    fn what_is_kept_goes_to_the_first_client_alone() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        shim.relay.keep_for_the_first();
        // Whoever is awaited is to find the end, at least.
        assert!(!shim.relay.flushed());
        let output = pattern(300_000);
        let writer = write_all(child.stdout, &output);
        shim.logged("all of it", 300_000);
        assert!(!shim.relay.flushed());
        let first = shim.attach();
        let second = shim.attach();
        let mut received = Recording::default();
        shim.run_until("the first to have all", |shim| {
            first.take(&mut received);
            shim.relay.flushed()
        });
        first.take(&mut received);
        assert_eq!((received.stdout == output, second.packets().len()), (true, 0));
        assert!(!shim.relay.clients.keep_output());
        drop(writer);
    }

    #[test]
    fn what_is_kept_holds_the_process_up_until_nobody_is_awaited() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        shim.relay.keep_for_the_first();
        let writer = write_all(child.stdout, &pattern(10 << 20));
        shim.run_until("a full ring", |shim| shim.relay.is_held_up());
        shim.relay.await_nobody(&shim.event_loop, &shim.log);
        shim.logged("all of it", 10 << 20);
        assert!(shim.relay.flushed() && !shim.relay.clients.have_ring());
        drop(writer);
    }

    #[test]
    fn e04_three_clients_get_all_and_one_that_leaves_disturbs_nobody() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let clients = [shim.attach(), shim.attach(), shim.attach()];
        let leaving = shim.attach();
        let output = pattern(10 << 20);
        let readers = clients.map(Client::read_to_end);
        let writers = [write_all(child.stdout, &output), write_all(child.stderr, &output)];
        // Before it keeps everything waiting.
        shim.run_until("a part of it", |shim| shim.log.stdout.len() + shim.log.stderr.len() > 1 << 20);
        drop(leaving);
        shim.run_until("the end of it", |shim| shim.relay.output_closed() && shim.relay.flushed());
        shim.close();
        for reader in readers {
            let received = reader.join().expect("a client");
            assert_same(&received.stdout, &output);
            assert_same(&received.stderr, &output);
        }
        for writer in writers {
            writer.join().expect("a writer");
        }
    }

    #[test]
    fn e05_a_client_that_is_slow_at_times_gets_all_and_its_memory_is_given_back() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let client = shim.attach();
        let output = pattern(8 << 20);
        let writer = write_all(child.stdout, &output);
        let mut received = Recording::default();
        let mut fell_behind = 0;
        while received.stdout.len() < output.len() {
            shim.run_until("a pause, or the end", |shim| {
                shim.relay.outputs.iter().any(Output::is_paused) || shim.relay.outputs.stdout.is_none()
            });
            fell_behind += usize::from(!shim.relay.flushed());
            let before = received.stdout.len();
            shim.run_until("progress", |_| {
                client.take(&mut received);
                received.stdout.len() >= output.len().min(before + (3 << 20))
            });
        }
        assert_same(&received.stdout, &output);
        assert_same(&shim.log.stdout, &output);
        assert!(fell_behind > 1);
        shim.run_until("all memory to be given back", |shim| !shim.relay.clients.have_ring());
        writer.join().expect("a writer");
    }

    #[test]
    fn memory_is_given_back_also_after_a_client_that_was_behind_for_long() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let client = shim.attach();
        let output = pattern(1 << 20);
        let writer = write_all(child.stdout, &output);
        shim.logged("all of it", output.len());
        shim.run_until("buffers to be given back", |shim| shim.relay.idle.is_none());
        assert!(shim.relay.clients.keep_output());
        let mut received = Recording::default();
        shim.run_until("all at the client", |_| {
            client.take(&mut received);
            received.stdout.len() == output.len()
        });
        shim.run_until("all memory to be given back", |shim| !shim.relay.clients.have_ring());
        writer.join().expect("a writer");
    }

    #[test]
    fn what_a_client_takes_makes_room_though_it_is_still_behind() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let client = shim.attach();
        let output = pattern(16 << 20);
        let writer = write_all(child.stdout, &output);
        let mut received = Recording::default();
        for _ in 0..8 {
            shim.run_until("a pause", |shim| shim.relay.outputs.iter().any(Output::is_paused));
            let (logged, wanted) = (shim.log.stdout.len(), received.stdout.len() + (512 << 10));
            shim.run_until("more at the client", |_| {
                client.take(&mut received);
                received.stdout.len() >= wanted
            });
            assert!(!shim.relay.flushed());
            shim.run_until("more to be read", |shim| shim.log.stdout.len() > logged);
        }
        assert_same(&received.stdout, &output[..received.stdout.len()]);
        shim.close();
        assert!(writer.join().is_err(), "the pipe was closed before the end");
    }

    #[test]
    fn a_slow_client_makes_no_fast_one_wait_until_the_ring_is_full() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let _slow = shim.attach();
        let fast = shim.attach();
        let output = pattern(1 << 20);
        let writer = write_all(child.stdout, &output);
        let mut received = Recording::default();
        shim.run_until("all at the fast client", |_| {
            fast.take(&mut received);
            received.stdout.len() == output.len()
        });
        assert_same(&received.stdout, &output);
        assert!(shim.relay.clients.have_ring());
        writer.join().expect("a writer");
    }

    #[test]
    fn a_client_that_does_not_read_pauses_the_streams_but_not_the_loop() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let stuck = shim.attach();
        let output = pattern(8 << 20);
        let writer = write_all(child.stdout, &output);
        shim.run_until("a pause", |shim| shim.relay.outputs.iter().any(Output::is_paused));
        shim.run_until_idle();
        assert!(shim.log.stdout.len() < 4 << 20, "more was read than the ring holds");
        assert_eq!(shim.relay.next_timeout().filter(|_| shim.relay.idle.is_none()), None, "nothing waits for a time");

        // Input still passes, and new clients come.
        let second = shim.attach();
        second.send(b"typed");
        shim.run_until("the input", |_| sys::unread_bytes(&child.stdin).expect("FIONREAD") == 5);

        // Nothing is lost once it reads, or once it is gone.
        drop(stuck);
        let reader = second.read_to_end();
        shim.run_until("the rest", |shim| shim.log.stdout.len() == output.len());
        shim.run_until("the rest at the second client", |shim| shim.relay.flushed());
        shim.close();
        assert_same(&shim.log.stdout, &output);
        let received = reader.join().expect("a client").stdout;
        assert_same(&received, &output[output.len() - received.len()..]);
        writer.join().expect("a writer");
    }

    #[test]
    fn e21_a_client_that_stalls_everything_is_closed_after_the_timeout() {
        let timeout = Duration::from_millis(300);
        let (mut shim, child) = Shim::with(Stdio::Pipes, false, Some(timeout));
        let stuck = shim.attach();
        let reading = shim.attach();
        let output = pattern(8 << 20);
        let started = Instant::now();
        let writer = write_all(child.stdout, &output);
        let reader = reading.read_to_end();
        shim.run_until("all of it", |shim| shim.log.stdout.len() == output.len());
        assert!(started.elapsed() >= timeout, "it was closed early");
        assert_eq!(shim.relay.clients.count(), 1);
        shim.run_until("the rest at the other client", |shim| shim.relay.flushed());
        shim.close();
        assert_same(&reader.join().expect("a client").stdout, &output);
        // What it had in its socket is a piece without a gap.
        let mut received = Recording::default();
        stuck.take(&mut received);
        assert_same(&received.stdout, &output[..received.stdout.len()]);
        writer.join().expect("a writer");
    }

    #[test]
    fn e21_the_timeout_counts_from_when_the_slowest_client_last_took_something() {
        let timeout = Duration::from_secs(3600);
        let (mut shim, child) = Shim::with(Stdio::Pipes, false, Some(timeout));
        let client = shim.attach();
        let writer = write_all(child.stdout, &pattern(8 << 20));
        shim.run_until("a pause", |shim| shim.relay.outputs.iter().any(Output::is_paused));
        shim.run_until_idle();
        let (_, before) = shim.relay.stall().expect("a time at which the client is closed");
        assert!(before <= Instant::now() + timeout);

        let taken = Instant::now();
        assert!(!client.packets().is_empty());
        shim.run_until_idle();
        let (_, after) = shim.relay.stall().expect("a later time");
        assert!(after >= taken + timeout);
        shim.relay.handle_timeout(&shim.event_loop, &shim.log, before);
        assert_eq!(shim.relay.clients.count(), 1);
        shim.relay.handle_timeout(&shim.event_loop, &shim.log, after);
        assert_eq!(shim.relay.clients.count(), 0);
        shim.run_until("all of it", |shim| shim.log.stdout.len() == 8 << 20);
        writer.join().expect("a writer");
    }

    #[test]
    fn a_client_that_stalls_nobody_is_left_alone() {
        let (mut shim, child) = Shim::with(Stdio::Pipes, false, Some(Duration::ZERO));
        let _slow = shim.attach();
        let writer = write_all(child.stdout, &pattern(1 << 20));
        shim.logged("all of it", 1 << 20);
        shim.run_until_idle();
        assert!(!shim.relay.flushed());
        assert_eq!(shim.relay.clients.count(), 1);
        writer.join().expect("a writer");
    }

    #[test]
    fn without_clients_nothing_is_kept() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let writer = write_all(child.stdout, &pattern(8 << 20));
        shim.logged("all of it", 8 << 20);
        assert!(!shim.relay.clients.have_ring());
        assert!(shim.relay.flushed());
        writer.join().expect("a writer");
    }

    #[test]
    fn of_too_many_clients_the_last_are_closed_at_once() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let mut clients: Vec<Client> = (0..MAX_CLIENTS).map(|_| shim.attach()).collect();
        let refused = Client::connect(shim.directory.path());
        shim.run_until("a refusal", |_| refused.packet().is_some_and(|packet| packet.is_empty()));

        clients.pop();
        shim.run_until("a departure", |shim| shim.relay.clients.count() < MAX_CLIENTS);
        clients.push(shim.attach());
        written(&child.stdout, b"all");
        shim.logged("a word", 3);
        assert!(clients.iter().all(|client| client.packets() == [b"\x02all"]));
    }

    #[test]
    fn e16_the_end_of_one_stream_is_not_that_of_the_other() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let client = shim.attach();
        drop(child.stdout);
        shim.run_until_idle();
        assert!(client.packet().is_none());
        written(&child.stderr, b"still here");
        drop(child.stderr);
        shim.run_until("the end", |shim| shim.relay.output_closed());
        shim.end();
        assert!(shim.relay.flushed());
        shim.close();
        assert_eq!(client.packet().as_deref(), Some(&b"\x03still here"[..]));
        assert_eq!(client.packet().as_deref(), Some(&b""[..]));
    }

    #[test]
    fn e16_unread_input_does_not_turn_the_end_into_an_error() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let client = shim.attach();
        let filling = shim.attach();
        // More than pipe and buffer hold: the rest stays in the socket.
        for _ in 0..6 {
            filling.send(&pattern(32 << 10));
            shim.run_until_idle();
        }
        client.send(b"never read");
        shim.run_until_idle();
        written(&child.stdout, b"last");
        shim.logged("the last", 4);
        shim.end();
        shim.close();
        assert_eq!(client.packet().as_deref(), Some(&b"\x02last"[..]));
        assert_eq!(client.packet().as_deref(), Some(&b""[..]));
    }

    #[test]
    fn clients_leave_descriptors_to_the_containers_end() {
        alone("clients_output::clients_leave_descriptors_to_the_containers_end", || {
            let (mut shim, _child) = Shim::new(Stdio::Pipes);
            let client = Client::connect(shim.directory.path());
            let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("getrlimit");
            let lowest_free = client.0.try_clone().expect("a clone").as_raw_fd();
            let limit = u64::try_from(lowest_free).expect("a number") + 8;
            setrlimit(Resource::RLIMIT_NOFILE, limit, hard).expect("setrlimit");
            shim.run_until("a refusal", |_| client.packet().is_some_and(|packet| packet.is_empty()));
        });
    }

    #[test]
    fn a_full_descriptor_table_is_waited_out() {
        alone("clients_output::a_full_descriptor_table_is_waited_out", || {
            let (mut shim, child) = Shim::new(Stdio::Pipes);
            let client = Client::connect(shim.directory.path());
            let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("getrlimit");
            let lowest_free = client.0.try_clone().expect("a clone").as_raw_fd();
            setrlimit(Resource::RLIMIT_NOFILE, u64::try_from(lowest_free).expect("a number"), hard).expect("setrlimit");
            shim.run_until("a failure to accept", |shim| shim.relay.next_timeout().is_some());
            shim.run_until_idle();
            assert!(shim.turns < 5, "{} events for one client", shim.turns);
            // Others are served meanwhile.
            written(&child.stdout, b"not yet");
            shim.logged("a word", 7);

            setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("setrlimit");
            shim.run_until("the client", |shim| shim.relay.clients.count() == 1);
            written(&child.stdout, b"hi");
            shim.logged("another word", 9);
            assert_eq!(client.packets(), [b"\x02hi"]);
        });
    }

    #[test]
    fn g04_memory_does_not_grow_with_output_and_goes_back_after_it() {
        alone("clients_output::g04_memory_does_not_grow_with_output_and_goes_back_after_it", || {
            let (mut shim, child) = Shim::new(Stdio::Pipes);
            let client = shim.attach();
            let piece = pattern(60_000);
            // What the test itself needs is there from the start.
            shim.log.stdout = pattern(1 << 20);
            shim.log.stdout.clear();
            written(&child.stdout, b"little");
            shim.logged("little", 6);
            let before = private_kib();

            // The client takes nothing until everything waits for it.
            shim.run_until("a pause", |shim| {
                shim.log.stdout.clear();
                if sys::unread_bytes(&child.stdout).is_ok_and(|unread| unread == 0) {
                    written(&child.stdout, &piece);
                }
                shim.relay.outputs.iter().any(Output::is_paused)
            });
            assert!(private_kib() > before + 1024, "the ring holds nothing");

            shim.run_until("the client to catch up", |shim| {
                while client.packet().is_some() {}
                shim.relay.flushed()
            });
            shim.run_until("idle buffers to be given back", |shim| shim.relay.next_timeout().is_none());
            let after = private_kib();
            assert!(after <= before + 64, "{before} KiB before, {after} KiB after");
        });
    }
}

mod clients_input {
    use super::*;

    #[test]
    fn e10_ten_mebibytes_each_way_at_once_are_exact() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let client = shim.attach();
        let input = pattern(10 << 20);
        let output: Vec<u8> = input.iter().map(|byte| !byte).collect();
        let sending = client.0.try_clone().expect("a clone");
        let sent = input.clone();
        let sender = thread::spawn(move || {
            for packet in sent.chunks(32 << 10) {
                assert_eq!(send(sending.as_raw_fd(), packet, MsgFlags::empty()), Ok(packet.len()));
            }
            shutdown(sending.as_raw_fd(), Shutdown::Write).expect("shutdown");
        });
        let container = read_all(child.stdin);
        let writer = write_all(child.stdout, &output);
        let reader = client.read_to_end();
        shim.run_until("both ends", |shim| {
            shim.relay.outputs.stdout.is_none() && shim.relay.flushed() && container.is_finished()
        });
        shim.close();
        assert_same(&container.join().expect("the container"), &input);
        assert_same(&reader.join().expect("a client").stdout, &output);
        sender.join().expect("a sender");
        writer.join().expect("a writer");
    }

    #[test]
    fn e10_a_container_that_waits_for_its_reader_makes_the_sender_wait_and_nothing_is_lost() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let client = shim.attach();
        // The container echoes, and the client does not read.
        let echo = thread::spawn(move || {
            let (mut from, mut to) = (File::from(child.stdin), File::from(child.stdout));
            std::io::copy(&mut from, &mut to).expect("an echo");
        });
        let input = pattern(16 << 20);
        let mut packets = input.chunks(32 << 10);
        let mut next = packets.next();
        let mut offer = |client: &Client| {
            let Some(packet) = next else { return false };
            if send(client.raw(), packet, MsgFlags::MSG_DONTWAIT).is_ok() {
                next = packets.next();
            }
            true
        };
        shim.run_until("a pause", |shim| {
            offer(&client);
            shim.relay.outputs.iter().any(Output::is_paused)
        });
        for _ in 0..20 {
            offer(&client);
            shim.run_until_idle();
        }
        assert!(offer(&client), "all was taken, wherever it may be");
        let mut received = Recording::default();
        shim.run_until("all to come back", |_| {
            offer(&client);
            client.take(&mut received);
            received.stdout.len() == input.len()
        });
        assert_same(&received.stdout, &input);
        // It takes the loop to tell the container.
        client.end_input();
        shim.run_until("the container's end", |_| echo.is_finished());
        echo.join().expect("the container");
    }

    #[test]
    fn e11_a_container_that_does_not_read_makes_its_clients_wait_without_a_spin() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let clients = [shim.attach(), shim.attach()];
        let mut sent = [0_usize; 2];
        // Lines of 200 bytes that say whose they are.
        let lines = [[b'0'; 200], [b'1'; 200]];
        let offer = |sent: &mut [usize; 2]| {
            for (number, client) in clients.iter().enumerate() {
                while sent[number] < 2000 && send(client.raw(), &lines[number], MsgFlags::MSG_DONTWAIT).is_ok() {
                    sent[number] += 1;
                }
            }
        };
        offer(&mut sent);
        shim.run_until_idle();
        shim.turns = 0;
        assert!(!shim.relay.input.flush(&shim.event_loop), "nothing waits for the container");
        for _ in 0..10 {
            shim.turn(Instant::now() + Duration::from_millis(5));
        }
        assert_eq!(shim.turns, 0, "events while the container does not read");

        let mut input = Vec::new();
        shim.run_until("all lines", |_| {
            input.extend_from_slice(&available(&child.stdin));
            offer(&mut sent);
            input.len() == 2 * 2000 * 200
        });
        assert!(input.chunks(200).all(|line| line == lines[0] || line == lines[1]), "a line is torn");
        assert_eq!(input.chunks(200).filter(|line| *line == lines[0]).count(), 2000);
    }

    #[test]
    fn clients_take_turns() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let clients = [shim.attach(), shim.attach(), shim.attach()];
        // The pipe is full, and each has packets ready.
        clients[0].send(&vec![b'-'; 32 << 10]);
        clients[0].send(&vec![b'-'; 32 << 10]);
        shim.run_until("a full pipe", |_| sys::unread_bytes(&child.stdin).expect("FIONREAD") == 64 << 10);
        for _ in 0..4 {
            for (client, name) in clients.iter().zip(*b"abc") {
                client.send(&vec![name; 32 << 10]);
            }
        }
        shim.run_until_idle();
        let mut input = Vec::new();
        shim.run_until("all of it", |_| {
            input.extend_from_slice(&available(&child.stdin));
            input.len() == 14 * (32 << 10)
        });
        let order: Vec<u8> = input.chunks(32 << 10).skip(2).map(|packet| packet[0]).collect();
        // The first that came found nobody waiting, and was back in the line before the others.
        for round in order[1..10].chunks(3) {
            let mut round = round.to_vec();
            round.sort_unstable();
            assert_eq!(round, b"abc", "{}", order.escape_ascii());
        }
    }

    #[test]
    fn e13_the_end_of_a_clients_input_is_the_containers_and_output_goes_on() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let client = shim.attach();
        client.send(b"hi");
        client.end_input();
        let container = read_all(child.stdin);
        shim.run_until("the container's end of input", |_| container.is_finished());
        assert_eq!(container.join().expect("the container"), b"hi");
        written(&child.stdout, b"hi");
        shim.logged("the echo", 2);
        assert_eq!(client.packets(), [b"\x02hi"]);
        assert!(client.packet().is_none(), "the output has ended");
    }

    #[test]
    fn e13_input_that_waits_for_the_container_comes_before_its_end() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let client = shim.attach();
        let input = pattern(5 * (32 << 10));
        for packet in input.chunks(32 << 10) {
            client.send(packet);
        }
        // It is gone altogether before the container reads.
        drop(client);
        shim.run_until_idle();
        let container = read_all(child.stdin);
        shim.run_until("the container's end of input", |_| container.is_finished());
        assert_same(&container.join().expect("the container"), &input);
        assert_eq!(shim.relay.clients.count(), 0);
    }

    #[test]
    fn input_of_a_client_that_left_its_output_unread_is_not_lost() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let client = shim.attach();
        written(&child.stdout, b"a prompt");
        shim.logged("a prompt", 8);
        client.send(b"an answer");
        // This makes the next read of ours fail with ECONNRESET.
        drop(client);
        let container = read_all(child.stdin);
        shim.run_until("the container's end of input", |_| container.is_finished());
        assert_eq!(container.join().expect("the container"), b"an answer");
        assert_eq!(shim.relay.clients.count(), 0);
    }

    #[test]
    fn e14_stdin_that_is_to_stay_open_takes_a_second_clients_input() {
        let (mut shim, child) = Shim::with(Stdio::PipesWithStdin, true, None);
        let first = shim.attach();
        first.send(b"one ");
        first.end_input();
        shim.run_until_idle();
        let second = shim.attach();
        second.send(b"two");
        shim.run_until("both", |_| sys::unread_bytes(&child.stdin).expect("FIONREAD") == 7);
        assert_eq!(available(&child.stdin), b"one two");
        let error = nix::unistd::read(&child.stdin, &mut [0]).expect_err("no end");
        assert_eq!(error, Errno::EAGAIN);
    }

    #[test]
    fn the_first_end_is_for_all_and_later_input_is_dropped() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let (first, second) = (shim.attach(), shim.attach());
        first.end_input();
        shim.run_until_idle();
        assert_eq!(nix::unistd::read(&child.stdin, &mut [0]), Ok(0));
        for _ in 0..100 {
            second.send(&vec![b'x'; 32 << 10]);
            shim.run_until_idle();
        }
        written(&child.stdout, b"alive");
        shim.logged("a word", 5);
        assert_eq!(second.packets(), [b"\x02alive"]);
    }

    #[test]
    fn without_stdin_input_is_read_and_dropped() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let client = shim.attach();
        for _ in 0..100 {
            client.send(&vec![b'x'; 32 << 10]);
            shim.run_until_idle();
        }
        client.end_input();
        shim.run_until_idle();
        written(&child.stdout, b"alive");
        shim.logged("a word", 5);
        assert_eq!(client.packets(), [b"\x02alive"]);
    }

    #[test]
    fn input_for_a_container_that_closed_its_stdin_is_dropped() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let client = shim.attach();
        drop(child.stdin);
        for _ in 0..100 {
            client.send(&vec![b'x'; 32 << 10]);
            shim.run_until_idle();
        }
        written(&child.stdout, b"alive");
        shim.logged("a word", 5);
        assert_eq!(client.packets(), [b"\x02alive"]);
    }

    #[test]
    fn e22_clients_that_come_and_go_leave_nothing_behind() {
        let (mut shim, child) = Shim::with(Stdio::PipesWithStdin, true, None);
        for round in 0..100 {
            let client = shim.attach();
            if round % 2 == 0 {
                client.send(b"x");
            }
            if round % 3 == 0 {
                client.end_input();
                shim.run_until_idle();
            }
            if round % 5 == 0 {
                written(&child.stdout, b"unread");
            }
            drop(client);
        }
        shim.run_until("everybody to be gone", |shim| shim.relay.clients.count() == 0);
        shim.run_until_idle();
        assert_eq!(available(&child.stdin), [b'x'; 50]);
        assert!(shim.relay.waiting.is_empty());
    }

    /// A client that fills the container's stdin, which nobody reads: two packets are in the pipe, one is pending.
    fn blocking_client(shim: &mut Shim) -> Client {
        let client = shim.attach();
        for _ in 0..3 {
            client.send(&pattern(32 << 10));
        }
        shim.run_until_idle();
        client
    }

    #[test]
    fn e22_clients_come_and_go_while_the_container_does_not_read() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let _blocking = blocking_client(&mut shim);
        for _ in 0..3 {
            drop(shim.attach());
        }
        shim.run_until("those who left to be gone", |shim| shim.relay.clients.count() == 1);

        let mut input = Vec::new();
        let mut ended = false;
        shim.run_until("the input and its end", |_| {
            let mut piece = [0; 4096];
            set_nonblocking(&child.stdin).expect("O_NONBLOCK");
            while let Ok(len) = nix::unistd::read(&child.stdin, &mut piece) {
                input.extend_from_slice(&piece[..len]);
                ended |= len == 0;
                if ended {
                    break;
                }
            }
            ended
        });
        assert_same(&input, &pattern(32 << 10).repeat(3));
    }

    #[test]
    fn e22_input_of_those_who_are_gone_keeps_nobody_out() {
        let (mut shim, child) = Shim::with(Stdio::PipesWithStdin, true, None);
        let _blocking = blocking_client(&mut shim);
        for _ in 0..2 * MAX_CLIENTS {
            shim.attach().send(b"x");
        }
        shim.run_until_idle();
        assert!(shim.relay.waiting.len() <= MAX_CLIENTS, "{} wait", shim.relay.waiting.len());
        let client = shim.attach();
        written(&child.stdout, b"hi");
        shim.logged("a word", 2);
        assert_eq!(client.packets(), [b"\x02hi"]);
    }
}

mod terminal {
    use super::*;

    #[test]
    fn k02_the_latest_size_that_came_before_the_terminal_is_its_size() {
        let (mut shim, _child) = Shim::new(Stdio::Terminal);
        shim.relay.resize(24, 80);
        shim.relay.resize(40, 120);
        let pty = raw_terminal();
        shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
        assert_eq!(size_of(&pty.slave), (40, 120));
        shim.relay.resize(50, 132);
        assert_eq!(size_of(&pty.slave), (50, 132));
    }

    #[test]
    fn k04_without_a_terminal_a_size_means_nothing() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        shim.relay.resize(24, 80);
        written(&child.stdout, b"fine");
        shim.logged("a word", 4);
    }

    #[test]
    fn k06_what_is_no_terminal_is_refused() {
        let (mut shim, _child) = Shim::new(Stdio::Terminal);
        let null = null(OpenOptions::new().read(true).write(true)).expect("/dev/null");
        assert!(shim.relay.connect_terminal(&shim.event_loop, null).is_err());
        assert!(shim.relay.outputs.stdout.is_none());
    }

    #[test]
    fn newlines_become_carriage_return_and_newline() {
        let (mut shim, _child) = Shim::new(Stdio::Terminal);
        let pty = openpty(None, None).expect("openpty");
        let mut attributes = tcgetattr(&pty.slave).expect("tcgetattr");
        attributes.output_flags.remove(OutputFlags::ONLCR);
        tcsetattr(&pty.slave, SetArg::TCSANOW, &attributes).expect("tcsetattr");
        shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
        let client = shim.attach();
        written(&pty.slave, b"a\nb\n");
        shim.logged("two lines", 6);
        assert_eq!(client.packets().concat(), b"\x02a\r\nb\r\n");
    }

    #[test]
    fn input_that_came_before_the_terminal_is_kept_for_it() {
        let (mut shim, _child) = Shim::new(Stdio::Terminal);
        let client = shim.attach();
        for word in [b"one ", b"two "] {
            client.send(word);
            shim.run_until_idle();
        }
        client.end_input();
        shim.run_until_idle();
        let pty = raw_terminal();
        shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
        let mut input = Vec::new();
        shim.run_until("the input", |_| {
            input.extend_from_slice(&available(&pty.slave));
            input.len() == 8
        });
        assert_eq!(input, b"one two ");
    }

    #[test]
    fn the_end_of_a_clients_input_ends_neither_output_nor_others_input() {
        let (mut shim, _child) = Shim::new(Stdio::Terminal);
        let pty = raw_terminal();
        shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
        let (first, second) = (shim.attach(), shim.attach());
        first.end_input();
        shim.run_until_idle();
        second.send(b"typed");
        shim.run_until_idle();
        // No ^D came either.
        assert_eq!(available(&pty.slave), b"typed");
        written(&pty.slave, b"shown");
        shim.logged("a word", 5);
        assert_eq!(first.packets(), [b"\x02shown"]);
    }

    #[test]
    fn a_mebibyte_each_way_at_once_is_exact() {
        let (mut shim, _child) = Shim::new(Stdio::Terminal);
        let pty = raw_terminal();
        shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
        let client = shim.attach();
        let bytes = pattern(1 << 20);
        let container = {
            let (mut from, expected) = (File::from(pty.slave.try_clone().expect("a clone")), bytes.clone());
            thread::spawn(move || {
                let mut input = vec![0; expected.len()];
                from.read_exact(&mut input).expect("the container's input");
                assert_same(&input, &expected);
            })
        };
        let writer = write_all(pty.slave, &bytes);
        let mut packets = bytes.chunks(32 << 10).peekable();
        let mut received = Recording::default();
        shim.run_until("both directions", |_| {
            if packets.peek().is_some_and(|packet| send(client.raw(), packet, MsgFlags::MSG_DONTWAIT).is_ok()) {
                packets.next();
            }
            client.take(&mut received);
            received.stdout.len() == bytes.len() && container.is_finished()
        });
        assert_same(&received.stdout, &bytes);
        assert_same(&shim.log.stdout, &bytes);
        container.join().expect("the container");
        writer.join().expect("a writer");
    }

    #[test]
    fn a_terminal_that_its_last_user_left_comes_to_life_again() {
        alone("terminal::a_terminal_that_its_last_user_left_comes_to_life_again", || {
            let (mut shim, _child) = Shim::new(Stdio::Terminal);
            let OpenptyResult { master, slave } = raw_terminal();
            let path = terminal_path(&slave);
            let master_too = master.try_clone().expect("a clone");
            shim.relay.connect_terminal(&shim.event_loop, master).expect("connect_terminal");
            let client = shim.attach();
            let mut user = Some(slave);
            for round in 1..=3 {
                written(&user.take().unwrap_or_else(|| open_terminal(&path)), b"hello");
                shim.logged("a word of each user", 5 * round);
                shim.run_until_idle();
                let error = nix::unistd::read(&master_too, &mut [0]).expect_err("nobody has it open");
                assert_eq!(error, Errno::EIO);
                shim.turns = 0;
                for _ in 0..5 {
                    shim.turn(Instant::now() + Duration::from_millis(5));
                }
                assert_eq!(shim.turns, 0, "events while nobody has the terminal open");
            }
            assert_eq!(client.packets(), [b"\x02hello"; 3]);
        });
    }

    #[test]
    fn input_for_a_terminal_that_nobody_has_open_waits_for_the_next_user() {
        alone("terminal::input_for_a_terminal_that_nobody_has_open_waits_for_the_next_user", || {
            let (mut shim, _child) = Shim::new(Stdio::Terminal);
            let OpenptyResult { master, slave } = raw_terminal();
            let path = terminal_path(&slave);
            shim.relay.connect_terminal(&shim.event_loop, master).expect("connect_terminal");
            drop(slave);
            let client = shim.attach();
            shim.run_until_idle();
            client.send(b"for ");
            shim.run_until_idle();
            let user = open_terminal(&path);
            client.send(b"you");
            let mut input = Vec::new();
            shim.run_until("the input", |_| {
                input.extend_from_slice(&available(&user));
                input.len() == 7
            });
            assert_eq!(input, b"for you");
        });
    }

    #[test]
    fn e17_at_the_end_a_terminal_is_read_to_its_last_byte() {
        for _ in 0..100 {
            let (mut shim, _child) = Shim::new(Stdio::Terminal);
            let pty = raw_terminal();
            shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
            let output = pattern(3000);
            written(&pty.slave, &output);
            drop(pty.slave);
            shim.end();
            assert_same(&shim.log.stdout, &output);
        }
    }

    fn size_of(terminal: &OwnedFd) -> (u16, u16) {
        let output =
            std::process::Command::new("stty").arg("size").stdin(terminal.try_clone().expect("a clone")).output();
        let text = String::from_utf8(output.expect("stty").stdout).expect("numbers");
        let (height, width) = text.trim().split_once(' ').expect("two numbers");
        (height.parse().expect("a number"), width.parse().expect("a number"))
    }

    fn open_terminal(path: &Path) -> OwnedFd {
        use std::os::unix::fs::OpenOptionsExt;
        let options = OFlag::O_NOCTTY.bits();
        OpenOptions::new().read(true).write(true).custom_flags(options).open(path).expect("the terminal").into()
    }
}

mod the_end {
    use super::*;

    #[test]
    fn b04_what_the_container_wrote_is_read_and_a_holder_of_its_pipes_not_waited_for() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        written(&child.stdout, &pattern(60_000));
        written(&child.stderr, b"last");
        shim.end();
        assert_same(&shim.log.stdout, &pattern(60_000));
        assert_eq!(shim.log.stderr, b"last");

        // Whoever still has the pipes is neither killed nor heard, not even by an event that was on its way.
        written(&child.stdout, b"a straggler");
        shim.run_until_idle();
        let event = Event { source: RelaySource::Output(Stream::Stdout), readable: true, writable: false };
        shim.relay.handle(&shim.event_loop, &mut shim.log, event, Instant::now());
        assert_eq!(shim.log.stdout.len(), 60_000);
    }

    #[test]
    fn g01_a_writer_that_never_stops_does_not_keep_the_end_from_coming() {
        /// Whenever something is read, there is more.
        struct Refilling(OwnedFd, usize);

        impl Sink for Refilling {
            fn write(&mut self, _: Stream, output: &[u8]) {
                self.1 += output.len();
                assert!(self.1 < 4 << 20, "the end does not come");
                written(&self.0, output);
            }

            fn has_grown(&mut self) -> bool {
                false
            }
        }

        let (mut shim, child) = Shim::new(Stdio::Pipes);
        written(&child.stdout, &pattern(1000));
        let mut log = Refilling(child.stdout, 0);
        shim.relay.drain(&shim.event_loop, &mut log, Instant::now());
        assert_eq!(log.1, 1000);

        let (mut shim, _child) = Shim::new(Stdio::Terminal);
        let pty = raw_terminal();
        shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
        written(&pty.slave, &pattern(1000));
        let mut log = Refilling(pty.slave, 0);
        shim.relay.drain(&shim.event_loop, &mut log, Instant::now());
        assert!(log.1 >= 1000);
    }

    #[test]
    fn e07_clients_get_the_last_byte_before_the_end() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let clients = [shim.attach(), shim.attach()];
        let output = pattern(500_000);
        fcntl(&child.stdout, FcntlArg::F_SETPIPE_SZ(1 << 20)).expect("F_SETPIPE_SZ");
        written(&child.stdout, &output);
        drop(child);
        shim.end();
        assert_same(&shim.log.stdout, &output);
        assert!(!shim.relay.flushed(), "it is more than a socket takes at once");
        let readers = clients.map(Client::read_to_end);
        shim.run_until("all at the clients", |shim| shim.relay.flushed());
        shim.close();
        for reader in readers {
            assert_same(&reader.join().expect("a client").stdout, &output);
        }
    }

    #[test]
    fn e21_the_end_comes_though_a_client_takes_nothing_and_what_it_missed_is_still_there() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let client = shim.attach();
        for pipe in [&child.stdout, &child.stderr] {
            fcntl(pipe, FcntlArg::F_SETPIPE_SZ(1 << 20)).expect("F_SETPIPE_SZ");
        }
        let (output, errors) = (pattern(4 << 20), pattern(1 << 20));
        let container = child.stdout.try_clone().expect("a clone");
        set_nonblocking(&container).expect("nonblocking");
        let mut rest = &output[..];
        let mut fill = |shim: &Shim| {
            while let Ok(len) = nix::unistd::write(&container, rest) {
                rest = &rest[len..];
                if rest.is_empty() {
                    break;
                }
            }
            shim.relay.outputs.iter().any(Output::is_paused)
        };
        shim.run_until("a pause", |shim| fill(shim));
        fill(&shim);
        written(&child.stderr, &errors);
        shim.run_until_idle();
        assert_eq!(shim.log.stderr, b"", "stderr waits as well");
        drop((child, container));

        // Two full pipes of the largest size fit into the reserve.
        shim.end();
        assert_same(&shim.log.stderr, &errors);
        let len = shim.log.stdout.len();
        assert_same(&shim.log.stdout, &output[..len]);
        assert_eq!(shim.relay.clients.count(), 1);
        let reader = client.read_to_end();
        shim.run_until("all at the client", |shim| shim.relay.flushed());
        shim.close();
        let received = reader.join().expect("a client");
        assert_same(&received.stdout, &output[..len]);
        assert_same(&received.stderr, &errors);
    }

    #[test]
    fn a_client_for_whose_output_there_is_no_room_is_given_up_and_the_log_is_whole() {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let client = shim.attach();
        let output = pattern(60_000);
        let mut expected = 0;
        // Each of these is an end of its own, which waits for nobody.
        while shim.relay.clients.count() == 1 {
            written(&child.stdout, &output);
            let now = Instant::now();
            while shim.relay.read_once(&shim.event_loop, &mut shim.log, Stream::Stdout, now).is_some() {}
            expected += output.len();
            assert!(expected < 8 << 20, "there is room without end");
        }
        assert_eq!(shim.log.stdout.len(), expected);
        assert!(shim.relay.flushed());
        drop(client);
    }

    #[test]
    fn closing_is_the_end_of_output_to_clients_and_of_input_to_the_container() {
        let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
        let client = shim.attach();
        shim.close();
        assert_eq!(client.packet().as_deref(), Some(&b""[..]));
        assert_eq!(nix::unistd::read(&child.stdin, &mut [0]), Ok(0));
        let error = nix::unistd::write(&child.stdout, b"x").expect_err("nobody reads");
        assert_eq!(error, Errno::EPIPE);
        shim.run_until_idle();
    }
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
