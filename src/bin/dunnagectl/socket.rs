//! Connects to unix sockets at paths of any length.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect as connect_to, socket};

/// The longest path that a socket's address holds.
const MAX_PATH: usize = 107;

/// A nonblocking connection to the socket at `path`.
pub(crate) fn connect(path: &Path, kind: SockType) -> io::Result<OwnedFd> {
    let client = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
    if path.as_os_str().as_bytes().len() <= MAX_PATH {
        connect_to(client.as_raw_fd(), &UnixAddr::new(path)?)?;
    } else {
        // By its directory's descriptor the path is short.
        let directory = path.parent().unwrap_or(Path::new("/"));
        let directory = OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(directory)?;
        let name = path.file_name().unwrap_or_default();
        let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
        connect_to(client.as_raw_fd(), &UnixAddr::new(&short)?)?;
    }
    Ok(client)
}
