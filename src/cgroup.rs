//! Where the cgroup of a process is.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// What /proc/PID/cgroup has at most: a line for each hierarchy, of which there are a dozen, each with one path.
const MAX_CGROUP: u64 = 128 << 10;

/// The kernel's two kinds of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// What counts and limits something of the processes in a cgroup. On v1 each may have a hierarchy of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    Memory,
    Pids,
    Cpu,
}

impl Controller {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Memory => b"memory",
            Self::Pids => b"pids",
            Self::Cpu => b"cpu",
        }
    }

    /// Whether it is in a list with commas.
    fn is_among(self, names: &[u8]) -> bool {
        names.split(|&byte| byte == b',').any(|name| name == self.name())
    }
}

/// The cgroup in which a controller has a process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cgroup {
    pub(crate) version: Version,
    /// As seen from this process's cgroup namespace: it may begin with `/..`.
    pub(crate) path: PathBuf,
    controller: Controller,
}

impl Cgroup {
    /// That of a process; none if the controller has none.
    pub(crate) fn of(pid: i32, controller: Controller) -> io::Result<Option<Self>> {
        // Most are read at once.
        let mut text = Vec::with_capacity(1024);
        File::open(format!("/proc/{pid}/cgroup"))?.take(MAX_CGROUP).read_to_end(&mut text)?;
        Ok(Self::parse(&text, controller))
    }

    /// Whether it is that of the whole machine, or namespace. On v1 a process that has ended is shown there as well.
    pub(crate) fn is_root(&self) -> bool {
        self.path == Path::new("/")
    }

    /// The directories that may be the cgroup's.
    pub(crate) fn directories(&self) -> io::Result<Vec<PathBuf>> {
        Ok(Mounts::find(self.controller)?.directories(self).collect())
    }

    /// Reads /proc/PID/cgroup. Where the controller is on v1, a v2 hierarchy beside it has nothing to say.
    pub(crate) fn parse(text: &[u8], controller: Controller) -> Option<Self> {
        let mut unified = None;
        for line in text.split(|&byte| byte == b'\n') {
            // Of the three only the path may have a colon in it.
            let mut fields = line.splitn(3, |&byte| byte == b':');
            let (Some(number), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            if !path.starts_with(b"/") {
                continue;
            }
            let cgroup = |version| Self { version, path: OsString::from_vec(path.to_vec()).into(), controller };
            if controller.is_among(controllers) {
                return Some(cgroup(Version::V1));
            }
            if number == b"0" && controllers.is_empty() {
                unified = Some(cgroup(Version::V2));
            }
        }
        unified
    }
}

/// Where a controller's cgroups are mounted.
#[derive(Debug)]
pub(crate) struct Mounts(pub(crate) Vec<Mount>);

impl Mounts {
    /// Those of this process's mount namespace.
    pub(crate) fn find(controller: Controller) -> io::Result<Self> {
        Self::list(BufReader::new(File::open("/proc/self/mountinfo")?), controller)
    }

    /// The directories that may be a cgroup's. The mount that is listed last comes first.
    pub(crate) fn directories(&self, cgroup: &Cgroup) -> impl Iterator<Item = PathBuf> {
        let mounts = self.0.iter().rev().filter(|mount| mount.version == cgroup.version);
        mounts.filter_map(|mount| mount.directory(&cgroup.path))
    }

    /// Reads mountinfo, without the mounts that another one hides.
    pub(crate) fn list(mut mountinfo: impl BufRead, controller: Controller) -> io::Result<Self> {
        // With the point as it is written there, which is quicker to compare: most lines are of no cgroup.
        let mut found: Vec<(Vec<u8>, Mount)> = Vec::new();
        let mut line = Vec::new();
        while mountinfo.read_until(b'\n', &mut line)? > 0 {
            if let Some((root, point, version)) = parse_mount(line.strip_suffix(b"\n").unwrap_or(&line), controller) {
                found.retain(|(other, _)| other != point);
                if let Some(version) = version {
                    found.push((point.to_vec(), Mount { version, root: unescape(root), point: unescape(point) }));
                }
            }
            line.clear();
        }
        Ok(Self(found.into_iter().map(|(_, mount)| mount).collect()))
    }
}

/// Reads a line of mountinfo: root and point of the mount, and the kind of the controller's cgroups if it has any.
fn parse_mount(line: &[u8], controller: Controller) -> Option<(&[u8], &[u8], Option<Version>)> {
    let mut fields = line.split(|&byte| byte == b' ');
    let root = fields.nth(3)?;
    let point = fields.next()?;
    // Any number of optional fields comes before the dash.
    fields.find(|field| *field == b"-")?;
    let (filesystem, _source, options) = (fields.next()?, fields.next()?, fields.next()?);
    let version = match filesystem {
        b"cgroup2" => Some(Version::V2),
        b"cgroup" if controller.is_among(options) => Some(Version::V1),
        _ => None,
    };
    Some((root, point, version))
}

/// A mount of a cgroup hierarchy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) version: Version,
    /// The cgroup that is mounted.
    pub(crate) root: PathBuf,
    pub(crate) point: PathBuf,
}

impl Mount {
    /// Where a cgroup is, if it is within this mount.
    ///
    /// Both paths are as seen from this process's cgroup namespace, so what is above its root cancels out.
    pub(crate) fn directory(&self, cgroup: &Path) -> Option<PathBuf> {
        let below = cgroup.strip_prefix(&self.root).ok()?;
        below.components().all(|component| matches!(component, Component::Normal(_))).then(|| self.point.join(below))
    }
}

/// Takes the kernel's octal escapes off a path: `\040` is a blank.
fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        if let [b'\\', high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', after @ ..] = rest {
            path.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'));
            rest = after;
        } else {
            path.push(byte);
            rest = after;
        }
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup(version: Version, path: &str) -> Cgroup {
        Cgroup { version, path: path.into(), controller: Controller::Memory }
    }

    #[test]
    fn the_memory_controllers_cgroup_is_found() {
        for (text, expected) in [
            ("0::/user.slice/libpod-1.scope\n", Some(cgroup(Version::V2, "/user.slice/libpod-1.scope"))),
            ("5:cpu:/a\n4:memory:/b\n3:pids:/c\n0::/d\n", Some(cgroup(Version::V1, "/b"))),
            ("0::/d\n4:cpu,memory,pids:/b\n", Some(cgroup(Version::V1, "/b"))),
            // Hybrid, with the memory controller on v2.
            ("3:cpu,cpuacct:/a\n1:name=systemd:/s\n0::/d\n", Some(cgroup(Version::V2, "/d"))),
            ("2:name=memory:/n\n0::/d\n", Some(cgroup(Version::V2, "/d"))),
            ("0::/a:b/c d\n", Some(cgroup(Version::V2, "/a:b/c d"))),
            ("0::/../other", Some(cgroup(Version::V2, "/../other"))),
            ("0::/gone (deleted)\n", Some(cgroup(Version::V2, "/gone (deleted)"))),
            ("2:name=systemd:/a\n", None),
        ] {
            assert_eq!(Cgroup::parse(text.as_bytes(), Controller::Memory), expected, "{text:?}");
        }
    }

    #[test]
    fn each_controller_has_a_cgroup_of_its_own_on_v1() {
        let text = b"5:cpu,cpuacct:/a\n4:memory:/b\n3:pids:/c\n2:cpuset:/e\n0::/d\n";
        for (controller, path) in [(Controller::Cpu, "/a"), (Controller::Memory, "/b"), (Controller::Pids, "/c")] {
            assert_eq!(Cgroup::parse(text, controller).unwrap().path, Path::new(path));
        }
    }

    #[test]
    fn what_names_no_cgroup_is_passed_over() {
        let hostile: [&[u8]; 8] =
            [b"", b"\n\n", b"0:", b"0::", b"0::relative\n", b"1::/a\n", b"4:memory\n", b"4:memory:\xff\n"];
        for text in hostile {
            assert_eq!(Cgroup::parse(text, Controller::Memory), None, "{}", text.escape_ascii());
        }
        assert_eq!(
            Cgroup::parse(b"\xff\xff\xff:::\n:::\n0::/a\n", Controller::Memory),
            Some(cgroup(Version::V2, "/a"))
        );
    }

    fn list(mountinfo: &str, version: Version) -> Vec<(String, String)> {
        let Mounts(mounts) = Mounts::list(mountinfo.as_bytes(), Controller::Memory).unwrap();
        mounts
            .iter()
            .filter(|mount| mount.version == version)
            .map(|mount| (mount.root.display().to_string(), mount.point.display().to_string()))
            .collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(root, point)| (root.to_owned(), point.to_owned())).collect()
    }

    #[test]
    fn mounts_are_found_wherever_they_are() {
        let hybrid = "\
            31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 master:2 - cgroup cgroup rw,memory\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        assert_eq!(list(hybrid, Version::V1), pairs(&[("/", "/sys/fs/cgroup/memory")]));
        assert_eq!(list(hybrid, Version::V2), pairs(&[("/", "/sys/fs/cgroup/unified")]));
        let odd = "35 31 0:32 /a\\040b /mnt/c\\011d\\134040\\012\\043 rw - cgroup2 none rw,nsdelegate\n";
        assert_eq!(list(odd, Version::V2), pairs(&[("/a b", "/mnt/c\td\\040\n#")]));
        assert_eq!(list(odd, Version::V1), []);
    }

    #[test]
    fn a_hidden_mount_is_not_used() {
        let twice = "\
            30 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
            31 23 0:29 / /mnt rw - cgroup2 cgroup2 rw\n\
            32 30 0:28 /pod /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
            33 31 0:30 / /mnt rw - tmpfs tmpfs rw\n";
        assert_eq!(list(twice, Version::V2), pairs(&[("/pod", "/sys/fs/cgroup")]));
    }

    #[test]
    fn lines_that_are_no_mounts_are_passed_over() {
        let hostile = b"\n \n - cgroup2 x y\n1 2 3 / /a rw cgroup2 x y\n1 2 3 / /b rw - cgroup2\n\xff\xff\n\
            1 2 3 \\777 \\04 rw - cgroup2 x y\n";
        let Mounts(mounts) = Mounts::list(hostile.as_slice(), Controller::Memory).unwrap();
        assert_eq!(mounts, [Mount { version: Version::V2, root: "\\777".into(), point: "\\04".into() }]);
    }

    #[test]
    fn a_cgroup_is_found_in_a_mount_of_part_of_the_tree_and_through_namespaces() {
        for (root, cgroup, expected) in [
            ("/", "/a/b", Some("/mnt/a/b")),
            ("/a", "/a/b", Some("/mnt/b")),
            ("/a", "/a", Some("/mnt")),
            ("/a", "/ab", None),
            ("/c", "/a/b", None),
            // The shim has a cgroup namespace of its own, the mount is the machine's.
            ("/../..", "/../../a/b", Some("/mnt/a/b")),
            // The machine's mount does not say under which name the namespace's root is in it.
            ("/..", "/a", None),
            // Outside of what is mounted.
            ("/", "/../a", None),
        ] {
            let mount = Mount { version: Version::V2, root: root.into(), point: "/mnt".into() };
            assert_eq!(mount.directory(Path::new(cgroup)), expected.map(PathBuf::from), "{root} {cgroup}");
        }
    }
}
