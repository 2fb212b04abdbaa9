//! What reading the kernel's files is held to.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use super::counters::{Counters, Judge};
use crate::cgroup::{Cgroup, Controller, Mount, Mounts, Version};
use crate::fuzzing::Input;

/// `memory.events` or `memory.oom_control`, before and after.
pub(crate) fn memory_counters(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (before, after) = (input.text(), input.rest());
    let counters = [before, after].map(|text| {
        let counters = Counters::parse(text);
        let numbers = slow_counters(text);
        assert_eq!(counters.ooms, numbers.get("oom").copied().flatten());
        assert_eq!(counters.kills, numbers.get("oom_kill").copied().flatten());
        let is_set = |key| numbers.get(key) == Some(&Some(1));
        assert_eq!(counters.stalled, is_set("oom_kill_disable") && is_set("under_oom"));
        counters
    });

    let rose = |value: fn(&Counters) -> Option<u64>| match (value(&counters[0]), value(&counters[1])) {
        (Some(before), Some(after)) => before < after,
        _ => false,
    };
    let expected = rose(|counters| counters.ooms) || rose(|counters| counters.kills) || counters[1].stalled;
    let mut judge = Judge::new(counters[0]);
    assert_eq!(judge.decide(0, Some(counters[1]), Instant::now()), expected);
    assert_eq!(judge.next_timeout(), None, "without a signal there is nothing to wait for");
}

/// The last line of a key counts, also if it makes no sense.
fn slow_counters(text: &[u8]) -> BTreeMap<String, Option<u64>> {
    let mut numbers = BTreeMap::new();
    for line in text.split(|&byte| byte == b'\n').filter_map(|line| String::from_utf8(line.to_vec()).ok()) {
        if let Some((key, value)) = line.split_once(' ') {
            let digits = value.strip_prefix('+').unwrap_or(value);
            let digit = |sum: u64, digit: char| sum.checked_mul(10)?.checked_add(digit.to_digit(10)?.into());
            let number = digits.chars().try_fold(0, digit).filter(|_| !digits.is_empty());
            numbers.insert(key.to_owned(), number);
        }
    }
    numbers
}

/// `/proc/PID/cgroup` and `/proc/self/mountinfo`: of any bytes, and of mounts as the kernel writes them.
pub(crate) fn cgroups(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let cgroup = Cgroup::parse(input.text(), Controller::Memory);
    let cgroup = cgroup.map_or_else(|| PathBuf::from("/a/b"), |cgroup| cgroup.path);
    assert!(cgroup.has_root());
    check_places(&Mounts::list(input.rest(), Controller::Memory).expect("it is all in memory"), &cgroup);

    let mut input = Input::new(bytes);
    let (mut mountinfo, mut expected) = (Vec::new(), Vec::<Mount>::new());
    while !input.is_empty() {
        let (filesystem, options, version) = *input.one_of(&[
            ("cgroup2", "rw", Some(Version::V2)),
            ("cgroup", "rw,memory", Some(Version::V1)),
            ("cgroup", "rw,cpu", None),
            ("tmpfs", "rw,memory", None),
        ]);
        let optional = *input.one_of(&["", "shared:9 ", "shared:9 master:2 "]);
        let [root, point] = [input.text(), input.text()].map(|path| [b"/", path].concat());
        mountinfo.extend_from_slice(b"35 31 0:32 ");
        for path in [&root, &point] {
            mountinfo.extend_from_slice(&escaped(path));
            mountinfo.push(b' ');
        }
        mountinfo.extend_from_slice(format!("rw {optional}- {filesystem} some {options}\n").as_bytes());
        let [root, point] = [&root, &point].map(|path| PathBuf::from(OsStr::from_bytes(path)));
        // It hides what was there, byte for byte: the kernel writes a path in one way only.
        expected.retain(|other| other.point.as_os_str() != point.as_os_str());
        expected.extend(version.map(|version| Mount { version, root, point }));
    }
    let found = Mounts::list(mountinfo.as_slice(), Controller::Memory).expect("it is all in memory");
    assert_eq!(found.0, expected);
    check_places(&found, &cgroup);
}

/// Where a cgroup is said to be is within the mount.
fn check_places(mounts: &Mounts, cgroup: &Path) {
    for mount in &mounts.0 {
        if let Some(directory) = mount.directory(cgroup) {
            let below = directory.strip_prefix(&mount.point).expect("it is below the mount");
            assert!(
                below.components().all(|component| matches!(component, Component::Normal(_))),
                "{}",
                below.display()
            );
            assert_eq!(mount.root.join(below), cgroup);
        }
    }
}

/// As the kernel escapes paths there.
fn escaped(path: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
        _ => vec![*byte],
    };
    path.iter().flat_map(escape).collect()
}
