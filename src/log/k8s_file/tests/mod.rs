//! The driver on real files.

mod allowlist;
mod full_disks;
mod limits;
mod records;
mod reopening;
mod rotation;
mod special_files;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, thread};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::super::testing::{Records, Scratch};
use super::*;
use dunnage_records::{PREFIX_LEN, TEXT_MAX};

use Stream::{Stderr, Stdout};

const BOUND: Duration = Duration::from_secs(10);

fn open(path: &Path) -> K8sFile {
    open_with(path, |_| ())
}

fn open_limited(path: &Path, size_max: u64) -> K8sFile {
    open_with(path, |options| options.size_max = Some(size_max))
}

fn open_with(path: &Path, change: impl FnOnce(&mut K8sFileOptions)) -> K8sFile {
    let mut options = K8sFileOptions { path: path.to_owned(), ..K8sFileOptions::default() };
    change(&mut options);
    K8sFile::open(&options).unwrap()
}

/// What is beside the log in its directory.
fn others(log: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(log.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path != log).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Repeats `step` until it says that what is waited for has come.
fn until(what: &str, mut step: impl FnMut() -> bool) {
    let start = Instant::now();
    while !step() {
        assert!(start.elapsed() < BOUND, "{what} did not come");
        thread::yield_now();
    }
}

/// Marsaglia's xorshift: the same numbers for the same seed.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    /// Output with lines of all lengths.
    fn output(&mut self, len: usize) -> Vec<u8> {
        let newlines = [2, 20, 100, 5_000, 40_000][self.below(5)];
        let byte =
            |random: &mut Self| if random.below(newlines) == 0 { b'\n' } else { random.below(256).to_le_bytes()[0] };
        (0..len).map(|_| byte(self)).collect()
    }
}

fn open_rotated(path: &Path, size_max: Option<u64>, backups: u32) -> K8sFile {
    open_with(path, |options| (options.size_max, options.backups) = (size_max, NonZeroU32::new(backups)))
}

fn backup(log: &Path, number: u32) -> PathBuf {
    PathBuf::from(format!("{}.{number}", log.display()))
}

/// The directory of a test in a process of its own.
const ROLE: &str = "DUNNAGE_LOG_TEST_DIR";

/// Runs `test` again in a process of its own that `shell` prepares. In that process: the directory it was given.
fn in_own_process(test: &str, shell: &str) -> Option<PathBuf> {
    if let Some(dir) = env::var_os(ROLE) {
        return Some(dir.into());
    }
    let dir = Scratch::new();
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--propagation", "private", "sh", "-ec"]).arg(format!("{shell}\nexec \"$@\"")).arg("sh");
    command.arg(env::current_exe().unwrap()).args(["--exact", "--nocapture"]);
    command.arg(format!("log::k8s_file::tests::{test}")).env(ROLE, dir.path(""));
    let output = command.output().unwrap();
    let [said, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    None
}
