//! Children that have exited, looked at without reaping (R1).

use std::fs;
use std::io;

use nix::unistd::Pid;

use crate::sys::{is_zombie, reap_zombie};

/// The children of the shim's one thread (proc_pid_task(5), `CONFIG_PROC_CHILDREN`), zombies among them.
const CHILDREN: &str = "/proc/thread-self/children";

/// The children that are zombies.
pub(super) fn list() -> io::Result<Vec<Pid>> {
    Ok(parse_pids(&fs::read(CHILDREN)?).filter(|&pid| is_zombie(pid)).collect())
}

/// The PIDs in a `children` file.
pub(super) fn parse_pids(list: &[u8]) -> impl Iterator<Item = Pid> + '_ {
    list.split(|&byte| byte == b' ').filter_map(|word| {
        let pid = std::str::from_utf8(word).ok()?.parse().ok()?;
        // One that is none would stand for many to those who are told it.
        (pid > 0).then(|| Pid::from_raw(pid))
    })
}

/// Reaps the zombie `pid`. Describes it: its PID, name and status.
pub(super) fn reap(pid: Pid) -> io::Result<String> {
    let name = if log::log_enabled!(log::Level::Info) { name_of(pid) } else { String::new() };
    match reap_zombie(pid)? {
        Some(status) => Ok(format!("process {pid} ({name}) {status}")),
        None => Err(io::Error::other("it is no zombie")),
    }
}

fn name_of(pid: Pid) -> String {
    fs::read(format!("/proc/{pid}/comm"))
        .map(|name| name.trim_ascii_end().escape_ascii().to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_pid_is_no_child() {
        let pids: Vec<i32> = parse_pids(b"12 -5 0 x 99999999999  7 ").map(Pid::as_raw).collect();
        assert_eq!(pids, [12, 7]);
    }
}
