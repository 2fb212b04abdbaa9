//! What a reported PID is to this process (R9, R10).

use std::fs;

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

fn is_descendant(pid: Pid) -> bool {
    let mut pid = pid;
    for _ in 0..MAX_DEPTH {
        match parent_of(pid) {
            Some(parent) if parent == Pid::this() => return true,
            Some(parent) if parent.as_raw() > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

fn parent_of(pid: Pid) -> Option<Pid> {
    parse_parent(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The fourth field of proc_pid_stat(5). The second is the name in parentheses, which may hold anything.
fn parse_parent(stat: &[u8]) -> Option<Pid> {
    let end_of_name = memchr::memrchr(b')', stat)?;
    let mut fields = stat[end_of_name + 1..].split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let _state = fields.next()?;
    let parent = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    Some(Pid::from_raw(parent))
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
    fn parent_behind_a_hostile_name() {
        assert_eq!(parse_parent(b"7 (a) S 99 (b)) R 42 7 7 0"), Some(Pid::from_raw(42)));
        assert_eq!(parse_parent(b"7 (sh) S 1 7"), Some(Pid::from_raw(1)));
        for broken in [&b""[..], b"7 (sh", b"7 (sh)", b"7 (sh) S", b"7 (sh) S x"] {
            assert_eq!(parse_parent(broken), None);
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
