//! Work that may wait for disk, done by a short-lived process of its own, so that the loop never does (R22).

use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::{fmt, mem, process};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::{ForkResult, Pid, fork};

use super::child;
use super::pidfd::Pidfd;
use super::socket::receive_fds;
use super::spawn::Spawned;
use crate::privileges;

/// The longest answer. A task that says more has failed.
const MAX_ANSWER: usize = 4 << 20;

/// What a task found out.
#[derive(Debug, Default)]
pub struct Answer {
    /// Text or whatever else the two sides agree on, at most 4 MiB.
    pub bytes: Vec<u8>,
    /// What it opened, at most four.
    pub fds: Vec<OwnedFd>,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum TaskError {
    /// The task says so itself.
    Failed(String),
    /// It ended without a word: it was killed, or panicked.
    Died,
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(reason) => f.write_str(reason),
            Self::Died => f.write_str("the process that was to do it died"),
        }
    }
}

impl std::error::Error for TaskError {}

/// A running task, seen from its owner. Readable when [`Task::advance`] may have something to tell; killed when dropped.
#[derive(Debug)]
pub struct Task {
    pidfd: Pidfd,
    answers: UnixStream,
    received: Answer,
}

impl Task {
    /// Starts `work` in a fork of this process, which dies with it. Returns the owner's side, and the process for
    /// whoever reaps children.
    ///
    /// Of this process's descriptors the task has the standard streams and `kept` alone, so that it holds open nothing
    /// that is closed here. It must not log: where to may be among the others.
    pub fn start(
        kept: &[BorrowedFd<'_>],
        work: impl FnOnce() -> Result<Answer, String>,
    ) -> io::Result<(Self, Spawned)> {
        let (answers, theirs) = UnixStream::pair()?;
        answers.set_nonblocking(true)?;
        let parent = Pid::this();
        // What it opens may be another user's. The task keeps them.
        let _raised = privileges::raise();
        // SAFETY: the child has what this thread has, and libc's fork sees to the allocator's locks. It runs `work` and
        // ends without returning.
        let pid = match unsafe { fork()? } {
            ForkResult::Child => run(&theirs, kept, parent, work),
            ForkResult::Parent { child } => child,
        };
        // Not reaped yet, so the PID is its own.
        let open = || Ok((Pidfd::open(pid)?, Pidfd::open(pid)?));
        match open() {
            Ok((pidfd, for_reaper)) => {
                let task = Self { pidfd, answers, received: Answer::default() };
                Ok((task, Spawned { pid, pidfd: for_reaper }))
            }
            Err(error) => {
                let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
                let _ = nix::sys::wait::waitpid(pid, None);
                Err(error)
            }
        }
    }

    /// Takes what has come. The answer once it is whole; to be called again whenever this is readable until then.
    pub fn advance(&mut self) -> Option<Result<Answer, TaskError>> {
        let mut piece = vec![0; 64 << 10];
        loop {
            match receive_fds(&self.answers, &mut piece) {
                Ok((0, _)) => return Some(finish(mem::take(&mut self.received))),
                Ok((length, fds)) => {
                    self.received.fds.extend(fds);
                    self.received.bytes.extend_from_slice(&piece[..length]);
                    if self.received.bytes.len() > HEADER + MAX_ANSWER {
                        return Some(Err(TaskError::Died));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => return Some(Err(TaskError::Died)),
            }
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // Gone already, in most cases.
        let _ = self.pidfd.signal(Signal::SIGKILL);
    }
}

impl AsFd for Task {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.answers.as_fd()
    }
}

/// Before the answer: whether it is one or a reason, and its length, so that one cut short is not taken for whole.
const HEADER: usize = 1 + size_of::<u32>();

fn finish(received: Answer) -> Result<Answer, TaskError> {
    let Answer { mut bytes, fds } = received;
    let Some((&[kind, a, b, c, d], body)) = bytes.split_first_chunk() else { return Err(TaskError::Died) };
    if usize::try_from(u32::from_ne_bytes([a, b, c, d])) != Ok(body.len()) {
        return Err(TaskError::Died);
    }
    if kind != 0 {
        return Err(TaskError::Failed(String::from_utf8_lossy(body).into_owned()));
    }
    bytes.drain(..HEADER);
    Ok(Answer { bytes, fds })
}

/// The task's whole life.
fn run(answers: &UnixStream, kept: &[BorrowedFd<'_>], parent: Pid, work: impl FnOnce() -> Result<Answer, String>) -> ! {
    // Whatever happens, the child goes no further in its parent's code.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            process::abort();
        }
    }
    let _end = End;
    child::reset_signals();
    child::set_mask(&SigSet::empty());
    // SAFETY: takes integers; the parent may have ended just before.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } == 0 && Pid::parent() == parent {
        close_all_but(kept.iter().map(AsRawFd::as_raw_fd).chain([answers.as_raw_fd()]).collect());
        // Nobody is left to be told if that fails.
        let _ = send(answers, work());
    }
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(0) }
}

fn send(answers: &UnixStream, answer: Result<Answer, String>) -> io::Result<()> {
    let (kind, Answer { bytes, fds }) = match answer {
        Ok(answer) => (0, answer),
        Err(reason) => (1, Answer { bytes: reason.into_bytes(), fds: Vec::new() }),
    };
    let mut header = vec![kind];
    header.extend(u32::try_from(bytes.len()).map_err(|_| Errno::E2BIG)?.to_ne_bytes());
    let fds: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights };
    // A header this short is sent whole.
    sendmsg::<()>(answers.as_raw_fd(), &[IoSlice::new(&header)], rights, MsgFlags::MSG_NOSIGNAL, None)?;
    let mut answers = answers;
    answers.write_all(&bytes)
}

/// Closes what the fork copied, but for the standard streams. Best effort: what stays open is closed at the task's end.
fn close_all_but(mut kept: Vec<RawFd>) {
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept {
        close_range(first, fd - 1);
        first = first.max(fd + 1);
    }
    close_range(first, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: takes integers. The owners of these descriptors are values in the parent's memory: the child drops
        // none of its copies.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Read;
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;
    use crate::reaper::ExitStatus;

    fn wait_for(fd: &impl AsFd) {
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(30_000u16)), Ok(1), "nothing happened in 30 s");
    }

    fn answer(task: &mut Task) -> Result<Answer, TaskError> {
        loop {
            if let Some(result) = task.advance() {
                return result;
            }
            wait_for(task);
        }
    }

    fn reap(spawned: &Spawned) -> ExitStatus {
        wait_for(&spawned.pidfd);
        spawned.pidfd.try_reap().unwrap().unwrap()
    }

    #[test]
    fn an_answer_has_bytes_and_descriptors() {
        for length in [0, 1, 300_000, MAX_ANSWER] {
            let (mut task, spawned) = Task::start(&[], || {
                let file = File::open("/proc/self/status").map_err(|error| error.to_string())?;
                Ok(Answer { bytes: vec![7; length], fds: vec![file.into()] })
            })
            .unwrap();
            let Answer { bytes, mut fds } = answer(&mut task).unwrap();
            assert!(bytes.len() == length && bytes.iter().all(|&byte| byte == 7));
            let mut text = String::new();
            File::from(fds.pop().unwrap()).read_to_string(&mut text).unwrap();
            assert!(fds.is_empty() && text.starts_with("Name:"), "{text}");
            assert_eq!(reap(&spawned), ExitStatus::Code(0));
        }
    }

    #[test]
    fn failure_death_and_too_much_are_told_apart() {
        let result = |work: fn() -> Result<Answer, String>| {
            let (mut task, spawned) = Task::start(&[], work).unwrap();
            let result = answer(&mut task).map(|answer| answer.bytes.len());
            drop(task);
            reap(&spawned);
            result
        };
        assert_eq!(result(|| Err("no disk".into())), Err(TaskError::Failed("no disk".into())));
        assert_eq!(result(|| process::abort()), Err(TaskError::Died));
        assert_eq!(result(|| Ok(Answer { bytes: vec![0; MAX_ANSWER + 1], fds: Vec::new() })), Err(TaskError::Died));
    }

    #[test]
    fn an_answer_cut_short_is_none() {
        let whole = Answer { bytes: [&[0][..], &3_u32.to_ne_bytes(), b"abc"].concat(), fds: Vec::new() };
        for length in 0..whole.bytes.len() {
            let cut = Answer { bytes: whole.bytes[..length].to_vec(), fds: Vec::new() };
            assert_eq!(finish(cut).unwrap_err(), TaskError::Died, "{length}");
        }
        assert_eq!(finish(whole).unwrap().bytes, b"abc");
    }

    #[test]
    fn r22_a_task_ends_with_its_owner() {
        let (task, spawned) = Task::start(&[], || {
            std::thread::sleep(Duration::from_secs(600));
            Ok(Answer::default())
        })
        .unwrap();
        drop(task);
        assert_eq!(reap(&spawned), ExitStatus::Signal(libc::SIGKILL));
    }

    #[test]
    fn a_task_holds_nothing_open_but_what_it_is_given() {
        let kept = File::open("/dev/null").unwrap();
        let _other = File::open("/dev/null").unwrap();
        let (mut task, spawned) = Task::start(&[kept.as_fd()], || {
            let entries = fs::read_dir("/proc/self/fd").map_err(|error| error.to_string())?;
            let mut numbers: Vec<RawFd> =
                entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
            numbers.sort_unstable();
            // Its answers' socket, and the directory that is being read.
            Ok(Answer { bytes: format!("{} {numbers:?}", numbers.len()).into_bytes(), fds: Vec::new() })
        })
        .unwrap();
        let text = String::from_utf8(answer(&mut task).unwrap().bytes).unwrap();
        assert!(text.starts_with("6 [0, 1, 2, ") && text.contains(&format!(" {}", kept.as_raw_fd())), "{text}");
        reap(&spawned);
    }
}
