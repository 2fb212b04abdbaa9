//! What the ways in are held to: the fifos, and the input of attach clients.

use std::io::{ErrorKind, Read};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;

use dunnage_runtime::event_loop::EventLoop;
use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socketpair};
use nix::unistd::pipe2;

use super::fifo::{Fifo, Lines, MAX_LINE, MAX_SIZE, Request};
use super::input::{Destination, Input, MAX_PACKET, Received};
use super::ring::{MAX_PAYLOAD, Position, Ring, stored_size};
use super::tail::{LIMIT, Tail};
use crate::fuzzing;
use crate::source::Source;
use crate::stream::Stream;

/// Bytes written to `ctl` or `winsz`, read in pieces of any sizes.
pub(crate) fn fifo_lines(bytes: &[u8]) {
    let mut input = fuzzing::Input::new(bytes);
    let mut sizes = fuzzing::Input::new(input.text());
    let fifo = *input.one_of(&[Fifo::Ctl, Fifo::Winsz]);
    let mut written = Vec::new();
    while !input.is_empty() {
        written.extend_from_slice(&input.output());
    }

    let mut found = Vec::new();
    let mut lines = Lines::default();
    for piece in sizes.pieces(&written) {
        lines.split(piece, |line| found.push((line.text.to_vec(), line.overlong, fifo.parse(line.text))));
    }
    // What follows the last newline is no line yet.
    let mut expected: Vec<_> = written.split(|&byte| byte == b'\n').collect();
    expected.pop();
    assert_eq!(found.len(), expected.len());
    for ((text, overlong, request), whole) in found.into_iter().zip(expected) {
        assert_eq!(text, whole[..whole.len().min(MAX_LINE)]);
        assert_eq!(overlong, whole.len() > MAX_LINE);
        assert_eq!(request, slow_request(fifo, &text), "{}", text.escape_ascii());
    }
}

fn slow_request(fifo: Fifo, line: &[u8]) -> Option<Request> {
    let words =
        line.split(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\x0c' | b'\r')).filter(|word| !word.is_empty());
    let meant = match fifo {
        Fifo::Ctl => 3,
        Fifo::Winsz => 2,
    };
    let mut numbers = Vec::new();
    for word in words.take(meant) {
        let digits = word.strip_prefix(b"+").unwrap_or(word);
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        numbers.push(digits.iter().fold(0_u16, |sum, digit| (sum * 10 + u16::from(digit - b'0')).min(MAX_SIZE + 1)));
    }
    let in_bounds = numbers.iter().all(|&number| number <= MAX_SIZE);
    match (fifo, numbers.as_slice()) {
        _ if !in_bounds => None,
        (Fifo::Ctl, &[1, height, width]) | (Fifo::Winsz, &[height, width]) => Some(Request::Resize { height, width }),
        (Fifo::Ctl, [2, _, _]) => Some(Request::ReopenLogs),
        _ => None,
    }
}

/// Packets of a client, on their way to a container that reads as it likes.
pub(crate) fn attach_input(bytes: &[u8]) {
    thread_local! {
        static EVENT_LOOP: EventLoop<Source> = EventLoop::new().expect("an event loop");
    }
    EVENT_LOOP.with(|event_loop| try_input(event_loop, &mut fuzzing::Input::new(bytes)));
}

fn try_input(event_loop: &EventLoop<Source>, input: &mut fuzzing::Input<'_>) {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (client, ours) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a pair of sockets");
    let (container, pipe) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).expect("a pipe");
    let mut container = Container { stdin: container.into(), read: Vec::new() };
    let destination = Destination::Pipe { pipe, leave_open: input.flag() };
    let leaves_open = matches!(destination, Destination::Pipe { leave_open: true, .. });
    let mut way = Input::new(destination).expect("a buffer");
    let mut expected = Vec::new();
    let mut ended = false;
    while !input.is_empty() && !ended {
        let packet = input.output();
        // One that the socket has no room for is the client's to send again.
        if send(client.as_raw_fd(), &packet, MsgFlags::MSG_NOSIGNAL).is_err() {
            continue;
        }
        expected.extend_from_slice(&packet[..packet.len().min(MAX_PACKET.get())]);
        let received = way.receive(&ours);
        // A packet without a byte is how a client's end looks.
        assert_eq!(received, if packet.is_empty() { Received::End } else { Received::Packet });
        ended = received == Received::End;
        while !way.flush(event_loop) {
            container.take(1 + input.number());
        }
    }
    if !ended {
        assert_eq!(way.receive(&ours), Received::Nothing);
    }
    way.end(event_loop);
    container.take(usize::MAX);
    assert!(container.read == expected, "{} bytes of {} arrived", container.read.len(), expected.len());
    assert!(leaves_open || fuzzing::has_ended(&container.stdin), "its stdin has no end");
    assert!(!leaves_open || !container.is_at_end(), "its stdin has ended");
}

struct Container {
    stdin: std::fs::File,
    read: Vec<u8>,
}

impl Container {
    /// Reads so much, or what there is.
    fn take(&mut self, mut count: usize) {
        let mut bytes = [0; 4096];
        while count > 0 {
            let most = bytes.len().min(count);
            match self.stdin.read(&mut bytes[..most]) {
                Ok(0) => return,
                Ok(len) => {
                    self.read.extend_from_slice(&bytes[..len]);
                    count -= len;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    return;
                }
            }
        }
    }

    fn is_at_end(&mut self) -> bool {
        matches!(self.stdin.read(&mut [0]), Ok(0))
    }
}

/// What a runtime says on stderr, however it came.
pub(crate) fn stderr_tail(bytes: &[u8]) {
    let mut input = fuzzing::Input::new(bytes);
    let (mut tail, mut whole) = (Tail::default(), Vec::new());
    while !input.is_empty() {
        let output = input.output();
        tail.push(&output);
        whole.extend_from_slice(&output);
    }
    assert!(tail.into_bytes() == whole[whole.len().saturating_sub(LIMIT)..]);
}

/// Output for two clients that read as they like, from a ring that is full now and then.
pub(crate) fn attach_output(bytes: &[u8]) {
    let mut input = fuzzing::Input::new(bytes);
    let capacity = NonZeroUsize::new(1 + input.number() % (3 * MAX_PAYLOAD)).expect("it is 1 at least");
    let mut ring = Ring::new(capacity).expect("a ring");
    // All packets that ever were, and how many of them each client has.
    let mut packets: Vec<(Stream, Vec<u8>)> = Vec::new();
    let mut clients = [(0, Position::default()); 2];
    while !input.is_empty() {
        let action = input.byte() % 4;
        if let Some((had, at)) = clients.get_mut(usize::from(action)) {
            let Some(packet) = ring.packet(*at) else {
                assert_eq!((*had, *at), (packets.len(), ring.end()));
                continue;
            };
            let (stream, payload) = &packets[*had];
            assert!(packet.stream == *stream && [packet.payload.0, packet.payload.1].concat() == *payload);
            (*had, *at) = (*had + 1, packet.next);
            ring.forget_before(clients[0].1.min(clients[1].1));
            continue;
        }
        let stream = if action == 2 { Stream::Stdout } else { Stream::Stderr };
        let output = input.output();
        let (room, behind) = (ring.room(), ring.end().after(&output));
        let fits = stored_size(output.len()) <= room;
        assert_eq!(ring.push(stream, &output), fits);
        if fits {
            packets.extend(output.chunks(MAX_PAYLOAD).map(|payload| (stream, payload.to_vec())));
            assert_eq!((ring.end(), ring.room()), (behind, room - stored_size(output.len())));
        }
    }
}
