//! A directory of the cgroup file system, held open.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Of any file. A page is the most that the kernel hands out at once, and more than all files have but lists of
/// processes.
const MAX_READ: usize = 4096;

/// Files are reached from its descriptor; the path is for messages alone.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let fd = open(path, OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens a directory in this one.
    pub(super) fn open_below(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = name.as_ref();
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Self { fd: openat(&self.fd, name, flags, Mode::empty())?, path: self.path.join(name) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn path_of(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// Opens one of its files.
    pub(super) fn file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        Ok(openat(&self.fd, name, flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?.into())
    }

    /// What one of its files says, the first page of it.
    pub(super) fn read(&self, name: &str) -> io::Result<String> {
        let mut text = Vec::with_capacity(MAX_READ);
        self.file(name, OFlag::O_RDONLY)?.take(MAX_READ as u64).read_to_end(&mut text)?;
        String::from_utf8(text).map_err(|_| ErrorKind::InvalidData.into())
    }

    /// Writes a value to one of its files, in one write.
    pub(super) fn write(&self, name: &str, value: &str) -> io::Result<()> {
        self.write_with(name, value, OFlag::empty())
    }

    pub(super) fn write_with(&self, name: &str, value: &str, flags: OFlag) -> io::Result<()> {
        match self.file(name, OFlag::O_WRONLY | flags)?.write(value.as_bytes())? {
            length if length == value.len() => Ok(()),
            _ => Err(ErrorKind::WriteZero.into()),
        }
    }

    pub(super) fn make(&self, name: &str) -> Result<(), Errno> {
        mkdirat(&self.fd, name, Mode::from_bits_truncate(0o755))
    }

    pub(super) fn remove(&self, name: impl AsRef<OsStr>) -> Result<(), Errno> {
        unlinkat(&self.fd, name.as_ref(), UnlinkatFlags::RemoveDir)
    }

    /// The names of the directories in it.
    pub(super) fn directories(&self) -> io::Result<Vec<OsString>> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let mut directory = Dir::openat(&self.fd, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in directory.iter() {
            let entry = entry?;
            // The kernel always tells the type here.
            if entry.file_type() == Some(Type::Directory) && !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                names.push(OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
            }
        }
        Ok(names)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether the error says that the directory was removed: files in it cannot be opened (ENOENT), and open ones not be
/// used (ENODEV).
pub(super) fn is_gone(error: &io::Error) -> bool {
    [Some(Errno::ENOENT as i32), Some(Errno::ENODEV as i32)].contains(&error.raw_os_error())
}
