//! Descriptors are few: whoever takes one for a client leaves some to the container's end.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::resource::{Resource, getrlimit};

/// How many are left: the end needs some for the exit files and the exit command.
const RESERVED: u64 = 8;

/// Whether the descriptor was one of the last that there are: the kernel gives out the lowest number that is free.
pub(crate) fn is_one_of_the_last(fd: &OwnedFd) -> bool {
    let number = u64::from(fd.as_raw_fd().unsigned_abs());
    getrlimit(Resource::RLIMIT_NOFILE).is_ok_and(|(limit, _)| number + RESERVED >= limit)
}
