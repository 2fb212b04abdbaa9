//! The files of sockets, in directories whose paths may be of any length.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::socket::UnixAddr;

use crate::error::{Context, Result};

/// Removes whatever an earlier run left, as conmon does; a link, not what it leads to.
pub(crate) fn remove_leftover(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context(|| format!("cannot replace {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Gives the socket a file `name` in `dir`.
pub(crate) fn bind(socket: &OwnedFd, dir: &Path, name: &str) -> io::Result<()> {
    let dir = OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(dir)?;
    // The path by which the directory is reached may be longer than an address; this one never is.
    let address = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    Ok(nix::sys::socket::bind(socket.as_raw_fd(), &UnixAddr::new(&address)?)?)
}
