//! Read leases: a file that nobody can have changed while its lease is unbroken (fcntl(2)).
//!
//! Who opens such a file for writing, or truncates it, waits until the lease is given up, and breaks it. The lease goes
//! with the open file, so with every copy of the descriptor in this process and others, and ends with the last.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// `F_SETSIG`, which the libc crate does not have for every target.
const SET_SIGNAL: libc::c_int = 10;

/// Takes a read lease on `file`, which is open for reading only. `EAGAIN` where somebody has the file open for writing,
/// `EINVAL` where the file system has no leases, `EACCES` for who neither owns the file nor has `CAP_LEASE`.
pub fn take_read_lease(file: &impl AsFd) -> io::Result<()> {
    let fd = file.as_fd().as_raw_fd();
    // A break is told by SIGIO, which ends the process, unless another signal is chosen: one that does nothing.
    // SAFETY: takes integers.
    Errno::result(unsafe { libc::fcntl(fd, SET_SIGNAL, libc::SIGURG) })?;
    // SAFETY: takes integers.
    Errno::result(unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::c_int::from(libc::F_RDLCK)) })?;
    Ok(())
}

/// Whether `file` has a read lease that nobody has begun to break.
#[must_use]
pub fn has_read_lease(file: &impl AsFd) -> bool {
    // SAFETY: takes integers.
    let lease = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_GETLEASE) };
    lease == libc::c_int::from(libc::F_RDLCK)
}
