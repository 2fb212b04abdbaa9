//! Where a file really is: its directory, held open, and its name in there.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

use crate::directory::Directory;

/// As many links as the kernel follows.
const LINKS_MAX: usize = 40;

/// What is done in a place is done in that directory, whoever moves it or puts a link at its path meanwhile.
#[derive(Debug)]
pub(super) struct Place {
    /// The directory, by its descriptor.
    dir: PathBuf,
    name: OsString,
    directory: Directory,
}

impl Place {
    /// Where `path` leads, past all links. There need not be anything. With an allowlist it must be in one of these
    /// directories or below.
    pub(super) fn find(path: &Path, allowlist: &[PathBuf]) -> Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            let place = Self::at(&path)?;
            match place.link()? {
                None => return place.checked(allowlist),
                // Relative to where the link is; its directory's own path may have links, which the kernel follows.
                Some(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            }
        }
        Err(Error::from_raw_os_error(libc::ELOOP))
    }

    fn at(path: &Path) -> Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(ErrorKind::IsADirectory.into());
        };
        let directory = Directory::open(parent)?;
        Ok(Self { dir: directory.path(), name: name.into(), directory })
    }

    /// What the link says that is there, if one is and may be followed.
    fn link(&self) -> Result<Option<PathBuf>> {
        // A descriptor's link in /proc, as `/dev/stdout` leads to, names what no path may lead to.
        if self.directory.is_in_proc()? {
            return Ok(None);
        }
        match self.directory.read_link(&self.name) {
            Some(_) if self.directory.is_open_to_others()? => {
                let problem = "it is a link in a directory that others may write to, which is not followed";
                Err(Error::new(ErrorKind::PermissionDenied, problem))
            }
            found => Ok(found),
        }
    }

    fn checked(self, allowlist: &[PathBuf]) -> Result<Self> {
        if allowlist.is_empty() {
            return Ok(self);
        }
        // Asked of the directory that is held, not of the path, which may lead elsewhere by now.
        let dir = fs::read_link(&self.dir)?;
        if allowlist.iter().any(|allowed| is_in(&dir, allowed)) {
            return Ok(self);
        }
        let problem = format!("{} is in no directory that --log-allowlist-dir names", dir.join(&self.name).display());
        Err(Error::new(ErrorKind::PermissionDenied, problem))
    }

    /// Whether a link that is there now may be followed by the kernel: it is no trick, but a descriptor.
    pub(super) fn is_descriptor(&self) -> bool {
        self.directory.is_in_proc().unwrap_or(false)
    }

    /// The file's name.
    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }

    /// A path of the file. It is not to be kept longer than the place.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// A path of another file in the same directory.
    pub(super) fn beside(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.dir.join(name.as_ref())
    }
}

/// Whether a directory is another one or below. One that is not there holds nothing.
fn is_in(dir: &Path, allowed: &Path) -> bool {
    fs::canonicalize(allowed).is_ok_and(|allowed| dir.starts_with(allowed))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::super::testing::Scratch;
    use super::*;

    fn admitted(path: &Path, allowed: &Path) -> bool {
        match Place::find(path, &[allowed.to_owned(), "/nonexistent".into(), "".into()]) {
            Ok(_) => true,
            Err(error) => {
                assert!(error.to_string().contains("--log-allowlist-dir"), "{}: {error}", path.display());
                false
            }
        }
    }

    #[test]
    fn n02_what_counts_is_where_a_path_leads() {
        let dir = Scratch::new();
        let allowed = dir.path("allowed");
        for path in ["allowed/sub", "allowed-too", "elsewhere"] {
            fs::create_dir_all(dir.path(path)).unwrap();
        }
        symlink(dir.path("elsewhere"), dir.path("allowed/out")).unwrap();
        symlink(dir.path("elsewhere/file"), dir.path("allowed/out-file")).unwrap();
        symlink("../elsewhere/file", dir.path("allowed/dangling")).unwrap();
        symlink("dangling", dir.path("allowed/twice")).unwrap();
        symlink("sub/file", dir.path("allowed/in-file")).unwrap();
        symlink("allowed", dir.path("link")).unwrap();
        symlink("../allowed/sub/file", dir.path("elsewhere/in-file")).unwrap();
        for (path, inside) in [
            ("allowed/log", true),
            ("allowed/sub/log", true),
            ("allowed/sub/../log", true),
            ("allowed/in-file", true),
            ("link/log", true),
            ("elsewhere/in-file", true),
            ("elsewhere/../allowed/log", true),
            ("elsewhere/log", false),
            ("allowed-too/log", false),
            ("allowed/../log", false),
            ("allowed/../elsewhere/log", false),
            ("allowed/out/log", false),
            ("allowed/out/../log", false),
            ("allowed/out-file", false),
            ("allowed/dangling", false),
            ("allowed/twice", false),
        ] {
            assert_eq!(admitted(&dir.path(path), &allowed), inside, "{path}");
            assert_eq!(admitted(&dir.path(path), &dir.path("link")), inside, "{path}, the directory named by a link");
            assert!(Place::find(&dir.path(path), &[]).is_ok(), "{path}, without a list");
        }
    }

    #[test]
    fn n02_a_directory_that_is_swapped_after_it_was_looked_at_is_not_used() {
        let dir = Scratch::new();
        fs::create_dir_all(dir.path("allowed/sub")).unwrap();
        fs::create_dir(dir.path("elsewhere")).unwrap();
        let place = Place::find(&dir.path("allowed/sub/log"), &[dir.path("allowed")]).unwrap();
        fs::rename(dir.path("allowed/sub"), dir.path("allowed/old")).unwrap();
        symlink(dir.path("elsewhere"), dir.path("allowed/sub")).unwrap();
        fs::write(place.path(), "here").unwrap();
        fs::write(place.beside("log.1"), "here").unwrap();
        assert!(dir.path("allowed/old/log").exists() && dir.path("allowed/old/log.1").exists());
        assert_eq!(fs::read_dir(dir.path("elsewhere")).unwrap().count(), 0);
    }

    #[test]
    fn a_link_in_a_directory_of_others_is_not_followed() {
        let dir = Scratch::new();
        for (name, mode, user, followed) in [
            ("ours", 0o755, 0, true),
            ("sticky", 0o1777, 0, false),
            ("groups", 0o775, 0, false),
            ("theirs", 0o700, 1000, false),
        ] {
            fs::create_dir(dir.path(name)).unwrap();
            chown(dir.path(name), Some(user), None).unwrap();
            fs::set_permissions(dir.path(name), Permissions::from_mode(mode)).unwrap();
            symlink("../target", dir.path(format!("{name}/log"))).unwrap();
            // Also where it is reached by a link of ours.
            symlink(format!("{name}/log"), dir.path(format!("to-{name}"))).unwrap();
            for path in [format!("{name}/log"), format!("to-{name}")] {
                assert_eq!(Place::find(&dir.path(&path), &[]).is_ok(), followed, "{path}");
            }
            assert!(Place::find(&dir.path(format!("{name}/file")), &[]).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_path_that_leads_nowhere_is_an_error() {
        let dir = Scratch::new();
        symlink("loop", dir.path("loop")).unwrap();
        for (path, error) in [("loop", libc::ELOOP), ("missing/log", libc::ENOENT)] {
            assert_eq!(Place::find(&dir.path(path), &[]).unwrap_err().raw_os_error(), Some(error), "{path}");
        }
        assert_eq!(Place::find(Path::new("/"), &[]).unwrap_err().kind(), ErrorKind::IsADirectory);
    }
}
