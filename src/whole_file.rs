//! Files that others read: whole or not there.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process;

use crate::directory::Directory;

/// The longest name that a file can have.
pub(crate) const NAME_MAX: usize = 255;

/// The name that the next file `name` has until it is put into place: `.NAME.SUFFIX`, NAME cut where it would become too
/// long. Hidden, as there are those who look at each new file, or for names that begin alike.
pub(crate) fn temporary_name(name: &OsStr, suffix: &str) -> OsString {
    let room = NAME_MAX - "..".len() - suffix.len();
    let name = &name.as_bytes()[..name.len().min(room)];
    OsString::from_iter([OsStr::new("."), OsStr::from_bytes(name), OsStr::new("."), OsStr::new(suffix)])
}

/// A file that is made under a temporary name in its directory and renamed into place once it is whole. The directory
/// is held meanwhile: nobody can have the one end up in another one than the other.
#[derive(Debug)]
pub(crate) struct WholeFile {
    file: File,
    directory: Directory,
    name: OsString,
    /// Its name until it is in place.
    temporary: Option<OsString>,
}

impl WholeFile {
    /// Makes the temporary file, mode 0644 under the shim's umask.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| io::Error::other("it names no file"))?.to_owned();
        let directory = Directory::open(path.parent().unwrap_or(Path::new("/")))?;
        // Nobody means to have /dev/null replaced.
        if directory.leads_to_file(&name) == Some(false) {
            return Err(io::Error::other("what is there is no regular file"));
        }
        let temporary = temporary_name(&name, &process::id().to_string());
        let file = match directory.create_file(&temporary) {
            // Left by a process that had this PID and was killed in the midst of it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                directory.remove(&temporary)?;
                directory.create_file(&temporary)?
            }
            result => result?,
        };
        Ok(Self { file, directory, name, temporary: Some(temporary) })
    }

    /// Writes `content` and puts the file into place, over any that is there. It is not synced.
    pub(crate) fn commit(mut self, content: &[u8]) -> io::Result<CommittedFile> {
        self.file.write_all(content)?;
        if let Some(temporary) = &self.temporary {
            self.directory.rename(temporary, &self.name)?;
        }
        self.temporary = None;
        Ok(CommittedFile(self))
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Best effort: the directory may be gone, which is why nothing was put into place.
            let _ = self.directory.remove(temporary);
        }
    }
}

/// A file in its place, which a crash of the machine may still take back.
#[derive(Debug)]
pub(crate) struct CommittedFile(WholeFile);

impl CommittedFile {
    /// Makes it durable: the file, and its name in the directory. Others may have removed either by now.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.0.file.sync_all()?;
        self.0.directory.sync()
    }

    /// What that needs.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.0.file.as_fd(), self.0.directory.as_fd()]
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dunnage-whole-file-{name}-{}", process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_appears_whole_and_replaces_the_old_one() {
        let directory = Scratch::new("appears");
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
        let directory = Scratch::new("dropped");
        drop(WholeFile::create(&directory.0.join("exit")).unwrap());
        assert!(directory.names().is_empty());
    }

    #[test]
    fn a_leftover_of_a_killed_process_is_no_obstacle() {
        let directory = Scratch::new("leftover");
        fs::write(directory.0.join(format!(".exit.{}", process::id())), "").unwrap();
        WholeFile::create(&directory.0.join("exit")).unwrap().commit(b"0").unwrap();
        assert_eq!(directory.names(), ["exit"]);
    }

    #[test]
    fn links_that_others_put_there_lead_nowhere() {
        let directory = Scratch::new("links");
        let shared = directory.0.join("shared");
        fs::create_dir(&shared).unwrap();
        let victim = directory.0.join("victim");
        fs::write(&victim, "secret").unwrap();
        let (path, temporary) = (shared.join("exit"), shared.join(format!(".exit.{}", process::id())));
        let done = AtomicBool::new(false);
        let mut written = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for name in [&path, &temporary] {
                        let _ = symlink(&victim, name);
                        let _ = fs::remove_file(name);
                    }
                }
            });
            for _ in 0..2000 {
                // It may fail: its file is taken away from under it.
                written += u32::from(WholeFile::create(&path).and_then(|file| file.commit(b"0")).is_ok());
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read_to_string(&victim).unwrap(), "secret");
        assert!(written > 0, "nothing was written at all");
    }

    #[test]
    fn a_directory_that_is_moved_away_keeps_its_file() {
        let directory = Scratch::new("moved");
        let [there, moved] = ["there", "moved"].map(|name| directory.0.join(name));
        fs::create_dir(&there).unwrap();
        let file = WholeFile::create(&there.join("exit")).unwrap();
        fs::rename(&there, &moved).unwrap();
        fs::create_dir(&there).unwrap();
        file.commit(b"3").unwrap().sync().unwrap();
        assert_eq!(fs::read_to_string(moved.join("exit")).unwrap(), "3");
        assert_eq!(fs::read_dir(&there).unwrap().count(), 0);
    }

    #[test]
    fn a_name_may_be_as_long_as_names_can_be() {
        let directory = Scratch::new("long");
        let path = directory.0.join("n".repeat(NAME_MAX));
        WholeFile::create(&path).unwrap().commit(b"0").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "0");
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let directory = Scratch::new("special");
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
        let directory = Scratch::new("removed");
        let file = WholeFile::create(&directory.0.join("exit")).unwrap().commit(b"0").unwrap();
        fs::remove_dir_all(&directory.0).unwrap();
        file.sync().unwrap();
    }
}
