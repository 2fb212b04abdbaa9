//! What reading the kernel's and the runtimes' files is held to.

use nix::unistd::Pid;

use super::kinship::{Stat, parse_pid_file};
use super::zombies::parse_pids;
use crate::reaper::PidFile;

/// What a runtime wrote into a PID file.
pub(crate) fn pid_file(text: &[u8]) {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\x0c' | b'\r');
    let start = text.iter().position(|byte| !blank(byte));
    let end = text.iter().rposition(|byte| !blank(byte));
    let found = parse_pid_file(text);
    let (Some(start), Some(end)) = (start, end) else { return assert_eq!(found, PidFile::Absent) };
    let number = slow_number(&text[start..=end]).filter(|number| (2..=i64::from(i32::MAX)).contains(number));
    if let Some(number) = number {
        return assert_eq!(found, PidFile::Pid(pid(number)));
    }
    let PidFile::Invalid(shown) = found else { panic!("{found:?}") };
    assert!(shown.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{shown}");
}

/// `/proc/PID/stat`: of any bytes, and of a process with that name as the kernel writes it.
pub(crate) fn proc_stat(bytes: &[u8]) {
    let _ = Stat::parse(bytes);

    let Some(([kind, head @ ..], name)) = bytes.split_first_chunk::<9>() else { return };
    let state = b"RSDZTtXI"[usize::from(kind % 8)];
    let started = u64::from_le_bytes(*head);
    // Any that a parent can have.
    let parent = i32::from(*kind) << 14;
    let mut line = b"7 (".to_vec();
    line.extend_from_slice(name);
    let rest = "7 7 0 -1 4194560 5 0 0 0 1 2 0 0 20 0 1 0";
    line.extend_from_slice(
        format!(") {} {parent} {rest} {started} 1 2 18446744073709551615\n", char::from(state)).as_bytes(),
    );
    let expected = Stat { state, parent: Pid::from_raw(parent), started };
    assert_eq!(Stat::parse(&line), Some(expected), "{}", line.escape_ascii());
}

/// `/proc/PID/task/TID/children`.
pub(crate) fn proc_children(list: &[u8]) {
    // A sign changes nothing.
    let words = list.split(|&byte| byte == b' ').map(|word| word.strip_prefix(b"+").unwrap_or(word));
    let expected = words.filter_map(slow_number).filter(|number| (1..=i64::from(i32::MAX)).contains(number)).map(pid);
    let found: Vec<Pid> = parse_pids(list).collect();
    assert_eq!(found, expected.collect::<Vec<_>>(), "{}", list.escape_ascii());
}

/// Digits alone; what is too large stays so.
fn slow_number(word: &[u8]) -> Option<i64> {
    let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    is_number.then(|| word.iter().fold(0, |sum: i64, digit| (sum * 10 + i64::from(digit - b'0')).min(1 << 40)))
}

fn pid(number: i64) -> Pid {
    Pid::from_raw(i32::try_from(number).expect("it is in bounds"))
}
