//! A directory that is held open: what is done to its files is done in it, whoever moves it or puts a link at its path
//! meanwhile.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dunnage_runtime::sys;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmod, fchmodat, fstat, fstatat, stat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// How many clients may wait to be accepted.
const BACKLOG: i32 = 128;

/// See the module. Names are those of its files, never paths.
#[derive(Debug)]
pub(crate) struct Directory(File);

impl Directory {
    /// Opens it. Links on the way are followed: who gave the path means where it leads now.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        Ok(Self(OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?))
    }

    /// Opens the directory `name` in it, which no link may be.
    pub(crate) fn inside(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Self(openat(&self.0, name, flags, Mode::empty())?.into()))
    }

    /// The same once more.
    pub(crate) fn again(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Whether somebody who is neither root nor this process's user can put files there, and links in their place.
    pub(crate) fn is_open_to_others(&self) -> io::Result<bool> {
        let found = fstat(&self.0)?;
        let others = Mode::S_IWGRP | Mode::S_IWOTH;
        // In a user namespace the machine's root has another number, or none of its own: whoever has `/` is it.
        let owners = [0, nix::unistd::geteuid().as_raw(), stat("/")?.st_uid];
        Ok(!owners.contains(&found.st_uid) || Mode::from_bits_truncate(found.st_mode).intersects(others))
    }

    /// Its path by its descriptor, good for as long as it is held.
    pub(crate) fn path(&self) -> PathBuf {
        path_of(&self.0)
    }

    /// Whether it is one of the kernel's, with links that lead to what they stand for.
    pub(crate) fn is_in_proc(&self) -> io::Result<bool> {
        Ok(fstatfs(&self.0)?.filesystem_type() == PROC_SUPER_MAGIC)
    }

    /// Where the link `name` leads, if it is one.
    pub(crate) fn read_link(&self, name: &OsStr) -> Option<PathBuf> {
        // Most files are none, and need no memory for the longest of paths.
        let found = fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        if kind_of(&found) == SFlag::S_IFLNK { readlinkat(&self.0, name).ok().map(PathBuf::from) } else { None }
    }

    /// Whether what `name` leads to is a regular file. Nothing, if it leads nowhere.
    pub(crate) fn leads_to_file(&self, name: &OsStr) -> Option<bool> {
        let found = fstatat(&self.0, name, AtFlags::empty()).ok()?;
        Some(kind_of(&found) == SFlag::S_IFREG)
    }

    /// Makes a file to write to, mode 0644 under the umask, which must not be there yet.
    pub(crate) fn create_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::from_bits_truncate(0o644))?.into())
    }

    /// Gives `from` the name `to`, in place of what has it.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.rename_into(from, self, to)
    }

    /// Gives `from` the name `to` in another directory, in place of what has it there.
    pub(crate) fn rename_into(&self, from: &OsStr, target: &Self, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.0, from, &target.0, to)?)
    }

    /// Gives `from` the name `to`, which nothing may have.
    pub(crate) fn rename_to_free_name(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        sys::rename_to_free_name(&self.0, from, to)
    }

    /// Gives two files each other's name, in one step.
    pub(crate) fn exchange(&self, one: &OsStr, other: &OsStr) -> io::Result<()> {
        sys::exchange_names(&self.0, one, other)
    }

    /// Gives a file another mode. Only where nobody else can put a link in its place.
    pub(crate) fn set_mode(&self, name: &OsStr, mode: Mode) -> io::Result<()> {
        Ok(fchmodat(&self.0, name, mode, FchmodatFlags::FollowSymlink)?)
    }

    /// Removes a file; a link, not what it leads to.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Makes the names in it durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        File::from(openat(&self.0, ".", flags, Mode::empty())?).sync_all()
    }

    /// Makes a nonblocking socket that clients can connect to under `name`.
    pub(crate) fn listen(&self, name: &OsStr, kind: SockType, mode: Mode) -> io::Result<OwnedFd> {
        let listener = new_socket(kind)?;
        // Before it is bound, so that its file never has another mode.
        fchmod(&listener, mode)?;
        self.bind(&listener, name)?;
        match Backlog::new(BACKLOG).and_then(|backlog| listen(&listener, backlog)) {
            Ok(()) => Ok(listener),
            Err(errno) => {
                let _ = self.remove(name);
                Err(errno.into())
            }
        }
    }

    /// Makes a nonblocking socket for datagrams that are sent to `name`. Its file has the mode that the umask leaves.
    pub(crate) fn bind_datagram(&self, name: &OsStr) -> io::Result<OwnedFd> {
        let socket = new_socket(SockType::Datagram)?;
        self.bind(&socket, name)?;
        Ok(socket)
    }

    /// Gives the socket the file `name`.
    fn bind(&self, socket: &OwnedFd, name: &OsStr) -> io::Result<()> {
        Ok(bind(socket.as_raw_fd(), &self.address(name)?)?)
    }

    /// Connects to the socket `name`, without waiting for it to accept.
    pub(crate) fn connect(&self, name: &OsStr, kind: SockType) -> io::Result<OwnedFd> {
        let client = new_socket(kind)?;
        connect(client.as_raw_fd(), &self.address(name)?)?;
        Ok(client)
    }

    /// The path by which it is reached may be longer than a socket's address; the one by its descriptor never is.
    fn address(&self, name: &OsStr) -> Result<UnixAddr, Errno> {
        UnixAddr::new(&self.path().join(name))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The path of what is open by its descriptor, whatever has become of its own.
pub(crate) fn path_of(open: &impl AsFd) -> PathBuf {
    Path::new("/proc/self/fd").join(open.as_fd().as_raw_fd().to_string())
}

/// What kind of file that is.
pub(crate) fn kind_of(found: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT
}

fn new_socket(kind: SockType) -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Unix, kind, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC, None)?)
}
