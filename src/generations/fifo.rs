//! stdout and stderr of what a service runs: fifos that outlive a shim (G29).
//!
//! The process has its end open for reading too. So a write of its own never fails for want of a reader: it waits, once the
//! fifo is full, for the shim that comes next.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use dunnage_runtime::privileges;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{fchown, geteuid, mkfifoat};

use super::entry::{Entry, Removal, remove, remove_if};
use super::sockets::Owner;
use crate::directory::{Directory, path_of};
use crate::error::{Context, Error, Result};

/// Both ends of a new fifo.
#[derive(Debug)]
pub(crate) struct Ends {
    /// The shim's, nonblocking. It is at its end once the process and all that have its stream from it are gone.
    pub(crate) reader: File,
    /// The process's.
    pub(crate) writer: OwnedFd,
}

/// Makes the fifo `name`, in place of one that an earlier process left. It is the owner's, who may open it by
/// `/dev/stdout`.
pub(crate) fn make(directory: &Directory, name: &OsStr, owner: Owner) -> Result<Ends> {
    let _raised = privileges::raise();
    let cannot = || format!("cannot make the fifo {}", name.display());
    match remove_if(directory, name, |entry| *entry == Entry::Fifo).context(cannot)? {
        Removal::Done | Removal::Absent => {}
        Removal::Kept(entry) => return Err(Error::new(format!("{}: {entry} is in the way", cannot()))),
    }
    let made = || {
        mkfifoat(directory, name, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let reader = open(directory, name)?;
        if reader.metadata()?.uid() != geteuid().as_raw() {
            return Err(io::Error::other("somebody else has put another one there"));
        }
        // By the reader, so that it is the same one whatever the name stands for by now.
        let writer = OpenOptions::new().read(true).write(true).open(path_of(&reader))?;
        fchown(&reader, Some(owner.user), Some(owner.group))?;
        Ok(Ends { reader, writer: writer.into() })
    };
    made().context(cannot)
}

/// Opens the shim's end of a fifo that an earlier shim made. If nobody has the other end any more, it is at its end.
pub(crate) fn reopen(directory: &Directory, name: &OsStr) -> Result<File> {
    let _raised = privileges::raise();
    open(directory, name).context(|| format!("cannot open the fifo {}", name.display()))
}

/// Removes the name of a fifo that is read to its end.
pub(crate) fn unlink(directory: &Directory, name: &OsStr) -> Result<()> {
    let _raised = privileges::raise();
    match Entry::at(directory, name) {
        Ok(Some(Entry::Fifo)) => remove(directory, name),
        result => result.map(drop),
    }
    .context(|| format!("cannot remove the fifo {}", name.display()))
}

fn open(directory: &Directory, name: &OsStr) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = File::from(openat(directory, name, flags, Mode::empty())?);
    if file.metadata()?.file_type().is_fifo() { Ok(file) } else { Err(io::Error::other("it is no fifo")) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    use nix::unistd::{Gid, Uid, getegid};

    use super::super::entry::tests::Scratch;
    use super::*;

    fn us() -> Owner {
        Owner { user: geteuid(), group: getegid() }
    }

    fn read(mut from: &File) -> io::Result<String> {
        let mut bytes = [0; 64];
        let length = from.read(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    #[test]
    fn g29_a_write_does_not_fail_while_no_shim_lives_and_the_next_one_reads_on() {
        let scratch = Scratch::new();
        let name = OsStr::new("web.g7.stdout");
        let Ends { reader, writer } = make(&scratch.directory, name, us()).unwrap();
        let mut writer = File::from(writer);
        writer.write_all(b"one").unwrap();
        assert_eq!(read(&reader).unwrap(), "one");
        writer.write_all(b"two").unwrap();
        drop(reader);
        writer.write_all(b"three").unwrap();

        let reader = reopen(&scratch.directory, name).unwrap();
        assert_eq!(read(&reader).unwrap(), "twothree");
        assert_eq!(read(&reader).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(writer);
        assert_eq!(read(&reader).unwrap(), "");
        unlink(&scratch.directory, name).unwrap();
        unlink(&scratch.directory, name).unwrap();
        assert!(scratch.names().is_empty());
    }

    #[test]
    fn g29_the_process_has_a_blocking_end_and_the_shim_none_that_blocks() {
        let scratch = Scratch::new();
        let Ends { reader, writer } = make(&scratch.directory, "fifo".as_ref(), us()).unwrap();
        let flags = |fd: &dyn std::os::fd::AsFd| OFlag::from_bits_retain(fcntl(fd.as_fd(), FcntlArg::F_GETFL).unwrap());
        assert!(flags(&reader).contains(OFlag::O_NONBLOCK) && !flags(&writer).contains(OFlag::O_NONBLOCK));
        assert_eq!(flags(&writer) & OFlag::O_ACCMODE, OFlag::O_RDWR);
        for fd in [fcntl(&reader, FcntlArg::F_GETFD), fcntl(&writer, FcntlArg::F_GETFD)] {
            assert!(FdFlag::from_bits_retain(fd.unwrap()).contains(FdFlag::FD_CLOEXEC));
        }
    }

    #[test]
    fn g29_a_fifo_is_its_owners_and_replaces_only_a_fifo() {
        let scratch = Scratch::new();
        let path = scratch.path.join("fifo");
        let owner =
            if geteuid().is_root() { Owner { user: Uid::from_raw(1234), group: Gid::from_raw(4321) } } else { us() };
        // The second time one is there.
        for _ in 0..2 {
            make(&scratch.directory, "fifo".as_ref(), owner).unwrap();
            let metadata = fs::metadata(&path).unwrap();
            assert_eq!((metadata.uid(), metadata.permissions().mode() & 0o7777), (owner.user.as_raw(), 0o600));
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        let error = make(&scratch.directory, "fifo".as_ref(), owner).unwrap_err().to_string();
        assert_eq!(error, "cannot make the fifo fifo: a regular file is in the way");
        assert_eq!(
            reopen(&scratch.directory, "fifo".as_ref()).unwrap_err().to_string(),
            "cannot open the fifo fifo: it is no fifo"
        );
        unlink(&scratch.directory, "fifo".as_ref()).unwrap();
        symlink("fifo", scratch.path.join("link")).unwrap();
        reopen(&scratch.directory, "link".as_ref()).unwrap_err();
        assert_eq!(scratch.names(), ["fifo", "link"]);
    }
}
