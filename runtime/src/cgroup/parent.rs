//! The service's own cgroup, which holds the children.

use std::io::ErrorKind;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};
use nix::unistd::{AccessFlags, faccessat};

use super::controllers::Controllers;
use super::directory::{Directory, is_gone};
use super::error::CgroupError;
use super::name::Name;
use super::node::{Cgroup, Kind};
use super::removal;
use crate::generation::Tier;

/// Any delegated directory on a cgroup2 mount, also where other controllers are on v1 (G33).
#[derive(Debug)]
pub struct Parent {
    cgroup: Cgroup,
}

impl Parent {
    /// Opens it. It must exist: one made here would prove its children gone that live elsewhere.
    pub fn open(path: &Path) -> Result<Self, CgroupError> {
        let none = |reason: String| CgroupError::NoDelegation { parent: path.to_owned(), reason };
        let directory = Directory::open(path).map_err(|error| none(error.to_string()))?;
        let system = fstatfs(&directory).map_err(CgroupError::io("examine", path))?;
        if system.filesystem_type() != CGROUP2_SUPER_MAGIC {
            return Err(none("it is not on a cgroup2 file system".into()));
        }
        // Delegated are the directory itself and these two (cgroups(7)).
        for file in [".", "cgroup.procs", "cgroup.subtree_control"] {
            faccessat(&directory, file, AccessFlags::W_OK, AtFlags::AT_EACCESS)
                .map_err(|error| none(format!("{file} is not writable: {}", error.desc())))?;
        }
        Ok(Self { cgroup: Cgroup { directory } })
    }

    /// The cgroup itself, for its limits.
    #[must_use]
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// The controllers that its children can be given.
    pub fn controllers(&self) -> Result<Controllers, CgroupError> {
        self.read_controllers("cgroup.controllers")
    }

    /// Opens a child; nothing where there is none, which proves it empty (G23).
    pub fn child(&self, name: &Name) -> Result<Option<Cgroup>, CgroupError> {
        match self.directory().open_below(name.as_str()) {
            Ok(directory) => Ok(Some(Cgroup { directory })),
            // Of a parent that was removed the children are gone as well: ENOENT.
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(CgroupError::io("open", &self.directory().path_of(name.as_str()))(error)),
        }
    }

    /// Makes a child with limits, which nothing has run in yet: one that exists is removed if it is empty, and never used
    /// (G21). A child that cannot be made as wanted is removed again, and nothing is changed in the parent but what
    /// controllers its children have.
    pub fn make(&self, name: &Name, tier: &Tier) -> Result<Cgroup, CgroupError> {
        self.can_have_children()?;
        self.enable(Controllers::needed_by(tier))?;
        let child = self.make_afresh(name)?;
        let prepared = would_run(&child).and_then(|()| child.set_limits(tier));
        if let Err(error) = prepared {
            // Nothing has entered it, but for a stranger's process: then it stays, and is refused the next time.
            let _ = self.directory().remove(name.as_str());
            return Err(error);
        }
        Ok(child)
    }

    pub(super) fn directory(&self) -> &Directory {
        &self.cgroup.directory
    }

    /// Takes any directory.
    #[cfg(test)]
    pub(super) fn fake(path: &Path) -> Self {
        Self { cgroup: Cgroup { directory: Directory::open(path).unwrap() } }
    }

    fn make_afresh(&self, name: &Name) -> Result<Cgroup, CgroupError> {
        let directory = self.directory();
        let mut made = directory.make(name.as_str());
        if made == Err(Errno::EEXIST) {
            if let Some(existing) = self.child(name)?
                && !removal::remove_whole(self, name)?
            {
                return Err(CgroupError::InUse { cgroup: existing.path().to_owned(), left: existing.left() });
            }
            made = directory.make(name.as_str());
        }
        let path = directory.path_of(name.as_str());
        made.map_err(CgroupError::io("make", &path))?;
        self.child(name)?.ok_or(CgroupError::Absent { cgroup: path })
    }

    /// Says what would be wrong with any child, before anything is changed.
    fn can_have_children(&self) -> Result<(), CgroupError> {
        let kind = match self.directory().read("cgroup.type") {
            // The root has no type, and may hold processes.
            Err(error) if error.kind() == ErrorKind::NotFound => return self.cgroup.must_exist(),
            _ => self.cgroup.kind()?,
        };
        // A parent with threaded controllers and processes of its own has become a threaded domain by that.
        match kind {
            Kind::Domain => {}
            kind => return Err(CgroupError::threaded(&self.cgroup, kind)),
        }
        let processes = self.directory().read("cgroup.procs");
        let processes = processes.map_err(|error| self.cgroup.failure("read cgroup.procs of", error))?;
        if processes.is_empty() {
            Ok(())
        } else {
            Err(CgroupError::HasProcesses { parent: self.cgroup.path().to_owned() })
        }
    }

    /// Lets the children have controllers: all that are missing in one write, or none (G14).
    fn enable(&self, needed: Controllers) -> Result<(), CgroupError> {
        if needed.is_empty() {
            return Ok(());
        }
        let missing = needed.without(self.controllers()?);
        if !missing.is_empty() {
            return Err(self.cgroup.no_controller(missing));
        }
        let disabled = needed.without(self.read_controllers("cgroup.subtree_control")?);
        if disabled.is_empty() {
            return Ok(());
        }
        let words: Vec<String> = disabled.names().map(|name| format!("+{name}")).collect();
        self.cgroup.write("cgroup.subtree_control", &words.join(" "))
    }

    fn read_controllers(&self, file: &str) -> Result<Controllers, CgroupError> {
        let text = self.directory().read(file);
        Ok(Controllers::parse(&text.map_err(|error| self.cgroup.failure("read the controllers of", error))?))
    }
}

/// Whether a process that starts in this new cgroup would run.
fn would_run(child: &Cgroup) -> Result<(), CgroupError> {
    // An empty cgroup below a frozen one is frozen from its first moment on.
    if child.events()?.frozen {
        return Err(CgroupError::Frozen { cgroup: child.path().to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g23_what_is_no_cgroup_is_no_delegation_and_no_proof() {
        for (path, reason) in [
            ("/proc", "it is not on a cgroup2 file system"),
            ("/dev/null", "Not a directory"),
            ("/nonexistent/cgroup", "No such file or directory"),
        ] {
            let error = Parent::open(Path::new(path)).unwrap_err();
            assert!(matches!(error, CgroupError::NoDelegation { .. }), "{error:?}");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}
