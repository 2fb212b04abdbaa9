//! The files of sockets: bound at paths of any length, and removed only while they are our own.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use log::warn;
use nix::fcntl::{OFlag, RenameFlags, openat, renameat2};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
use nix::sys::stat::{Mode, fchmod};

use crate::error::{Context, Result};

/// The longest path that a socket's address holds, its final NUL aside: `sun_path` has 108 bytes.
pub(crate) const MAX_SOCKET_PATH: usize = 107;

/// How many clients may wait to be accepted.
const BACKLOG: i32 = 128;

/// A directory that sockets are in. The path by which it is reached may be longer than a socket's address; the one by
/// its descriptor never is.
#[derive(Debug)]
pub(crate) struct Directory(File);

impl Directory {
    /// Opens it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Ok(Self(OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(path)?))
    }

    /// Opens the directory `name` in it, which no link may be.
    pub(crate) fn inside(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Self(openat(&self.0, name, flags, Mode::empty())?.into()))
    }

    /// Makes a nonblocking socket that clients can connect to under `name`.
    pub(crate) fn listen(&self, name: &OsStr, kind: SockType, mode: Mode) -> io::Result<OwnedFd> {
        let listener = new_socket(kind)?;
        // Before it is bound, so that its file never has another mode.
        fchmod(&listener, mode)?;
        self.bind(&listener, name)?;
        listen(&listener, Backlog::new(BACKLOG)?)?;
        Ok(listener)
    }

    /// Gives the socket the file `name`.
    pub(crate) fn bind(&self, socket: &OwnedFd, name: &OsStr) -> io::Result<()> {
        Ok(bind(socket.as_raw_fd(), &self.address(name)?)?)
    }

    /// Connects to the socket `name`, without waiting for it to accept.
    pub(crate) fn connect(&self, name: &OsStr, kind: SockType) -> io::Result<OwnedFd> {
        let client = new_socket(kind)?;
        connect(client.as_raw_fd(), &self.address(name)?)?;
        Ok(client)
    }

    /// Gives `from` the name `to`, which nothing may have.
    pub(crate) fn rename_to_free_name(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat2(&self.0, from, &self.0, to, RenameFlags::RENAME_NOREPLACE)?)
    }

    /// The same once more.
    pub(crate) fn again(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    fn address(&self, name: &OsStr) -> io::Result<UnixAddr> {
        Ok(UnixAddr::new(&path_of_fd(&self.0).join(name))?)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A path by which the kernel finds what is open, whatever has become of its own.
pub(crate) fn path_of_fd(fd: &impl AsFd) -> PathBuf {
    Path::new("/proc/self/fd").join(fd.as_fd().as_raw_fd().to_string())
}

fn new_socket(kind: SockType) -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Unix, kind, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC, None)?)
}

/// A file of our making, told apart from one that somebody else put in its place, such as the next shim of the same
/// container.
#[derive(Debug)]
pub(crate) struct Made {
    path: PathBuf,
    identity: Identity,
}

/// What a file has that no later one has: number alone does not do, as they come again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Identity {
    /// Of what is at `path`, links not followed.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let metadata = path.symlink_metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
        })
    }
}

impl Made {
    /// What was just made at `path`.
    pub(crate) fn at(path: PathBuf) -> Result<Self> {
        let identity = Identity::of(&path).context(|| format!("cannot find {}", path.display()))?;
        Ok(Self { path, identity })
    }

    /// Removes the file if it is still ours. The caller may have removed it, or all around it: that is as good.
    pub(crate) fn remove(self) {
        let result = match Identity::of(&self.path) {
            Ok(identity) if identity == self.identity => fs::remove_file(&self.path),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!("cannot remove {}: {error}", self.path.display());
            }
            _ => {}
        }
    }
}

/// Removes whatever an earlier run left, as conmon does; a link, not what it leads to.
pub(crate) fn remove_leftover(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context(|| format!("cannot replace {}", path.display()))
        }
        _ => Ok(()),
    }
}
