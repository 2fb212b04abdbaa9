//! Which cgroup a process is in.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use nix::unistd::Pid;

/// More than a line for each hierarchy, and any path.
const MAX_LENGTH: u64 = 64 << 10;

/// A path in the cgroup v2 hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership(String);

impl Membership {
    /// Whether it is that cgroup, or one below it.
    pub(super) fn is_within(&self, cgroup: &str) -> bool {
        self.0.strip_prefix(cgroup).is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let path = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
        String::from_utf8(path.to_vec()).ok().map(Self)
    }
}

impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// That of a process that was not reaped.
pub(super) fn cgroup_of(pid: Pid) -> io::Result<Membership> {
    let mut text = Vec::new();
    File::open(format!("/proc/{pid}/cgroup"))?.take(MAX_LENGTH).read_to_end(&mut text)?;
    Membership::parse(&text).ok_or_else(|| io::Error::other("/proc does not say"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g3_only_its_own_cgroup_and_those_below_are_a_generations() {
        let within = |text: &str| Membership::parse(text.as_bytes()).unwrap().is_within("/web/gen-7");
        assert!(within("0::/web/gen-7\n"));
        assert!(within("12:pids:/x\n0::/web/gen-7/container\n"));
        for elsewhere in ["0::/\n", "0::/web\n", "0::/web/gen-70\n", "0::/system.slice/web/gen-7\n", "0::\n"] {
            assert!(!within(elsewhere), "{elsewhere}");
        }
        assert_eq!(Membership::parse(b"4:memory:/web/gen-7\n"), None);
        cgroup_of(Pid::this()).unwrap();
    }
}
