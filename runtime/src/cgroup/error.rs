//! What can go wrong with cgroups, as the line that a user reads.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::controllers::Controllers;
use super::left::Left;
use super::node::{Cgroup, Kind};

/// Why something could not be done. Names what it is about, and what to do.
#[derive(Debug)]
pub enum CgroupError {
    /// There is no cgroup that children could be made in (G23).
    NoDelegation {
        /// What should be one.
        parent: PathBuf,
        /// What it is instead.
        reason: String,
    },
    /// The kernel has no `cgroup.kill` (G23).
    NoKill {
        /// The cgroup that should have it.
        cgroup: PathBuf,
    },
    /// Limits need controllers that are not there (G14).
    NoController {
        /// Where.
        cgroup: PathBuf,
        /// Those that are missing.
        missing: Controllers,
    },
    /// What starts here would freeze (G5).
    Frozen {
        /// The cgroup that is frozen, or below one that is.
        cgroup: PathBuf,
    },
    /// It is threaded, or within a threaded subtree.
    Threaded {
        /// The cgroup.
        cgroup: PathBuf,
        /// Its kind.
        kind: Kind,
    },
    /// It can be killed only together with others (G25).
    SharedDomain {
        /// The threaded cgroup.
        cgroup: PathBuf,
        /// The others, which share its domain root.
        others: Vec<String>,
    },
    /// The parent holds processes, so its children can have no controllers.
    HasProcesses {
        /// The parent.
        parent: PathBuf,
    },
    /// A cgroup of this name exists and is not empty, or could not be removed (G21).
    InUse {
        /// The cgroup.
        cgroup: PathBuf,
        /// The processes in it.
        left: Left,
    },
    /// It took a kill, so nothing may start in it or move there (G21).
    Killed {
        /// The cgroup.
        cgroup: PathBuf,
    },
    /// A cgroup was to be moved into itself.
    SameCgroup {
        /// The cgroup.
        cgroup: PathBuf,
    },
    /// It does not exist, or no longer.
    Absent {
        /// The cgroup.
        cgroup: PathBuf,
    },
    /// More memory is in use than the limit allows, so lowering it would kill (G12).
    MemoryInUse {
        /// The file of the limit.
        file: PathBuf,
        /// What it was to be.
        wanted: u64,
        /// What is in use, after the kernel has reclaimed what it could.
        current: u64,
    },
    /// The kernel refused a value (G13).
    Refused {
        /// The file.
        file: PathBuf,
        /// The value.
        value: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// Something else failed.
    Io {
        /// What was done: a verb.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
}

impl CgroupError {
    pub(super) fn threaded(cgroup: &Cgroup, kind: Kind) -> Self {
        Self::Threaded { cgroup: cgroup.path().to_owned(), kind }
    }

    /// For `map_err`: what `action` did with `path` failed.
    pub(super) fn io<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |error| Self::Io { action, path: path.to_owned(), error: error.into() }
    }
}

impl fmt::Display for CgroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDelegation { parent, reason } => write!(
                f,
                "{} is no cgroup delegated to this process: {reason}; give a cgroup v2 directory that it may write",
                parent.display()
            ),
            Self::NoKill { cgroup } => {
                write!(f, "{} has no cgroup.kill, for which Linux 5.14 is needed", cgroup.display())
            }
            Self::NoController { cgroup, missing } => write!(
                f,
                "the limits need controllers that {} has not got: {missing}; delegate them (cgroup.subtree_control of \
                 the cgroup above), or leave those limits out",
                cgroup.display()
            ),
            Self::Frozen { cgroup } => {
                write!(f, "{} is frozen, or a cgroup above it is; thaw it (cgroup.freeze)", cgroup.display())
            }
            Self::Threaded { cgroup, kind } => {
                write!(f, "{} is a cgroup of type \"{kind}\", where \"domain\" is needed", cgroup.display())
            }
            Self::SharedDomain { cgroup, others } => write!(
                f,
                "{} is threaded, and killing it at its domain root would kill {} as well; stop those first",
                cgroup.display(),
                others.join(", ")
            ),
            Self::HasProcesses { parent } => write!(
                f,
                "{} holds processes itself, so nothing can be started below it; move them elsewhere",
                parent.display()
            ),
            Self::InUse { cgroup, left } => write!(f, "{} is in use by {left}; empty it first", cgroup.display()),
            Self::Killed { cgroup } => {
                write!(f, "{} was killed once, and is never used again; give another", cgroup.display())
            }
            Self::SameCgroup { cgroup } => write!(f, "{} cannot be moved into itself", cgroup.display()),
            Self::Absent { cgroup } => write!(f, "there is no cgroup {}", cgroup.display()),
            Self::MemoryInUse { file, wanted, current } => write!(
                f,
                "{} cannot be lowered to {wanted} without killing, as {current} bytes are in use; free memory, or give \
                 a higher limit",
                file.display()
            ),
            Self::Refused { file, value, error } => {
                write!(f, "the kernel refuses \"{value}\" in {}: {error}", file.display())
            }
            Self::Io { action, path, error } => write!(f, "cannot {action} {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for CgroupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused { error, .. } | Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
