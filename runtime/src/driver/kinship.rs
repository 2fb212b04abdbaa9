//! What a reported PID is to this process (R9, R10).

use std::fs;
use std::iter;

use nix::unistd::Pid;

use crate::reaper::{Kinship, PidFile};
use crate::sys::Pidfd;

/// How many parents are followed upwards: more than any runtime nests.
const MAX_DEPTH: usize = 64;

/// What the text of a PID file says: a decimal number above 1, blanks around it allowed.
pub(super) fn parse_pid_file(text: &[u8]) -> PidFile {
    let trimmed = text.trim_ascii();
    if trimmed.is_empty() {
        return PidFile::Absent;
    }
    let number = std::str::from_utf8(trimmed)
        .ok()
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|digits| digits.parse::<i32>().ok());
    match number {
        Some(pid) if pid > 1 => PidFile::Pid(Pid::from_raw(pid)),
        _ => PidFile::Invalid(format!("\"{}\"", trimmed.escape_ascii())),
    }
}

/// What the process behind `pidfd`, which had `pid` when that was opened, is to this one.
pub(super) fn examine(pid: Pid, pidfd: &Pidfd) -> Kinship {
    if pidfd.is_child().unwrap_or(false) {
        return Kinship::Child;
    }
    // That the process was there before and after says that the PID was its own when its parents were looked up.
    if is_descendant(pid) && pidfd.is_unreaped() { Kinship::Descendant } else { Kinship::None }
}

/// Whether the parents of `pid` lead to this process.
pub(super) fn is_descendant(pid: Pid) -> bool {
    ancestors(pid).any(|ancestor| ancestor == Pid::this())
}

/// The parents of `pid`, from its own on upwards.
pub(super) fn ancestors(pid: Pid) -> impl Iterator<Item = Pid> {
    let up = |pid: &Pid| parent_of(*pid).filter(|parent| parent.as_raw() > 0);
    iter::successors(Some(pid), up).skip(1).take(MAX_DEPTH)
}

fn parent_of(pid: Pid) -> Option<Pid> {
    Some(Stat::of(pid)?.parent)
}

/// What proc_pid_stat(5) says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// `R` runs, `T` is stopped, `Z` is a zombie, ...
    pub(super) state: u8,
    pub(super) parent: Pid,
    /// When it was started, in clock ticks since boot: with the PID, which process it is.
    pub(super) started: u64,
}

impl Stat {
    pub(super) fn of(pid: Pid) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The second field is the name in parentheses, which may hold anything.
    pub(super) fn parse(stat: &[u8]) -> Option<Self> {
        let end_of_name = memchr::memrchr(b')', stat)?;
        let mut fields = stat[end_of_name + 1..].split(|&byte| byte == b' ').filter(|field| !field.is_empty());
        let state = *fields.next()?.first()?;
        let parent = Pid::from_raw(std::str::from_utf8(fields.next()?).ok()?.parse().ok()?);
        // The 22nd of all.
        let started = std::str::from_utf8(fields.nth(17)?).ok()?.parse().ok()?;
        Some(Self { state, parent, started })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r10_a_pid_file_holds_a_number_above_1() {
        assert_eq!(parse_pid_file(b"4711"), PidFile::Pid(Pid::from_raw(4711)));
        assert_eq!(parse_pid_file(b" 4711\n"), PidFile::Pid(Pid::from_raw(4711)));
        for absent in ["", "\n", "  "] {
            assert_eq!(parse_pid_file(absent.as_bytes()), PidFile::Absent, "{absent:?}");
        }
        for invalid in ["1", "0", "-5", "+5", "12x", "1 2", "99999999999", "\u{ff}"] {
            assert!(matches!(parse_pid_file(invalid.as_bytes()), PidFile::Invalid(_)), "{invalid:?}");
        }
    }

    #[test]
    fn stat_behind_a_hostile_name() {
        let rest = "42 7 7 0 -1 4194560 5 0 0 0 1 2 0 0 20 0 1 0 8899 1 2";
        let stat = Stat { state: b'R', parent: Pid::from_raw(42), started: 8899 };
        assert_eq!(Stat::parse(format!("7 (a) S 99 (b)) R {rest}").as_bytes()), Some(stat));
        for broken in ["", "7 (sh", "7 (sh)", "7 (sh) S", "7 (sh) S x", "7 (sh) S 1 7"] {
            assert_eq!(Stat::parse(broken.as_bytes()), None);
        }
    }

    #[test]
    fn r10_kinship_of_a_child_and_of_strangers() {
        let mut child = std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let pidfd = Pidfd::open(pid).unwrap();
        assert_eq!(examine(pid, &pidfd), Kinship::Child);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(examine(pid, &pidfd), Kinship::None);
        let init = Pid::from_raw(1);
        assert_eq!(examine(init, &Pidfd::open(init).unwrap()), Kinship::None);
    }
}
