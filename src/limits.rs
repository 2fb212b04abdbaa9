//! The limits of a container's cgroup, as the kernel writes them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

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

/// Where they are read.
#[derive(Debug, Default)]
pub(crate) struct LimitFiles {
    unified: Option<Place>,
    memory: Option<Place>,
    pids: Option<Place>,
    cpu: Option<Place>,
}

/// The directory of a cgroup. Known from the start on, as the container's process may move on to a cgroup below; and by its
/// number, as under the path there may be another container's one day. No number is used twice.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    number: u64,
}

impl LimitFiles {
    /// Those of the cgroup that `pid` is in. There may be none.
    pub(crate) fn of(pid: i32) -> Self {
        let mut files = Self::default();
        for controller in [Controller::Memory, Controller::Pids, Controller::Cpu] {
            let (version, found) = match find(pid, controller) {
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
            *place = Some(found);
        }
        files
    }

    /// What they are now.
    pub(crate) fn read(&self) -> Limits {
        let [directory, memory, pids, cpu] =
            [&self.unified, &self.memory, &self.pids, &self.cpu].map(|place| place.as_ref()?.open());
        let unified = |name| read(directory.as_ref()?, name);
        let mut limits = Limits {
            memory_max: unified("memory.max"),
            memory_high: unified("memory.high"),
            pids_max: unified("pids.max"),
            cpu_max: unified("cpu.max"),
            cpu_weight: unified("cpu.weight"),
        };
        if let Some(memory) = &memory {
            limits.memory_max = read(memory, "memory.limit_in_bytes").map(memory_as_on_v2);
        }
        if let Some(pids) = &pids {
            limits.pids_max = read(pids, "pids.max");
        }
        if let Some(cpu) = &cpu {
            let (quota, period) = (read(cpu, "cpu.cfs_quota_us"), read(cpu, "cpu.cfs_period_us"));
            limits.cpu_max = quota.zip(period).map(|(quota, period)| cpu_as_on_v2(&quota, &period));
        }
        limits
    }
}

impl Place {
    fn of(path: PathBuf) -> io::Result<Self> {
        Ok(Self { number: path.metadata()?.ino(), path })
    }

    /// The directory, while it still is that cgroup's.
    fn open(&self) -> Option<File> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let directory = OpenOptions::new().read(true).custom_flags(flags.bits()).open(&self.path).ok()?;
        directory.metadata().is_ok_and(|found| found.ino() == self.number).then_some(directory)
    }
}

fn find(pid: i32, controller: Controller) -> io::Result<Option<(Version, Place)>> {
    let Some(cgroup) = Cgroup::of(pid, controller)? else { return Ok(None) };
    let mut failure = io::Error::other("it is in no mounted hierarchy");
    for directory in cgroup.directories()? {
        match Place::of(directory) {
            Ok(place) => return Ok(Some((cgroup.version, place))),
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

        fn place(&self) -> Option<Place> {
            Place::of(self.0.clone()).ok()
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
        let files = LimitFiles { unified: directory.place(), ..LimitFiles::default() };
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
        let [memory, pids, cpu] = [(); 3].map(|()| directory.place());
        let files = LimitFiles { unified: None, memory, pids, cpu };
        assert_eq!(files.read(), limits([Some("max"), None, Some("max"), Some("max 100000"), None]));
        fs::write(directory.0.join("memory.limit_in_bytes"), "1048576\n").unwrap();
        fs::write(directory.0.join("cpu.cfs_quota_us"), "25000\n").unwrap();
        assert_eq!(files.read(), limits([Some("1048576"), None, Some("max"), Some("25000 100000"), None]));
    }

    #[test]
    fn another_cgroup_of_that_name_is_not_the_containers() {
        let directory = Directory::new("later", &[("pids.max", "7")]);
        let other = Directory::new("other", &[("pids.max", "8")]);
        let files = LimitFiles { unified: directory.place(), ..LimitFiles::default() };
        assert_eq!(files.read().pids_max.as_deref(), Some("7"));
        fs::rename(&directory.0, directory.0.with_extension("gone")).unwrap();
        fs::rename(&other.0, &directory.0).unwrap();
        assert_eq!(files.read(), Limits::default());
        fs::remove_dir_all(directory.0.with_extension("gone")).unwrap();
    }

    #[test]
    fn without_a_process_there_are_none() {
        // Above what a PID can be.
        assert_eq!(LimitFiles::of(1 << 23).read(), Limits::default());
    }
}
