//! How OCI runtimes name a cgroup: by its path below /sys/fs/cgroup.

use std::path::Path;

use dunnage_runtime::cgroup::Name;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

/// Where runtimes look for cgroups.
const MOUNT: &str = "/sys/fs/cgroup";

/// A service's own cgroup, as runtimes name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CgroupsPath(String);

impl CgroupsPath {
    /// Where there is v1 beside v2, runtimes use v1 (G33).
    pub(crate) fn check_host() -> Result<(), String> {
        let system = statfs(MOUNT).map_err(|errno| format!("cannot look at {MOUNT}: {}", errno.desc()))?;
        if system.filesystem_type() != CGROUP2_SUPER_MAGIC {
            return Err(format!(
                "{MOUNT} is no cgroup2 file system, so that runtimes use cgroup v1 here: \"flat\" can be served, \"nested\" \
                 only where there is cgroup v2 alone"
            ));
        }
        Ok(())
    }

    /// That of the cgroup at `parent`.
    pub(crate) fn of(parent: &Path) -> Result<Self, String> {
        Self::below(Path::new(MOUNT), parent)
    }

    /// Runtimes go by the path alone, so links are resolved.
    fn below(mount: &Path, parent: &Path) -> Result<Self, String> {
        let real = parent.canonicalize().map_err(|error| format!("cannot find {}: {error}", parent.display()))?;
        let below = real.strip_prefix(mount).ok().and_then(Path::to_str).filter(|below| !below.is_empty());
        let below = below.ok_or_else(|| {
            format!("{} is not below {}, where runtimes look for cgroups", real.display(), mount.display())
        })?;
        Ok(Self(format!("/{below}")))
    }

    /// That of a child.
    pub(crate) fn child(&self, name: &Name) -> String {
        format!("{}/{name}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use dunnage_runtime::generation::{Number, Role};

    use super::*;

    #[test]
    fn g33_nested_is_refused_where_runtimes_use_v1() {
        let hybrid = Path::new("/sys/fs/cgroup/unified");
        if statfs(MOUNT).unwrap().filesystem_type() == CGROUP2_SUPER_MAGIC || !hybrid.is_dir() {
            eprintln!("skipped: this is no hybrid host");
            return;
        }
        let error = CgroupsPath::check_host().unwrap_err();
        assert!(error.starts_with("/sys/fs/cgroup is no cgroup2 file system"), "{error}");
    }

    #[test]
    fn g3_a_cgroup_is_named_by_its_real_path_below_the_mount() {
        let temporary = crate::staged::bundle::tests::Temporary::new("cgroup");
        let mount = temporary.path().join("mount");
        fs::create_dir_all(mount.join("services/web")).unwrap();
        symlink("services", mount.join("link")).unwrap();
        symlink(temporary.path(), mount.join("out")).unwrap();
        let path = CgroupsPath::below(&mount, &mount.join("link/web")).unwrap();
        let generation = Name::of(Role::Generation(Number::new(7).unwrap()));
        assert_eq!(path.child(&generation), "/services/web/gen-7");
        for wrong in [&mount, &mount.join("out"), &mount.join("missing")] {
            CgroupsPath::below(&mount, wrong).unwrap_err();
        }
    }
}
