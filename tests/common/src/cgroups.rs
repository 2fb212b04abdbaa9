//! The cgroups of a test, on whatever hierarchies the machine has.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, statfs};

use crate::process::Process;
use crate::wait::{self, Deadline};

const ROOT: &str = "/sys/fs/cgroup";

/// Cgroups of one name, one in each hierarchy. What is in them ends with them.
#[derive(Debug)]
pub(crate) struct Cgroups {
    name: String,
}

impl Cgroups {
    /// The name must be the test's own. Nothing is made yet.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// The path as runtimes take it.
    pub(crate) fn path(&self) -> String {
        format!("/{}", self.name)
    }

    /// The cgroups below, without the one where Podman puts monitors and leaves it.
    pub(crate) fn left(&self) -> Vec<PathBuf> {
        let below = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let left = self.dirs().into_iter().flat_map(below);
        left.filter(|path| is_cgroup(path) && !path.ends_with("conmon")).collect()
    }

    /// All of them.
    pub(crate) fn dirs(&self) -> Vec<PathBuf> {
        let hierarchies = fs::read_dir(ROOT).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let roots = hierarchies.filter(|path| path.is_dir()).chain([PathBuf::from(ROOT)]);
        roots.map(|root| root.join(&self.name)).filter(|dir| is_cgroup(dir)).collect()
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let deadline = Deadline::usual();
        for dir in self.dirs() {
            if !wait::whether(deadline, || end(&dir).is_ok()) {
                eprintln!("{} cannot be removed", dir.display());
            }
        }
    }
}

fn is_cgroup(dir: &Path) -> bool {
    // crun leaves plain directories where a hierarchy is missing.
    dir.is_dir()
        && statfs(dir).is_ok_and(|found| [CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC].contains(&found.filesystem_type()))
}

/// Kills what is in the cgroup and below, and removes it; to be tried again until that is done.
fn end(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)?.filter_map(Result::ok).filter(|entry| entry.path().is_dir()) {
        end(&entry.path())?;
    }
    // A frozen process dies only once it is thawed.
    let _ = fs::write(dir.join("freezer.state"), "THAWED");
    for pid in fs::read_to_string(dir.join("cgroup.procs"))?.lines().filter_map(|pid| pid.parse().ok()) {
        if let Some(process) = Process::open(pid) {
            process.signal(nix::libc::SIGKILL);
        }
    }
    fs::remove_dir(dir)
}

/// Runs a test where there are only cgroup v1 hierarchies, as crun wants it: in a mount namespace of its own, with an
/// empty directory in the place of the v2 one. On a machine with v2 alone nothing changes.
pub fn without_hybrid_cgroups<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    in_thread(|| {
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("mounts can be made private");
        let unified = Path::new(ROOT).join("unified");
        if is_cgroup(&unified) {
            let tmpfs = Some("tmpfs");
            mount(tmpfs, &unified, tmpfs, MsFlags::empty(), none).expect("the v2 hierarchy can be hidden");
        }
        test()
    })
}

/// In a thread of its own, as a thread keeps its namespace. A panic goes on in the caller.
fn in_thread<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(test).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
