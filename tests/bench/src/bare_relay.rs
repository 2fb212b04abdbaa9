//! The least that a relay does, for others to be held against: a client's packets go to a process's stdin, and what it says
//! goes to the client, in packets as conmon's clients read them. Nothing is logged.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen, recv, sendmsg, socket,
};
use nix::unistd::{read, write};

/// The stream's tag, and the most that a client's buffer has room for behind it.
const STDOUT: u8 = 2;
const PAYLOAD: usize = 8192;

/// Its whole life: for the one client that connects to `path`, until that is gone.
pub(crate) fn run(path: &Path, stdin: &OwnedFd, stdout: &OwnedFd) -> io::Result<()> {
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    bind(listener.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&listener, Backlog::new(1)?)?;
    // SAFETY: it was just made.
    let client = unsafe { OwnedFd::from_raw_fd(accept(listener.as_raw_fd())?) };
    for fd in [&client, stdin, stdout] {
        fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    let (mut packet, mut block) = (vec![0; 32 << 10], vec![0; 64 << 10]);
    let (mut input, mut output) = (0..0, 0..0);
    loop {
        let mut moved = false;
        if input.is_empty() {
            match recv(client.as_raw_fd(), &mut packet, MsgFlags::empty()) {
                Ok(0) => return Ok(()),
                received => moved |= took(received, |length| input = 0..length)?,
            }
        }
        if !input.is_empty() {
            moved |= took(write(stdin, &packet[input.clone()]), |length| input.start += length)?;
        }
        if output.is_empty() {
            moved |= took(read(stdout, &mut block), |length| output = 0..length)?;
        }
        moved |= send(&client, &block, &mut output)?;
        if !moved {
            let of_client = [(input.is_empty(), PollFlags::POLLIN), (!output.is_empty(), PollFlags::POLLOUT)];
            let of_client = of_client.into_iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| flag).collect();
            let mut fds = vec![PollFd::new(client.as_fd(), of_client)];
            if output.is_empty() {
                fds.push(PollFd::new(stdout.as_fd(), PollFlags::POLLIN));
            }
            if !input.is_empty() {
                fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLOUT));
            }
            poll(&mut fds, PollTimeout::NONE)?;
        }
    }
}

/// Sends what the client takes now of a block. Whether it took any.
fn send(client: &OwnedFd, block: &[u8], left: &mut Range<usize>) -> io::Result<bool> {
    let before = left.start;
    while left.start < left.end {
        let payload = &block[left.start..left.end.min(left.start + PAYLOAD)];
        let packet = [IoSlice::new(&[STDOUT]), IoSlice::new(payload)];
        let sent = sendmsg::<()>(client.as_raw_fd(), &packet, &[], MsgFlags::MSG_NOSIGNAL, None);
        if !took(sent, |_| left.start += payload.len())? {
            break;
        }
    }
    Ok(left.start > before)
}

/// Whether a call did something, which is noted; if not, it would have had to wait.
fn took(result: nix::Result<usize>, note: impl FnOnce(usize)) -> io::Result<bool> {
    match result {
        Ok(length) => note(length),
        Err(Errno::EAGAIN) => return Ok(false),
        Err(errno) => return Err(errno.into()),
    }
    Ok(true)
}
