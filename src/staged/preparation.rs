//! Getting a build ready to be started: its executable, its manifest, and who it is to run as.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use dunnage_runtime::driver::{Driver, Watched};
use dunnage_runtime::event_loop::{EventLoop, Source};
use dunnage_runtime::sys::{Answer, Identity, Task, TaskError};
use nix::unistd::{Gid, Uid};

use super::accounts;
use super::executable::{Executable, Guard, open_regular};
use super::manifest::Manifest;
use crate::generations::{Digest, Owner};

/// What is to be prepared.
#[derive(Clone, Debug)]
pub(crate) struct Staged {
    /// The build's own executable.
    pub(crate) path: PathBuf,
    /// What its bytes must have, if that is to be checked.
    pub(crate) digest: Option<Digest>,
}

/// A build that can be started. Nothing of it ran yet.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(super) staged: Staged,
    pub(super) executable: Executable,
    pub(super) manifest: Manifest,
    /// None: who the shim runs as.
    pub(super) identity: Option<Identity>,
}

impl Prepared {
    /// Its program is to get these arguments instead of the manifest's.
    pub(crate) fn set_args(&mut self, args: Vec<CString>) {
        self.manifest.args = args;
    }

    /// Who it runs as.
    pub(crate) fn owner(&self) -> Owner {
        match &self.identity {
            Some(identity) => Owner { user: Uid::from_raw(identity.uid), group: Gid::from_raw(identity.gid) },
            None => Owner { user: Uid::effective(), group: Gid::effective() },
        }
    }

    /// What the build says of itself.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What is executed.
    #[cfg(test)]
    pub(super) fn executable(&self) -> &Executable {
        &self.executable
    }
}

/// A preparation on its way. Readable when [`Preparation::advance`] may have something to tell; given up when dropped.
#[derive(Debug)]
pub(crate) struct Preparation {
    task: Task,
    staged: Staged,
}

impl Preparation {
    /// Begins to prepare `staged`.
    pub(crate) fn start<S: Source + From<Watched>>(
        driver: &mut Driver,
        event_loop: &EventLoop<S>,
        staged: Staged,
    ) -> io::Result<Self> {
        let task = driver.start_task(event_loop, &[], || prepare(&staged))?;
        Ok(Self { task, staged })
    }

    /// What came of it, once it is over. The reason is one line that names the file: nothing ran.
    pub(crate) fn advance(&mut self) -> Option<Result<Prepared, String>> {
        let answer = self.task.advance()?;
        Some(match answer {
            Ok(answer) => decode(answer, &self.staged),
            Err(TaskError::Failed(reason)) => Err(reason),
            Err(TaskError::Died) => Err(format!("{}: the process that prepared it died", self.staged.path.display())),
        })
    }
}

impl AsFd for Preparation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.task.as_fd()
    }
}

/// More than any manifest has, and so little that reading it again costs the loop nothing.
const MAX_MANIFEST: u64 = 256 << 10;

/// The task's part.
fn prepare(staged: &Staged) -> Result<Answer, String> {
    let in_file = |path: &Path, error| format!("{}: {error}", path.display());
    let Staged { path, digest } = staged;
    if !path.is_absolute() {
        return Err(in_file(path, "it is not an absolute path".to_owned()));
    }
    let executable = Executable::open(path, *digest).map_err(|error| in_file(path, error))?;

    let manifest_path = manifest_path(path);
    let (text, identity) = read_manifest(&manifest_path)
        .and_then(|text| {
            let manifest = text.as_deref().map_or_else(|| Ok(Manifest::default()), Manifest::parse)?;
            let own = (Uid::effective().as_raw(), Gid::effective().as_raw());
            let identity = accounts::resolve(manifest.user.as_ref(), manifest.groups.as_deref(), own)?;
            Ok((text, identity))
        })
        .map_err(|error| in_file(&manifest_path, error))?;
    Ok(encode(executable, identity.as_ref(), text.as_deref()))
}

/// The file beside the executable.
fn manifest_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".manifest.json");
    name.into()
}

/// Nothing if there is none.
fn read_manifest(path: &Path) -> Result<Option<Vec<u8>>, String> {
    if matches!(path.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let mut text = Vec::new();
    match open_regular(path)?.take(MAX_MANIFEST + 1).read_to_end(&mut text) {
        Err(error) => Err(format!("cannot read it: {error}")),
        Ok(length) if length as u64 > MAX_MANIFEST => Err(format!("it is larger than {MAX_MANIFEST} bytes")),
        Ok(_) => Ok(Some(text)),
    }
}

/// As the task hands it over: numbers in a line, `-` for none, and the manifest's text, which was found right.
fn encode(executable: Executable, identity: Option<&Identity>, manifest: Option<&[u8]>) -> Answer {
    let (fd, guard) = executable.into_parts();
    let guard = match guard {
        Guard::None => "none",
        Guard::Lease => "lease",
        Guard::Seals => "seals",
    };
    let mut line = guard.to_owned();
    match identity {
        None => line.push_str(" -"),
        Some(Identity { uid, gid, groups }) => {
            for id in [uid, gid].into_iter().chain(groups) {
                line.push(' ');
                line.push_str(&id.to_string());
            }
        }
    }
    line.push('\n');
    let mut bytes = line.into_bytes();
    bytes.extend_from_slice(manifest.unwrap_or(b"{}"));
    Answer { bytes, fds: vec![fd] }
}

fn decode(answer: Answer, staged: &Staged) -> Result<Prepared, String> {
    let Answer { bytes, mut fds } = answer;
    let parts = || {
        let end = bytes.iter().position(|&byte| byte == b'\n')?;
        let mut words = std::str::from_utf8(&bytes[..end]).ok()?.split(' ');
        let guard = match words.next()? {
            "none" => Guard::None,
            "lease" => Guard::Lease,
            "seals" => Guard::Seals,
            _ => return None,
        };
        let identity = match words.next()? {
            "-" => None,
            uid => Some(Identity {
                uid: uid.parse().ok()?,
                gid: words.next()?.parse().ok()?,
                groups: words.map(|group| group.parse().ok()).collect::<Option<_>>()?,
            }),
        };
        Some((guard, identity, &bytes[end + 1..]))
    };
    let broken = || format!("{}: it was prepared, but not told as agreed", staged.path.display());
    let (guard, identity, manifest) = parts().ok_or_else(broken)?;
    let manifest = Manifest::parse(manifest).map_err(|_| broken())?;
    let executable = Executable::from_parts(fds.pop().ok_or_else(broken)?, guard);
    Ok(Prepared { staged: staged.clone(), executable, manifest, identity })
}
