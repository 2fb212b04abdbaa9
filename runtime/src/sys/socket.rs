//! Sockets that hand over descriptors, each owned from the moment it exists.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use nix::errno::Errno;

/// Room for the descriptors of one message; the kernel installs no more than fit.
const MAX_FDS: usize = 4;

/// Control data must begin where a `cmsghdr` may.
#[repr(C)]
union ControlBuffer {
    bytes: [u8; CONTROL_SPACE as usize],
    _aligned: libc::cmsghdr,
}

/// What [`MAX_FDS`] descriptors take up with their header.
// A handful of descriptors is far below u32::MAX bytes. SAFETY: pure arithmetic.
#[expect(clippy::cast_possible_truncation)]
const CONTROL_SPACE: libc::c_uint = unsafe { libc::CMSG_SPACE((MAX_FDS * mem::size_of::<RawFd>()) as libc::c_uint) };

/// Takes the next connection, close-on-exec and nonblocking.
pub fn accept(listener: &impl AsFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the address is not asked for.
    let fd = unsafe { libc::accept4(listener.as_fd().as_raw_fd(), ptr::null_mut(), ptr::null_mut(), flags) };
    Errno::result(fd)?;
    // SAFETY: a new descriptor that nobody else knows of.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Receives a piece of data and the descriptors that came with it (`SCM_RIGHTS`), close-on-exec.
///
/// Nothing received at all, neither a byte nor a descriptor, is the end of the stream.
//
// Not nix's recvmsg: where a message had more descriptors than fit, or the table was full, that one refuses to show
// the ones that were installed, and they would stay open for good.
pub fn receive_fds(socket: &impl AsFd, data: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = ControlBuffer { bytes: [0; CONTROL_SPACE as usize] };
    let mut piece = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
    // SAFETY: all zeroes is a valid, empty msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL_SPACE as _;

    // SAFETY: `message` points at live buffers and gives their true lengths.
    let received = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let length = usize::try_from(Errno::result(received)?).unwrap_or(0);

    let mut fds = Vec::new();
    // SAFETY: `message` is as the kernel left it, its control buffer alive and aligned.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give null or a whole header within the buffer.
        let cmsg = unsafe { &*header };
        if cmsg.cmsg_level == libc::SOL_SOCKET && cmsg.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: pure arithmetic.
            let header_length = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = (cmsg.cmsg_len as usize - header_length) / mem::size_of::<RawFd>();
            for index in 0..count {
                // SAFETY: cmsg_len says that `count` descriptors follow the header.
                let bytes = unsafe { *libc::CMSG_DATA(header).cast::<[u8; mem::size_of::<RawFd>()]>().add(index) };
                // SAFETY: installed by this call, so nobody else owns it.
                fds.push(unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(bytes)) });
            }
        }
        // SAFETY: as for CMSG_FIRSTHDR, and `header` came from there.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok((length, fds))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{IoSlice, Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

    use super::*;

    fn send_fds(socket: &UnixStream, data: &[u8], fds: &[RawFd]) {
        let rights = [ControlMessage::ScmRights(fds)];
        sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(data)], &rights, MsgFlags::empty(), None).expect("sendmsg");
    }

    #[test]
    fn received_descriptors_are_owned_and_close_on_exec() {
        let (ours, theirs) = UnixStream::pair().expect("socketpair");
        let (reader, mut writer) = io::pipe().expect("pipe");
        send_fds(&theirs, b"/dev/pts/7", &[reader.as_raw_fd()]);
        drop(reader);

        let mut data = [0; 64];
        let (length, mut fds) = receive_fds(&ours, &mut data).expect("receive");
        assert_eq!(&data[..length], b"/dev/pts/7");
        let fd = fds.pop().expect("a descriptor");
        assert!(fds.is_empty());
        let flags = FdFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFD).expect("F_GETFD"));
        assert!(flags.contains(FdFlag::FD_CLOEXEC));

        writer.write_all(b"through").expect("write");
        drop(writer);
        let mut text = String::new();
        File::from(fd).read_to_string(&mut text).expect("read");
        assert_eq!(text, "through");
    }

    #[test]
    fn of_too_many_descriptors_none_stays_open_unowned() {
        let (ours, theirs) = UnixStream::pair().expect("socketpair");
        let (reader, mut writer) = io::pipe().expect("pipe");
        send_fds(&theirs, b"x", &[reader.as_raw_fd(); MAX_FDS + 3]);
        drop(reader);

        let (_, fds) = receive_fds(&ours, &mut [0; 8]).expect("receive");
        assert_eq!(fds.len(), MAX_FDS);
        drop(fds);
        // Every reader is gone, or this write would succeed.
        assert_eq!(writer.write(b"x").expect_err("no reader").kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn data_without_descriptors_and_the_end_are_told_apart() {
        let (ours, mut theirs) = UnixStream::pair().expect("socketpair");
        theirs.write_all(b"hi").expect("write");
        let (length, fds) = receive_fds(&ours, &mut [0; 8]).expect("receive");
        assert_eq!((length, fds.len()), (2, 0));
        drop(theirs);
        let (length, fds) = receive_fds(&ours, &mut [0; 8]).expect("receive");
        assert_eq!((length, fds.len()), (0, 0));
    }

    #[test]
    fn accepted_connections_do_not_block() {
        let dir = std::env::temp_dir().join(format!("dunnage-accept-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("create_dir");
        let listener = UnixListener::bind(dir.join("s")).expect("bind");
        let client = UnixStream::connect(dir.join("s")).expect("connect");
        std::fs::remove_dir_all(&dir).expect("remove_dir_all");

        let accepted = accept(&listener).expect("accept");
        let error = receive_fds(&accepted, &mut [0; 8]).expect_err("nothing was sent");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(client);
    }
}
