//! The files of sockets, and links to them: removed only while they are our own.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dunnage_runtime::privileges;
use log::warn;

use crate::error::{Context, Result};

/// The longest path that a socket's address holds, its final NUL aside: `sun_path` has 108 bytes.
pub(crate) const MAX_SOCKET_PATH: usize = 107;

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
    /// What was just made at `path`. It is removed if it cannot be told from others later.
    pub(crate) fn at(path: PathBuf) -> Result<Self> {
        match Identity::of(&path) {
            Ok(identity) => Ok(Self { path, identity }),
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err(error).context(|| format!("cannot find {}", path.display()))
            }
        }
    }

    /// Removes the file if it is still ours. The caller may have removed it, or all around it: that is as good.
    pub(crate) fn remove(self) {
        let _raised = privileges::raise();
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
