//! What the start is held to: environment, console socket and sync pipe.

use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::task::Poll;

use nix::fcntl::OFlag;
use nix::pty::{PtyMaster, posix_openpt};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::pipe2;
use serde_json::Value;

use super::console::receive_from;
use super::listen_pid::decide;
use super::pipes::number_of;
use super::sync_pipe::{MESSAGE_MAX, failure};
use crate::fuzzing::{self, Input};

/// The value of `LISTEN_PID`, or of a variable that names a pipe.
pub(crate) fn environment(bytes: &[u8]) {
    let value = OsStr::from_bytes(bytes);
    let number = |digits: &[u8]| -> Option<i64> {
        let digits = digits.strip_prefix(b"+").unwrap_or(digits);
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        // A value that is too large for this is too large for what it is meant for.
        let sum = |sum: i64, digit: &u8| (sum * 10 + i64::from(digit - b'0')).min(1 << 40);
        is_number.then(|| digits.iter().fold(0, sum))
    };

    let pid = number(bytes).filter(|pid| (1..=i64::from(u32::MAX)).contains(pid));
    for replace in [false, true] {
        let decided = decide(value, replace, [7, 4_000_000]).ok();
        assert_eq!(decided, pid.map(|pid| replace || pid == 7 || pid == 4_000_000), "{}", value.display());
    }

    let signed = bytes.strip_prefix(b"-").map_or_else(
        || number(bytes),
        |digits| number(digits).filter(|_| !digits.starts_with(b"+")).map(|number| -number),
    );
    let fd = signed.and_then(|number| RawFd::try_from(number).ok());
    assert_eq!(number_of("_OCI_SYNCPIPE", value).ok(), fd, "{}", value.display());
}

/// What a runtime's stderr makes of the message on the sync pipe.
pub(crate) fn sync_pipe(text: &[u8]) {
    let whole = String::from_utf8_lossy(text);
    for key in ["data", "pid", "exit_code"] {
        let message = failure(key, text);
        assert!(message.len() < MESSAGE_MAX, "{} bytes", message.len());
        let line = message.strip_suffix('\n').expect("it ends with a newline");
        assert!(!line.contains(|character: char| character.is_ascii_control()), "{line:?}");
        let message: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(message.as_object().map(serde_json::Map::len), Some(2), "{line}");
        assert_eq!(message[key], -1, "{line}");
        let told = message["message"].as_str().expect("a text");
        assert!(whole.ends_with(told), "{line}");
        // Even if each byte of it takes six.
        assert!(told.len() >= whole.len().min(600), "{line}");
    }
}

/// A connection to the console socket, with any message on it and any descriptors.
pub(crate) fn console_socket(bytes: &[u8]) {
    thread_local! {
        static TERMINAL: PtyMaster =
            posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).expect("a terminal");
    }
    TERMINAL.with(|terminal| try_connection(terminal, &mut Input::new(bytes)));
}

fn try_connection(terminal: &PtyMaster, input: &mut Input<'_>) {
    let (witness, held) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).expect("a pipe");
    // More than there is room for in one message, at times.
    let is_terminal: Vec<bool> = (0..input.byte() % 8).map(|_| input.flag()).collect();
    let fds: Vec<RawFd> =
        is_terminal.iter().map(|&is| if is { terminal.as_raw_fd() } else { held.as_raw_fd() }).collect();
    let data = input.text();

    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("a nonblocking socket");
    let rights = [ControlMessage::ScmRights(&fds)];
    let control = if fds.is_empty() { &[][..] } else { &rights };
    // On a stream descriptors come with a byte, or not at all.
    let sent = sendmsg::<()>(theirs.as_raw_fd(), &[IoSlice::new(data)], control, MsgFlags::empty(), None);
    let arrives = sent.is_ok_and(|len| len > 0);
    let ends = input.flag();
    let theirs = (!ends).then_some(theirs);
    drop(held);

    let received = receive_from(&OwnedFd::from(ours));
    let is_ready = arrives || ends;
    assert_eq!(received.is_ready(), is_ready, "{is_terminal:?} {data:?} {ends}");
    let brings_one = arrives && is_terminal.first() == Some(&true);
    assert_eq!(matches!(received, Poll::Ready(Some(_))), brings_one, "{is_terminal:?} {data:?} {ends}");
    drop((received, theirs));
    assert!(fuzzing::has_ended(&witness), "a descriptor is still open");
}
