//! What a process was started with, as it sees it itself, and what a directory holds.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::{env, io};

use crate::wire::wire_struct;

wire_struct! {
    /// What a process was started with.
    pub struct Facts {
        /// Its command line.
        pub argv: Vec<String>,
        /// Its environment.
        pub env: BTreeMap<String, String>,
        /// Its working directory.
        pub cwd: String,
        /// Its descriptors.
        pub fds: BTreeMap<i32, Fd>,
        /// Lines of `/proc/self/status`: `Umask`, `SigBlk`, `SigIgn`, `SigCgt` and so on.
        pub status: BTreeMap<String, String>,
        /// `/proc/self/oom_score_adj`.
        pub oom_score_adj: i32,
        /// Its pid, its parent, its process group, its session.
        pub pid: i32,
        /// Its parent when it looked.
        pub ppid: i32,
        /// Its process group.
        pub pgid: i32,
        /// Its session.
        pub sid: i32,
    }
}

wire_struct! {
    /// A descriptor.
    pub struct Fd {
        /// What `/proc/self/fd` says it is.
        pub target: String,
        /// Type and mode of what it refers to, as [`mode`] writes it.
        pub mode: String,
        /// Its flags in octal, `O_CLOEXEC` among them.
        pub flags: String,
    }
}

impl Facts {
    /// Facts about this process.
    pub fn collect() -> io::Result<Self> {
        let id = |pid: nix::unistd::Pid| pid.as_raw();
        Ok(Self {
            argv: command_line()?.into_iter().map(|arg| lossy(&arg.into_vec())).collect(),
            env: env::vars_os().map(|(name, value)| (lossy(name.as_bytes()), lossy(value.as_bytes()))).collect(),
            cwd: lossy(fs::read_link("/proc/self/cwd")?.as_os_str().as_bytes()),
            fds: descriptors(Path::new("/proc/self"))?,
            status: status(Path::new("/proc/self"))?,
            oom_score_adj: fs::read_to_string("/proc/self/oom_score_adj")?.trim().parse().unwrap_or(i32::MIN),
            pid: id(nix::unistd::getpid()),
            ppid: id(nix::unistd::getppid()),
            pgid: id(nix::unistd::getpgrp()),
            sid: id(nix::unistd::getsid(None)?),
        })
    }

    /// The signals in one of the sets of its status, below the real-time ones.
    pub fn signals(&self, set: &str) -> Vec<u32> {
        let mask = self.status.get(set).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
        (1..32).filter(|signal| mask >> (signal - 1) & 1 == 1).collect()
    }
}

/// This process's command line. Not by way of `std::env`, which in a program with musl knows it only after Rust's own `main`.
pub fn command_line() -> io::Result<Vec<OsString>> {
    let mut text = fs::read("/proc/self/cmdline")?;
    // Each word ends in a NUL.
    text.pop();
    Ok(text.split(|&byte| byte == 0).map(|word| OsStr::from_bytes(word).to_owned()).collect())
}

/// The descriptors of a process, by its directory in /proc.
pub fn descriptors(process: &Path) -> io::Result<BTreeMap<i32, Fd>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(process.join("fd"))? {
        let entry = entry?;
        // The listing of our own directory shows the descriptor it reads by; that is no longer there afterwards.
        let (Ok(target), Ok(metadata)) = (fs::read_link(entry.path()), fs::metadata(entry.path())) else { continue };
        let number = entry.file_name().to_string_lossy().parse().unwrap_or(-1);
        let info = fs::read_to_string(process.join("fdinfo").join(entry.file_name())).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or_default().trim().to_owned();
        let target = lossy(target.as_os_str().as_bytes());
        if target.starts_with("/proc/") && target.ends_with("/fd") {
            continue;
        }
        found.insert(number, Fd { target, mode: mode(&metadata), flags });
    }
    Ok(found)
}

/// The lines of a process's status, by its directory in /proc.
pub fn status(process: &Path) -> io::Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(process.join("status"))?;
    Ok(text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect())
}

/// All that is below a directory: relative path, and type, mode and (of a link) target.
pub fn tree(root: &Path) -> io::Result<BTreeMap<String, String>> {
    fn walk(root: &Path, dir: &Path, found: &mut BTreeMap<String, String>) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            // It may be gone by now.
            let Ok(metadata) = path.symlink_metadata() else { continue };
            let mut what = mode(&metadata);
            if let Ok(target) = fs::read_link(&path) {
                what = format!("link to {}", lossy(target.as_os_str().as_bytes()));
            }
            let name = path.strip_prefix(root).unwrap_or(&path);
            found.insert(lossy(name.as_os_str().as_bytes()), what);
            if metadata.is_dir() {
                walk(root, &path, found)?;
            }
        }
        Ok(())
    }
    let mut found = BTreeMap::new();
    walk(root, root, &mut found)?;
    Ok(found)
}

/// Type and permissions, such as `fifo 0640`.
pub fn mode(metadata: &Metadata) -> String {
    let kind = metadata.file_type();
    let kind = match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "link",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "character device",
        () if kind.is_block_device() => "block device",
        () => "other",
    };
    format!("{kind} {:04o}", metadata.mode() & 0o7777)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
