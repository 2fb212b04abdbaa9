//! Memory cgroups.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Process, Step};

pub(super) const LIMIT: &str = "20M";

/// Allocates until it is killed.
pub(super) const HOG: &str = "exec tail /dev/zero";

/// A memory cgroup of a test's own. It goes with it, and so does what is in it.
pub(super) struct Memory {
    pub(super) dir: PathBuf,
}

impl Memory {
    /// The name must be the test's own.
    pub(super) fn new(name: &str) -> Self {
        let memory = Self { dir: Self::root().join(format!("dunnage-oom-{name}-{}", std::process::id())) };
        fs::create_dir(&memory.dir).unwrap_or_else(|error| panic!("{}: {error}", memory.dir.display()));
        memory
    }

    pub(super) fn limited(name: &str) -> Self {
        let memory = Self::new(name);
        memory.limit();
        memory
    }

    /// One below it.
    pub(super) fn below(&self, name: &str) -> Self {
        if !Self::is_v1() {
            fs::write(self.dir.join("cgroup.subtree_control"), "+memory").expect("the memory controller");
        }
        let memory = Self { dir: self.dir.join(name) };
        fs::create_dir(&memory.dir).expect("a cgroup");
        memory
    }

    pub(super) fn limit(&self) {
        let limit = if Self::is_v1() { "memory.limit_in_bytes" } else { "memory.max" };
        fs::write(self.dir.join(limit), LIMIT).expect("a limit");
        // Not on all kernels.
        let _ = fs::write(self.dir.join("memory.swap.max"), "0");
    }

    pub(super) fn is_v1() -> bool {
        Self::root().ends_with("memory")
    }

    pub(super) fn root() -> &'static Path {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        if v1.exists() { v1 } else { Path::new("/sys/fs/cgroup") }
    }

    /// The step of a process that enters it.
    pub(super) fn enter(&self) -> Step {
        Self::enter_dir(&self.dir)
    }

    pub(super) fn enter_dir(dir: &Path) -> Step {
        Step::run(&["/bin/sh", "-c", "echo $PPID >\"$1\"", "sh", &dir.join("cgroup.procs").display().to_string()])
    }

    /// The steps of a process that leaves it and removes it.
    pub(super) fn remove(&self) -> [Step; 2] {
        [Self::enter_dir(Self::root()), Step::run(&["/bin/rmdir", &self.dir.display().to_string()])]
    }

    /// Runs a process in it that is killed for its memory.
    pub(super) fn kill_one(&self) {
        let script = format!("echo $$ >'{}/cgroup.procs'; {HOG}", self.dir.display());
        let status = Command::new("/bin/sh").args(["-c", &script]).status().expect("a shell");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let procs = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
        for process in procs.lines().filter_map(|pid| Process::open(pid.parse().ok()?)) {
            process.signal(nix::libc::SIGKILL);
        }
        // No panic, which would hide the first one.
        if !wait::whether(Deadline::usual(), || fs::remove_dir(&self.dir).is_ok() || !self.dir.exists()) {
            eprintln!("{} is not empty", self.dir.display());
        }
    }
}
