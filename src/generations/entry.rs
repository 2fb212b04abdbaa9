//! Names in directories where others make some as well: what they stand for, and how they are removed without ever
//! removing what somebody else has put there meanwhile.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{SFlag, fstatat};

use crate::directory::{Directory, kind_of};
use crate::error::{Context, Result};
use crate::whole_file::temporary_name;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Socket,
    Fifo,
    Link(PathBuf),
    /// What nobody may remove for a new socket.
    Other(&'static str),
}

impl Entry {
    /// What is at `name`, if anything is.
    pub(super) fn at(directory: &Directory, name: &OsStr) -> io::Result<Option<Self>> {
        let kind = match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => kind_of(&found),
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(match kind {
            SFlag::S_IFSOCK => Self::Socket,
            SFlag::S_IFIFO => Self::Fifo,
            SFlag::S_IFLNK => match readlinkat(directory, name) {
                Ok(target) => Self::Link(target.into()),
                // Something else by now, or gone.
                Err(Errno::EINVAL | Errno::ENOENT) => return Self::at(directory, name),
                Err(error) => return Err(error.into()),
            },
            SFlag::S_IFREG => Self::Other("a regular file"),
            SFlag::S_IFDIR => Self::Other("a directory"),
            _ => Self::Other("a device"),
        }))
    }

    /// A socket or a link, as an earlier start may have left it (G8).
    pub(super) fn is_leftover(&self) -> bool {
        matches!(self, Self::Socket | Self::Link(_))
    }

    fn may_be_lost(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket => f.write_str("a socket"),
            Self::Fifo => f.write_str("a fifo"),
            Self::Link(target) => write!(f, "a link to {}", target.display()),
            Self::Other(what) => f.write_str(what),
        }
    }
}

/// What came of a removal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Removal {
    Done,
    /// There was nothing.
    Absent,
    /// That is there, and is not to be removed.
    Kept(Entry),
}

/// Removes `name` if what it stands for is `ours`.
pub(super) fn remove_if(directory: &Directory, name: &OsStr, ours: impl Fn(&Entry) -> bool) -> io::Result<Removal> {
    remove_after(directory, name, ours, || ())
}

/// There is no unlinking by what a name stands for. So it is renamed to one that nobody else uses, looked at there, and
/// given back where it is somebody else's after all.
fn remove_after(
    directory: &Directory,
    name: &OsStr,
    ours: impl Fn(&Entry) -> bool,
    looked: impl FnOnce(),
) -> io::Result<Removal> {
    match Entry::at(directory, name)? {
        None => return Ok(Removal::Absent),
        Some(entry) if !ours(&entry) => return Ok(Removal::Kept(entry)),
        Some(_) => {}
    }
    looked();
    let taken = private_name(name, "taken");
    match take(directory, name, &taken) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Removal::Absent),
        result => result?,
    }
    match Entry::at(directory, &taken)? {
        Some(entry) if !ours(&entry) => {
            match directory.rename_to_free_name(&taken, name) {
                // Replaced before it could be given back, as by a rename over it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && entry.may_be_lost() => {
                    remove(directory, &taken)?;
                }
                Err(error) => {
                    let what = format!("{entry} that somebody put there is at {} now: {error}", taken.display());
                    return Err(io::Error::new(error.kind(), what));
                }
                Ok(()) => {}
            }
            Ok(Removal::Kept(entry))
        }
        _ => remove(directory, &taken).map(|()| Removal::Done),
    }
}

fn take(directory: &Directory, name: &OsStr, taken: &OsStr) -> io::Result<()> {
    match directory.rename_to_free_name(name, taken) {
        // Left by a process that had this PID and was killed in the midst of it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if Entry::at(directory, taken)?.is_some_and(|entry| entry.may_be_lost()) {
                remove(directory, taken)?;
            }
            directory.rename_to_free_name(name, taken)
        }
        result => result,
    }
}

/// Removes a name, which may be gone, of what is no directory.
pub(super) fn remove(directory: &Directory, name: &OsStr) -> io::Result<()> {
    match directory.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// A name in the same directory that only this process uses.
pub(super) fn private_name(name: &OsStr, purpose: &str) -> OsString {
    temporary_name(name, &format!("{}.{purpose}", process::id()))
}

/// Opens a directory that is to be there.
pub(super) fn open_directory(path: &Path) -> Result<Directory> {
    Directory::open(path).context(|| format!("cannot open the directory {}", path.display()))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicU32, Ordering};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    /// A directory that goes with it.
    pub(in crate::generations) struct Scratch {
        pub(in crate::generations) path: PathBuf,
        pub(in crate::generations) directory: Directory,
    }

    impl Scratch {
        pub(in crate::generations) fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let name = format!("dunnage-gen-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Self { directory: Directory::open(&path).unwrap(), path }
        }

        pub(in crate::generations) fn names(&self) -> Vec<String> {
            let names = fs::read_dir(&self.path).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.path);
        }
    }

    fn is_ours(entry: &Entry) -> bool {
        *entry == Entry::Link("ours".into())
    }

    #[test]
    fn g8_only_sockets_and_links_are_leftovers() {
        let scratch = Scratch::new();
        let at = |name: &str| scratch.path.join(name);
        drop(UnixListener::bind(at("socket")).unwrap());
        symlink("/nowhere", at("link")).unwrap();
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("directory")).unwrap();
        let removed = |name: &str| remove_if(&scratch.directory, name.as_ref(), Entry::is_leftover).unwrap();
        assert_eq!(removed("socket"), Removal::Done);
        assert_eq!(removed("link"), Removal::Done);
        assert_eq!(removed("link"), Removal::Absent);
        assert_eq!(removed("fifo"), Removal::Kept(Entry::Fifo));
        assert_eq!(removed("file"), Removal::Kept(Entry::Other("a regular file")));
        assert_eq!(removed("directory"), Removal::Kept(Entry::Other("a directory")));
        assert_eq!(scratch.names(), ["directory", "fifo", "file"]);
    }

    #[test]
    fn g18_what_is_put_there_between_the_look_and_the_removal_stays() {
        let scratch = Scratch::new();
        let path = scratch.path.join("name");
        let replacements: [&dyn Fn(&Path); 3] =
            [&|path| symlink("theirs", path).unwrap(), &|path| fs::write(path, "a file").unwrap(), &|path| {
                fs::create_dir(path).unwrap();
            }];
        for replace in replacements {
            symlink("ours", &path).unwrap();
            let removal = remove_after(&scratch.directory, "name".as_ref(), is_ours, || {
                fs::remove_file(&path).unwrap();
                replace(&path);
            });
            let there = Entry::at(&scratch.directory, "name".as_ref()).unwrap().expect("theirs");
            assert_eq!(removal.unwrap(), Removal::Kept(there));
            assert_eq!(scratch.names(), ["name"]);
            fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
        }
        symlink("ours", &path).unwrap();
        let gone = remove_after(&scratch.directory, "name".as_ref(), is_ours, || fs::remove_file(&path).unwrap());
        assert_eq!(gone.unwrap(), Removal::Absent);
    }

    #[test]
    fn g18_a_leftover_of_the_same_pid_is_no_obstacle() {
        let scratch = Scratch::new();
        symlink("ours", scratch.path.join("name")).unwrap();
        symlink("old", scratch.path.join(private_name("name".as_ref(), "taken"))).unwrap();
        assert_eq!(remove_if(&scratch.directory, "name".as_ref(), is_ours).unwrap(), Removal::Done);
        assert!(scratch.names().is_empty());
    }
}
