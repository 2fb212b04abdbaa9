//! The files of one exec: its process for the runtime, its PID from it, and its attach socket.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dunnage_runtime::privileges;
use nix::unistd::mkdtemp;

use crate::socket_file::MAX_SOCKET_PATH;

const TEMPLATE: &str = "dunnage-XXXXXX";

/// The longest name in it: `/attach`.
const ROOM: usize = "/attach".len();

/// A directory that only this user can enter; removed with this, and all that is in it.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    /// Makes it beside the control socket, so that who found that finds the attach socket, too; or in `/tmp` where
    /// the path would be too long for a socket's address.
    pub(super) fn create(beside: &Path) -> io::Result<Self> {
        let parent = beside.parent().unwrap_or(Path::new("/"));
        let template = parent.join(TEMPLATE);
        let fits = template.as_os_str().len() + ROOM <= MAX_SOCKET_PATH;
        let template = if fits { template } else { Path::new("/tmp").join(TEMPLATE) };
        let made = mkdtemp(&template).map_err(io::Error::from);
        made.map(Self).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot make the directory {}: {error}", template.display()))
        })
    }

    /// Writes the process to execute.
    pub(super) fn write_process(&self, process: &str) -> io::Result<()> {
        let path = self.process();
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(process.as_bytes()))
            .map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display())))
    }

    /// Removes the process, once the runtime has read it.
    pub(super) fn remove_process(&self) {
        let _raised = privileges::raise();
        // It goes with the directory otherwise.
        let _ = fs::remove_file(self.process());
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn process(&self) -> PathBuf {
        self.0.join("process.json")
    }

    pub(super) fn pid_file(&self) -> PathBuf {
        self.0.join("pid")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.0.join("attach")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _raised = privileges::raise();
        // Nobody else may enter, and somebody may have removed it all the same.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_beside_the_control_socket_and_goes_with_all_that_is_in_it() {
        let parent = mkdtemp(&std::env::temp_dir().join(TEMPLATE)).unwrap();
        let directory = Directory::create(&parent.join("control")).unwrap();
        assert_eq!(directory.path().parent(), Some(parent.as_path()));
        assert_eq!(fs::metadata(directory.path()).unwrap().permissions().mode() & 0o777, 0o700);
        directory.write_process("{}").unwrap();
        assert_eq!(fs::read_to_string(directory.process()).unwrap(), "{}");
        fs::write(directory.pid_file(), "1").unwrap();
        let path = directory.path().to_owned();
        drop(directory);
        assert!(!path.exists());

        let deep = parent.join("d".repeat(100));
        fs::create_dir(&deep).unwrap();
        let directory = Directory::create(&deep.join("control")).unwrap();
        assert!(directory.socket().as_os_str().len() <= MAX_SOCKET_PATH);
        fs::remove_dir_all(&parent).unwrap();
    }
}
