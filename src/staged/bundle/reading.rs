//! The staged bundle, read once: what is checked then is what the runtime gets.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dunnage_runtime::driver::{Driver, Watched};
use dunnage_runtime::event_loop::{EventLoop, Source};
use dunnage_runtime::generation::Tier;
use dunnage_runtime::sys::{Answer, Task, TaskError};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Gid, Uid};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::config;
use crate::directory::kind_of;
use crate::generations::{Digest, Owner, tier};
use crate::json::{Fields, Wrong};
use crate::staged::Staged;
use crate::staged::executable::open_regular_in;

/// The file that the digest covers.
const CONFIG: &str = "config.json";

/// Many times what any engine writes.
const MAX_CONFIG: u64 = 1 << 20;

/// A staged bundle that can be made a container. Nothing of it ran yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bundle {
    /// Where it is, without links.
    pub(super) directory: PathBuf,
    /// Where its root file system is.
    pub(super) root: PathBuf,
    owner: Owner,
    tier: Option<Tier>,
    /// Its config.json.
    pub(super) text: Vec<u8>,
    /// Arguments after the program's own name, if they are not its own.
    pub(super) args: Option<Vec<String>>,
}

impl Bundle {
    /// Who its process is, outside of the container.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// Its own limits (G9).
    pub(crate) fn tier(&self) -> Option<Tier> {
        self.tier
    }

    /// Its program is to get these arguments instead of its own.
    pub(crate) fn set_args(&mut self, args: Vec<String>) {
        self.args = Some(args);
    }
}

/// A reading on its way. Readable when [`Reading::advance`] may have something to tell; given up when dropped.
#[derive(Debug)]
pub(crate) struct Reading {
    task: Task,
    path: PathBuf,
}

impl Reading {
    /// Begins to read the bundle at `staged`, as a task.
    pub(crate) fn start<S: Source + From<Watched>>(
        driver: &mut Driver,
        event_loop: &EventLoop<S>,
        staged: Staged,
    ) -> io::Result<Self> {
        let task = driver.start_task(event_loop, &[], || read(&staged).map(|bundle| encode(&bundle)))?;
        Ok(Self { task, path: staged.path })
    }

    /// What came of it, once it is over. The reason is one line that names the file: nothing ran.
    pub(crate) fn advance(&mut self) -> Option<Result<Bundle, String>> {
        Some(match self.task.advance()? {
            Ok(answer) => decode(answer.bytes)
                .ok_or_else(|| format!("{}: it was read, but not told as agreed", self.path.display())),
            Err(TaskError::Failed(reason)) => Err(reason),
            Err(TaskError::Died) => Err(format!("{}: the process that read it died", self.path.display())),
        })
    }
}

impl AsFd for Reading {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.task.as_fd()
    }
}

/// The task's part.
pub(super) fn read(staged: &Staged) -> Result<Bundle, String> {
    let Staged { path, digest: expected } = staged;
    let in_bundle = |error| format!("{}: {error}", path.display());
    if !path.is_absolute() {
        return Err(in_bundle("it is not an absolute path".to_owned()));
    }
    let (opened, directory) = open_directory(path).map_err(in_bundle)?;
    let in_config = |error| format!("{}: {error}", path.join(CONFIG).display());
    let text = read_config(&opened).map_err(in_config)?;
    let digest = Digest(Sha256::digest(&text).into());
    if let Some(expected) = expected.filter(|expected| *expected != digest) {
        return Err(in_config(format!("its digest is {digest}, not {expected}")));
    }
    let facts = config::read(&text).map_err(in_config)?;
    let root = find_root(&opened, &facts.root).map_err(|error| in_config(format!("\"root.path\" {error}")))?;
    for hook in &facts.hooks {
        check_hook(hook, [&directory, &root]).map_err(|error| in_config(format!("\"hooks\" {error}")))?;
    }
    Ok(Bundle { directory, root, owner: facts.owner, tier: facts.tier, text, args: None })
}

/// Opens the directory, and tells where it is without links. Its own name is not followed.
fn open_directory(path: &Path) -> Result<(OwnedFd, PathBuf), String> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let opened = openat2(AT_FDCWD, path, how).map_err(|errno| format!("cannot open it: {}", errno.desc()))?;
    let found = fstat(&opened).map_err(|errno| format!("cannot look at it: {}", errno.desc()))?;
    match kind_of(&found) {
        SFlag::S_IFDIR => {}
        SFlag::S_IFLNK => return Err("it is a symlink".into()),
        _ => return Err("it is not a directory".into()),
    }
    let directory = real_path(&opened)?;
    Ok((opened, directory))
}

fn read_config(bundle: &OwnedFd) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    match open_regular_in(bundle.as_fd(), Path::new(CONFIG))?.take(MAX_CONFIG + 1).read_to_end(&mut text) {
        Err(error) => Err(format!("cannot read it: {error}")),
        Ok(length) if length as u64 > MAX_CONFIG => Err(format!("it is larger than {MAX_CONFIG} bytes")),
        Ok(_) => Ok(text),
    }
}

/// Where the root file system is. One that the bundle has itself is below it, whatever links say.
fn find_root(bundle: &OwnedFd, path: &Path) -> Result<PathBuf, String> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let resolve = if path.is_absolute() { ResolveFlag::empty() } else { ResolveFlag::RESOLVE_BENEATH };
    let how = OpenHow::new().flags(flags).resolve(resolve | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let root = openat2(bundle, path, how).map_err(|errno| match errno {
        Errno::EXDEV => format!("leads out of the bundle: {}", path.display()),
        errno => format!("cannot be opened: {}: {}", path.display(), errno.desc()),
    })?;
    real_path(&root)
}

/// The path that leads there now without links. config.json can have no other than UTF-8.
fn real_path(directory: &OwnedFd) -> Result<PathBuf, String> {
    let path = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let path = path.map_err(|error| format!("cannot learn where it is: {error}"))?;
    let opened = fstat(directory).map_err(|errno| format!("cannot look at it: {}", errno.desc()))?;
    match path.symlink_metadata() {
        Ok(found) if (found.dev(), found.ino()) == (opened.st_dev, opened.st_ino) => {}
        _ => return Err(format!("it was moved or removed while it was read: {}", path.display())),
    }
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(format!("its path is no UTF-8: {}", path.display())),
    }
}

/// Hooks are executed by the runtime, which is outside of the generation's cgroup: a build's own must not be (G3).
fn check_hook(hook: &Path, builds: [&Path; 2]) -> Result<(), String> {
    let Ok(real) = hook.canonicalize() else { return Ok(()) };
    // A container on the host's own root file system has no image.
    if builds.into_iter().any(|build| build.parent().is_some() && real.starts_with(build)) {
        return Err(format!("has {}, which is in the bundle, and would run outside of its cgroup", hook.display()));
    }
    Ok(())
}

/// As the task hands it over: a line of JSON, and the text.
fn encode(bundle: &Bundle) -> Answer {
    let facts = json!({
        "directory": bundle.directory,
        "root": bundle.root,
        "user": bundle.owner.user.as_raw(),
        "group": bundle.owner.group.as_raw(),
        "tier": bundle.tier.as_ref().map(tier::encode),
    });
    let mut bytes = facts.to_string().into_bytes();
    bytes.push(b'\n');
    bytes.extend_from_slice(&bundle.text);
    Answer { bytes, fds: Vec::new() }
}

fn decode(mut bytes: Vec<u8>) -> Option<Bundle> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let text = bytes.split_off(end + 1);
    let mut fields = Fields::parse(&bytes).ok()?;
    let read = || {
        Ok::<_, Wrong>(Bundle {
            directory: fields.required("directory")?,
            root: fields.required("root")?,
            owner: Owner {
                user: Uid::from_raw(fields.required("user")?),
                group: Gid::from_raw(fields.required("group")?),
            },
            tier: tier::read(&mut fields, "tier")?,
            text,
            args: None,
        })
    };
    read().ok()
}
