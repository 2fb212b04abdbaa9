//! Extended attributes of open files.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use nix::errno::Errno;

/// Gives the open file an attribute without a value; one that has it already keeps it.
pub fn set_attribute(fd: impl AsFd, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is NUL-terminated, and nothing is read of a value without length.
    let result = unsafe { libc::fsetxattr(fd.as_fd().as_raw_fd(), name.as_ptr(), ptr::null(), 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the open file has the attribute.
pub fn has_attribute(fd: impl AsFd, name: &CStr) -> io::Result<bool> {
    // SAFETY: the name is NUL-terminated, and nothing is written without room for a value.
    let result = unsafe { libc::fgetxattr(fd.as_fd().as_raw_fd(), name.as_ptr(), ptr::null_mut(), 0) };
    if result >= 0 {
        return Ok(true);
    }
    match Errno::last() {
        // A file system without attributes has not got this one either.
        Errno::ENODATA | Errno::EOPNOTSUPP => Ok(false),
        error => Err(error.into()),
    }
}
