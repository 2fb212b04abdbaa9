//! The staged executable: opened, checked, and kept as it was checked (G4). All of this reads files, so it is a task's.

use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use dunnage_runtime::sys::{has_read_lease, take_read_lease};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, FcntlArg, OFlag, OpenHow, ResolveFlag, SealFlag, fcntl, openat2};
use nix::sys::memfd::{MFdFlags, memfd_create};
use sha2::{Digest as _, Sha256};

use crate::generations::Digest;

/// An executable, open.
#[derive(Debug)]
pub(crate) struct Executable {
    file: File,
    guard: Guard,
}

/// What keeps its bytes those that were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Nothing: no digest was asked for.
    None,
    /// A read lease.
    Lease,
    /// It is a sealed copy.
    Seals,
}

impl Executable {
    /// Opens what `path` names, and checks that it can be executed and has that digest. The error is one line, which
    /// does not name the path.
    pub(super) fn open(path: &Path, digest: Option<Digest>) -> Result<Self, String> {
        let file = open_regular(path)?;
        examine(&file)?;
        let Some(digest) = digest else { return Ok(Self { file, guard: Guard::None }) };
        if take_read_lease(&file).is_ok() {
            compare(&file, digest)?;
            if has_read_lease(&file) {
                return Ok(Self { file, guard: Guard::Lease });
            }
        }
        Self { file, guard: Guard::None }.sealed(digest)
    }

    /// A copy of it that nobody can change, if that has the digest. While a lease is being broken, who breaks it waits,
    /// and the copy is of what was there before.
    pub(super) fn sealed(&self, digest: Digest) -> Result<Self, String> {
        let copy = sealed_copy(&self.file).map_err(|error| format!("cannot copy it: {error}"))?;
        examine(&copy)?;
        compare(&copy, digest)?;
        Ok(Self { file: copy, guard: Guard::Seals })
    }

    /// One that was opened in another process.
    pub(super) fn from_parts(fd: OwnedFd, guard: Guard) -> Self {
        Self { file: fd.into(), guard }
    }

    pub(super) fn into_parts(self) -> (OwnedFd, Guard) {
        (self.file.into(), self.guard)
    }

    /// Whether its bytes are still those that were checked. Waits for nothing.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.guard != Guard::Lease || has_read_lease(&self.file)
    }

    /// What its bytes are kept by.
    #[cfg(test)]
    pub(super) fn guard(&self) -> Guard {
        self.guard
    }
}

impl AsFd for Executable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens a regular file for reading, whose path's last component is not followed if it is a symlink, and none of which
/// is one of /proc's links to what a process has open. Anything else that has the name is not touched: opening a device
/// can do things.
pub(super) fn open_regular(path: &Path) -> Result<File, String> {
    open_regular_in(AT_FDCWD, path)
}

/// The same, of a path that begins at `directory`.
pub(super) fn open_regular_in(directory: BorrowedFd<'_>, path: &Path) -> Result<File, String> {
    let open = |flags| {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
        openat2(directory, path, how).map(File::from).map_err(|errno| match errno {
            Errno::ELOOP => "its path leads through a link of /proc's, or too many".to_owned(),
            errno => format!("cannot open it: {}", errno.desc()),
        })
    };
    let id = |file: &File| file.metadata().map_err(|error| format!("cannot look at it: {error}"));
    let found = id(&open(OFlag::O_PATH)?)?;
    if found.is_symlink() {
        return Err("it is a symlink".into());
    }
    if !found.is_file() {
        return Err("it is not a regular file".into());
    }
    // Should the name have passed to a fifo just now.
    let file = open(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)?;
    let opened = id(&file)?;
    if (opened.dev(), opened.ino()) != (found.dev(), found.ino()) {
        return Err("it was replaced while it was opened".into());
    }
    Ok(file)
}

fn examine(file: &File) -> Result<(), String> {
    let mode = file.metadata().map_err(|error| format!("cannot look at it: {error}"))?.mode();
    if mode & 0o111 == 0 {
        return Err("it is not executable".into());
    }
    let mut start = [0; 2];
    match file.read_exact_at(&mut start, 0) {
        Ok(()) if start == *b"#!" => {
            Err("it is a script: stage its interpreter, with the script among the manifest's \"args\"".into())
        }
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(format!("cannot read it: {error}")),
        _ => Ok(()),
    }
}

fn compare(file: &File, expected: Digest) -> Result<(), String> {
    let actual = digest_of(file).map_err(|error| format!("cannot read it: {error}"))?;
    if actual == expected { Ok(()) } else { Err(format!("its digest is {actual}, not {expected}")) }
}

/// How much is read at a time.
const PIECE: usize = 128 << 10;

fn digest_of(file: &File) -> io::Result<Digest> {
    let (mut hash, mut piece, mut offset) = (Sha256::new(), vec![0; PIECE], 0);
    loop {
        match file.read_at(&mut piece, offset) {
            Ok(0) => return Ok(Digest(hash.finalize().into())),
            Ok(length) => {
                hash.update(&piece[..length]);
                offset += length as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// `MFD_EXEC`, from Linux 6.3; before that every memfd can be executed.
const EXECUTABLE: MFdFlags = MFdFlags::from_bits_retain(0x10);

/// A copy in memory that nobody can change, whatever becomes of `file`.
fn sealed_copy(file: &File) -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let copy = match memfd_create(c"staged", flags | EXECUTABLE) {
        Err(Errno::EINVAL) => memfd_create(c"staged", flags),
        // vm.memfd_noexec = 2
        Err(Errno::EACCES) => return Err(io::Error::other("executing from memory is forbidden (vm.memfd_noexec)")),
        copy => copy,
    };
    let mut copy = File::from(copy?);
    let mut source = file;
    source.rewind()?;
    io::copy(&mut source, &mut copy)?;
    let seals = SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
    fcntl(&copy, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(copy)
}
