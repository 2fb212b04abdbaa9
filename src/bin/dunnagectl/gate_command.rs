//! A command that says at a start's gates whether it may go on.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

use dunnage_runtime::sys::Pidfd;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use crate::client::{Connection, Incoming};
use crate::error::{Context, Failure, Result, failure, one_line};

/// The longest reason that a monitor takes.
const MAX_REASON: usize = 4096;

/// What the command has decided.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Proceed,
    Refuse(String),
}

/// Runs `sh -c command` for this gate: its status 0 lets the start go on, and otherwise what it wrote to stderr is why
/// not. It is killed when the start is over before it has decided.
pub(crate) fn ask(command: &str, gate: &Value, start: &mut Connection) -> Result<Verdict> {
    let what = || format!("cannot run the gate command {command:?}");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).process_group(0);
    for (name, field) in
        [("DUNNAGE_GATE_TOKEN", "token"), ("DUNNAGE_GATE_POINT", "point"), ("DUNNAGE_GATE_BUILD", "build")]
    {
        shell.env(name, gate[field].as_str().unwrap_or_default());
    }
    // Our stdout is for what the monitor answers.
    let output = io::stderr().as_fd().try_clone_to_owned().context(what)?;
    shell.stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
    let running = Running(shell.spawn().context(what)?);
    running.decide(start)
}

/// The command's process, which leads a group. Killed with it if it is dropped before its end.
struct Running(Child);

impl Running {
    fn decide(mut self, start: &mut Connection) -> Result<Verdict> {
        let what = || "cannot wait for the gate command";
        let pid = i32::try_from(self.0.id()).context(what)?;
        let process = Pidfd::open(Pid::from_raw(pid)).context(what)?;
        let Some(mut stderr) = self.0.stderr.take() else { return failure(what()) };
        fcntl(&stderr, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).context(what)?;
        let mut said = Vec::new();
        let mut more = true;
        while !process.has_exited() {
            let mut fds =
                vec![PollFd::new(process.as_fd(), PollFlags::POLLIN), PollFd::new(start.as_fd(), PollFlags::POLLIN)];
            if more {
                fds.push(PollFd::new(stderr.as_fd(), PollFlags::POLLIN));
            }
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return failure(format_args!("{}: {}", what(), error.desc())),
            }
            more = more && take(&mut stderr, &mut said);
            match start.next()? {
                Incoming::Nothing => {}
                Incoming::End => return Err(start.gone()),
                Incoming::Answer(answer) => {
                    return Err(Failure::Told(one_line(&format!("the gate was not waited for: {answer}"))));
                }
            }
        }
        take(&mut stderr, &mut said);
        Ok(verdict(self.0.wait().context(what)?, &said))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Not reaped yet, so that its number is its own; otherwise there is no group to be killed any more.
        if let (Ok(None), Ok(pid)) = (self.0.try_wait(), i32::try_from(self.0.id())) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
            let _ = self.0.wait();
        }
    }
}

/// Takes what there is, as much as one turn takes, and keeps what can be a reason. Whether more may come.
fn take(stderr: &mut ChildStderr, said: &mut Vec<u8>) -> bool {
    let mut bytes = [0; 4096];
    for _ in 0..16 {
        match stderr.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => said.extend(bytes[..count].iter().take(MAX_REASON - said.len().min(MAX_REASON))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}

fn verdict(status: ExitStatus, said: &[u8]) -> Verdict {
    if status.success() {
        return Verdict::Proceed;
    }
    let text = String::from_utf8_lossy(said);
    let mut reason = text.trim().replace('\0', "");
    while reason.len() > MAX_REASON {
        reason.pop();
    }
    if reason.is_empty() {
        reason = format!("the gate command refused, without a word: {status}");
    }
    Verdict::Refuse(reason)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn what_a_command_says_is_the_reason() {
        let status = |code: i32| ExitStatus::from_raw(code << 8);
        assert_eq!(verdict(status(0), b"a warning"), Verdict::Proceed);
        assert_eq!(verdict(status(1), b" the lease is lost\n"), Verdict::Refuse("the lease is lost".to_owned()));
        let Verdict::Refuse(reason) = verdict(status(3), b"\n") else { panic!("refused") };
        assert!(reason.contains("exit status: 3"), "{reason}");
        let long = [0xff; MAX_REASON];
        assert!(matches!(verdict(status(1), &long), Verdict::Refuse(reason) if reason.len() <= MAX_REASON));
    }
}
