//! Files that others read: whole or not there.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;

/// The longest name that a file can have.
pub(crate) const NAME_MAX: usize = 255;

/// The name that the next file `name` has until it is put into place: `.NAME.SUFFIX`, NAME cut where it would become too
/// long. Hidden, as there are those who look at each new file, or for names that begin alike.
pub(crate) fn temporary_name(name: &OsStr, suffix: &str) -> OsString {
    let room = NAME_MAX - "..".len() - suffix.len();
    let name = &name.as_bytes()[..name.len().min(room)];
    OsString::from_iter([OsStr::new("."), OsStr::from_bytes(name), OsStr::new("."), OsStr::new(suffix)])
}

/// A file that is made under a temporary name in its directory and renamed into place once it is whole.
#[derive(Debug)]
pub(crate) struct WholeFile {
    file: File,
    temporary: Temporary,
    path: PathBuf,
}

impl WholeFile {
    /// Makes the temporary file, mode 0644 under the shim's umask.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
        // Nobody means to have /dev/null replaced.
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(io::Error::other("what is there is no regular file"));
        }
        let temporary = path.with_file_name(temporary_name(name, &process::id().to_string()));
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o644).open(&temporary);
        let file = match create() {
            // Left by a process that had this PID and was killed in the midst of it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&temporary)?;
                create()?
            }
            result => result?,
        };
        Ok(Self { file, temporary: Temporary(temporary), path: path.to_path_buf() })
    }

    /// Writes `content` and puts the file into place, over any that is there. It is not synced.
    pub(crate) fn commit(mut self, content: &[u8]) -> io::Result<CommittedFile> {
        self.file.write_all(content)?;
        fs::rename(&self.temporary.0, &self.path)?;
        // There is nothing under that name any more; only its text is leaked, a few bytes once per file.
        mem::forget(self.temporary);
        Ok(CommittedFile { file: self.file, path: self.path })
    }
}

/// A name that is removed unless the file got another one.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // Best effort: the directory may be gone, which is why nothing was put into place.
        let _ = fs::remove_file(&self.0);
    }
}

/// A file in its place, which a crash of the machine may still take back.
#[derive(Debug)]
pub(crate) struct CommittedFile {
    file: File,
    path: PathBuf,
}

impl CommittedFile {
    /// Makes it durable: the file, and its name in the directory. Others may have removed either by now.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()?;
        match self.path.parent().map(File::open) {
            None => Ok(()),
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Some(directory) => directory?.sync_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dunnage-whole-file-{name}-{}", process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_appears_whole_and_replaces_the_old_one() {
        let directory = Directory::new("appears");
        let path = directory.0.join("exit");
        fs::write(&path, "an older and longer content").unwrap();
        let file = WholeFile::create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "an older and longer content");
        file.commit(b"3").unwrap().sync().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "3");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(directory.names(), ["exit"]);
    }

    #[test]
    fn nothing_is_left_of_a_file_that_was_not_committed() {
        let directory = Directory::new("dropped");
        drop(WholeFile::create(&directory.0.join("exit")).unwrap());
        assert!(directory.names().is_empty());
    }

    #[test]
    fn a_leftover_of_a_killed_process_is_no_obstacle() {
        let directory = Directory::new("leftover");
        fs::write(directory.0.join(format!(".exit.{}", process::id())), "").unwrap();
        WholeFile::create(&directory.0.join("exit")).unwrap().commit(b"0").unwrap();
        assert_eq!(directory.names(), ["exit"]);
    }

    #[test]
    fn a_name_may_be_as_long_as_names_can_be() {
        let directory = Directory::new("long");
        let path = directory.0.join("n".repeat(NAME_MAX));
        WholeFile::create(&path).unwrap().commit(b"0").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "0");
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let directory = Directory::new("special");
        let fifo = directory.0.join("fifo");
        let link = directory.0.join("link");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for path in [&fifo, &link] {
            let error = WholeFile::create(path).unwrap_err();
            assert_eq!(error.to_string(), "what is there is no regular file");
        }
        assert_eq!(directory.names().len(), 2);
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("/dev/null"));
    }

    #[test]
    fn sync_survives_the_directorys_removal() {
        let directory = Directory::new("removed");
        let file = WholeFile::create(&directory.0.join("exit")).unwrap().commit(b"0").unwrap();
        fs::remove_dir_all(&directory.0).unwrap();
        file.sync().unwrap();
    }
}
