//! What is left in a cgroup, for those who have to find out why.

use std::fmt;
use std::fs;
use std::ops::ControlFlow;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::directory::Directory;
use super::node::{Cgroup, parse_pids};

/// How many processes are named.
const MAX: usize = 16;

/// Processes that were in a cgroup, or below it, a moment ago.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The first ones.
    pub processes: Vec<LeftProcess>,
    /// Whether there were more. There can be some of which nobody knows the number here: of another PID namespace.
    pub more: bool,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftProcess {
    /// Its PID; in a threaded cgroup a thread's.
    pub pid: Pid,
    /// Its name (`comm`), empty if it was gone already.
    pub name: String,
}

impl Left {
    pub(super) fn of(cgroup: &Cgroup) -> Self {
        let mut pids = Vec::new();
        cgroup.walk(&mut |directory| {
            if let Ok(text) = members(directory) {
                // One more than is named.
                pids.extend(parse_pids(&text).take(MAX + 1 - pids.len()));
            }
            if pids.len() > MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let more = pids.len() > MAX || pids.is_empty();
        let processes = pids.into_iter().take(MAX).map(|pid| LeftProcess { pid, name: name_of(pid) }).collect();
        Self { processes, more }
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.processes.is_empty() {
            return f.write_str("processes that are not visible here, or cgroups below it");
        }
        f.write_str(if self.processes.len() == 1 && !self.more { "process " } else { "processes " })?;
        for (position, process) in self.processes.iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{} ({})", process.pid, process.name.escape_debug())?;
        }
        f.write_str(if self.more { " and more" } else { "" })
    }
}

/// A threaded cgroup has no list of processes (EOPNOTSUPP), but one of threads.
fn members(directory: &Directory) -> std::io::Result<String> {
    match directory.read("cgroup.procs") {
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => directory.read("cgroup.threads"),
        result => result,
    }
}

fn name_of(pid: Pid) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_one_line() {
        let process = |pid, name: &str| LeftProcess { pid: Pid::from_raw(pid), name: name.into() };
        let left = |processes, more| Left { processes, more }.to_string();
        assert_eq!(left(vec![process(7, "a")], false), "process 7 (a)");
        assert_eq!(left(vec![process(7, "a"), process(8, "b\nc")], true), "processes 7 (a), 8 (b\\nc) and more");
        assert_eq!(left(vec![], true), "processes that are not visible here, or cgroups below it");
    }
}
