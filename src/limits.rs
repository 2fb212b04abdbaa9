//! The limits of a container's cgroup, as the kernel writes them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

use log::debug;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use crate::cgroup::{Cgroup, Controller, Version};
use crate::control::reply::Limits;

/// Each is a number or two.
const MAX_LIMIT: u64 = 64;

/// What the kernel writes where there is no limit.
const NONE: &str = "max";

/// On v1, where there is no limit to the memory, the kernel writes a number of whole pages that is just below this one.
const MEMORY_MAX: u64 = i64::MAX.cast_unsigned();
const LARGEST_PAGE: u64 = 1 << 20;

/// Where they are read. The directories are held open: the container's process may move on to a cgroup below, and under
/// the path there may be another container's one day.
#[derive(Debug, Default)]
pub(crate) struct LimitFiles {
    unified: Option<File>,
    memory: Option<File>,
    pids: Option<File>,
    cpu: Option<File>,
}

impl LimitFiles {
    /// Those of the cgroup that `pid` is in. There may be none.
    pub(crate) fn of(pid: i32) -> Self {
        let mut files = Self::default();
        for controller in [Controller::Memory, Controller::Pids, Controller::Cpu] {
            let (version, directory) = match open(pid, controller) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error) => {
                    debug!("the {controller:?} limits cannot be read: {error}");
                    continue;
                }
            };
            let place = match (version, controller) {
                (Version::V2, _) => &mut files.unified,
                (Version::V1, Controller::Memory) => &mut files.memory,
                (Version::V1, Controller::Pids) => &mut files.pids,
                (Version::V1, Controller::Cpu) => &mut files.cpu,
            };
            *place = Some(directory);
        }
        files
    }

    /// What they are now.
    pub(crate) fn read(&self) -> Limits {
        let unified = |name| read(self.unified.as_ref()?, name);
        let mut limits = Limits {
            memory_max: unified("memory.max"),
            memory_high: unified("memory.high"),
            pids_max: unified("pids.max"),
            cpu_max: unified("cpu.max"),
            cpu_weight: unified("cpu.weight"),
        };
        if let Some(memory) = &self.memory {
            limits.memory_max = read(memory, "memory.limit_in_bytes").map(memory_as_on_v2);
        }
        if let Some(pids) = &self.pids {
            limits.pids_max = read(pids, "pids.max");
        }
        if let Some(cpu) = &self.cpu {
            let (quota, period) = (read(cpu, "cpu.cfs_quota_us"), read(cpu, "cpu.cfs_period_us"));
            limits.cpu_max = quota.zip(period).map(|(quota, period)| cpu_as_on_v2(&quota, &period));
        }
        limits
    }
}

fn open(pid: i32, controller: Controller) -> io::Result<Option<(Version, File)>> {
    let Some(cgroup) = Cgroup::of(pid, controller)? else { return Ok(None) };
    let mut failure = io::Error::other("it is in no mounted hierarchy");
    for directory in cgroup.directories()? {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        match OpenOptions::new().read(true).custom_flags(flags.bits()).open(&directory) {
            Ok(directory) => return Ok(Some((cgroup.version, directory))),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn read(directory: &File, name: &str) -> Option<String> {
    let file = openat(directory, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    let mut text = String::new();
    File::from(file).take(MAX_LIMIT).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned())
}

fn memory_as_on_v2(limit: String) -> String {
    match limit.parse::<u64>() {
        Ok(bytes) if bytes > MEMORY_MAX - LARGEST_PAGE => NONE.to_owned(),
        _ => limit,
    }
}

fn cpu_as_on_v2(quota: &str, period: &str) -> String {
    format!("{} {period}", if quota == "-1" { NONE } else { quota })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::{env, fs, process};

    use super::*;

    /// A directory that stands for a cgroup, with these files.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let path = env::temp_dir().join(format!("dunnage-limits-{name}-{}", process::id()));
            fs::create_dir(&path).unwrap();
            for (name, text) in files {
                fs::write(path.join(name), format!("{text}\n")).unwrap();
            }
            Self(path)
        }

        fn open(&self) -> File {
            File::open(&self.0).unwrap()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// `memory.max`, `memory.high`, `pids.max`, `cpu.max` and `cpu.weight`.
    fn limits(words: [Option<&str>; 5]) -> Limits {
        let [memory_max, memory_high, pids_max, cpu_max, cpu_weight] = words.map(|word| word.map(str::to_owned));
        Limits { memory_max, memory_high, pids_max, cpu_max, cpu_weight }
    }

    #[test]
    fn k5_limits_are_as_the_kernel_writes_them() {
        let files = [
            ("memory.max", "67108864"),
            ("memory.high", "max"),
            ("pids.max", "100"),
            ("cpu.max", "50000 100000"),
            ("cpu.weight", "79"),
        ];
        let directory = Directory::new("v2", &files);
        let files = LimitFiles { unified: Some(directory.open()), ..LimitFiles::default() };
        let expected = limits([Some("67108864"), Some("max"), Some("100"), Some("50000 100000"), Some("79")]);
        assert_eq!(files.read(), expected);
        // They may be changed at any time, and vanish with the cgroup.
        fs::write(directory.0.join("memory.max"), "max\n").unwrap();
        fs::remove_file(directory.0.join("cpu.max")).unwrap();
        assert_eq!(files.read(), limits([Some("max"), Some("max"), Some("100"), None, Some("79")]));
    }

    #[test]
    fn k5_limits_of_v1_are_told_in_the_same_words() {
        let no_limits = [
            ("memory.limit_in_bytes", "9223372036854771712"),
            ("pids.max", "max"),
            ("cpu.cfs_quota_us", "-1"),
            ("cpu.cfs_period_us", "100000"),
        ];
        let directory = Directory::new("v1", &no_limits);
        let [memory, pids, cpu] = [(); 3].map(|()| Some(directory.open()));
        let files = LimitFiles { unified: None, memory, pids, cpu };
        assert_eq!(files.read(), limits([Some("max"), None, Some("max"), Some("max 100000"), None]));
        fs::write(directory.0.join("memory.limit_in_bytes"), "1048576\n").unwrap();
        fs::write(directory.0.join("cpu.cfs_quota_us"), "25000\n").unwrap();
        assert_eq!(files.read(), limits([Some("1048576"), None, Some("max"), Some("25000 100000"), None]));
    }

    #[test]
    fn without_a_process_there_are_none() {
        // Above what a PID can be.
        assert_eq!(LimitFiles::of(1 << 23).read(), Limits::default());
    }
}
