//! Counts that do not depend on the machine's mood: instructions and system calls, by ptrace(2).
//!
//! Each instruction is a step, so these are exact where a profiler would guess, and nothing is needed but the kernel.
//! (Debian 12's valgrind knows no pidfd_open(2), without which no container starts.)

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use dunnage_testing::Process;
use dunnage_testing::wait::{self, Deadline};
use nix::libc::{PTRACE_EVENT_EXEC, SIGKILL};
use nix::poll::PollFlags;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, pipe};

use crate::bench::{BOUND, Bench, Shim, pid_from};
use crate::figure::Who;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Instructions,
    SystemCalls,
}

/// After its last event a process is given so long to show that it is done.
const QUIET: Duration = Duration::from_millis(100);

/// Processes that are counted.
struct Counter {
    unit: Unit,
    count: u64,
    traced: BTreeSet<Pid>,
    /// Those between the entry of a system call and its end.
    inside: BTreeSet<Pid>,
}

impl Counter {
    fn new(unit: Unit) -> Self {
        Self { unit, count: 0, traced: BTreeSet::new(), inside: BTreeSet::new() }
    }

    /// Counts what a process did until it stopped, and lets it go on.
    fn handle(&mut self, status: WaitStatus) {
        let (pid, signal) = match status {
            WaitStatus::Stopped(pid, Signal::SIGTRAP) => {
                self.count += 1;
                (pid, None)
            }
            WaitStatus::PtraceSyscall(pid) => {
                if !self.inside.remove(&pid) {
                    self.inside.insert(pid);
                    self.count += 1;
                }
                (pid, None)
            }
            WaitStatus::Stopped(pid, signal) => (pid, Some(signal)),
            WaitStatus::PtraceEvent(pid, _, _) => (pid, None),
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _) => {
                self.traced.remove(&pid);
                return;
            }
            _ => return,
        };
        self.traced.insert(pid);
        self.resume(pid, signal);
    }

    fn resume(&self, pid: Pid, signal: Option<Signal>) {
        // Fails for one that was killed meanwhile, which is told next.
        let _ = match self.unit {
            Unit::Instructions => ptrace::step(pid, signal),
            Unit::SystemCalls => ptrace::syscall(pid, signal),
        };
    }

    /// Lets go of all, each once it stops.
    fn detach(mut self) {
        for pid in &self.traced {
            let _ = ptrace::interrupt(*pid);
        }
        while !self.traced.is_empty() {
            match waitpid(None, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) => {
                    self.traced.remove(&pid);
                }
                // The trap of a step may be on its way still, and would kill who is not traced.
                Ok(WaitStatus::PtraceEvent(pid, _, _)) if self.unit == Unit::Instructions => {
                    self.resume(pid, None);
                }
                Ok(WaitStatus::Stopped(pid, signal)) if signal != Signal::SIGTRAP => {
                    self.resume(pid, Some(signal));
                }
                Ok(status) => {
                    if let Some(pid) = status.pid() {
                        let _ = ptrace::detach(pid, None);
                        self.traced.remove(&pid);
                    }
                }
                Err(_) => return,
            }
        }
    }
}

fn options() -> Options {
    Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_EXITKILL
}

/// What a start takes: the short side, the long side, and the runtime until it is executed, to the pid.
pub(crate) fn start(bench: &Bench, unit: Unit) -> u64 {
    let monitor = bench.monitor(Who::Dunnage, "hang");
    // A shell that becomes the monitor once it is traced.
    let shell: [OsString; 4] = ["/bin/sh".into(), "-c".into(), "read go; exec \"$@\"".into(), "sh".into()];
    let argv: Vec<_> = shell.into_iter().chain(monitor.argv()).collect();
    let (its_go, go) = pipe().expect("a pipe");
    let (sync, its_sync) = pipe().expect("a pipe");
    let mut env = bench.environment("hang");
    env.push(("_OCI_SYNCPIPE".into(), "3".into()));
    let null = File::options().read(true).write(true).open("/dev/null").expect("/dev/null");
    let fds = [(its_go.as_fd(), 0), (null.as_fd(), 1), (null.as_fd(), 2), (its_sync.as_fd(), 3)];
    let root = Pid::from_raw(Process::spawn(&argv, &env, &fds).pid());
    drop(its_sync);
    ptrace::seize(root, options()).expect("ptrace");
    File::from(go).write_all(b"\n").expect("a shell reads");

    let program = fs::canonicalize(bench.program(Who::Dunnage)).expect("dunnage");
    let mut counter = Counter::new(unit);
    let mut begun = false;
    while !is_readable(sync.as_fd()) {
        match waitpid(None, Some(WaitPidFlag::__WALL)).expect("a process to count") {
            WaitStatus::PtraceEvent(pid, _, PTRACE_EVENT_EXEC) if begun => {
                counter.traced.remove(&pid);
                ptrace::detach(pid, None).expect("a runtime");
            }
            status => {
                // The shell's own may be reported as well.
                begun |= matches!(status, WaitStatus::PtraceEvent(pid, _, PTRACE_EVENT_EXEC) if runs(pid, &program));
                if !begun {
                    counter.count = 0;
                }
                counter.handle(status);
            }
        }
    }
    let count = counter.count;
    counter.detach();
    let payload = Process::open(pid_from(&sync)).expect("the container");
    payload.signal(SIGKILL);
    let exit_file = bench.dir.join("exits/container");
    wait::file_exists(&exit_file, Deadline::usual());
    fs::remove_file(exit_file).expect("an exit file");
    count
}

fn runs(pid: Pid, program: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    wait::poll_for(fd, PollFlags::POLLIN, Deadline::after(Duration::ZERO))
}

/// What a running monitor does for one step of its container: from [`Bench::go`] until it rests after the payload's
/// `done`.
pub(crate) fn steps(bench: &Bench, shim: &Shim<'_>, unit: Unit, count: usize) -> Vec<u64> {
    let pid = Pid::from_raw(shim.long.pid());
    ptrace::seize(pid, options()).expect("ptrace");
    ptrace::interrupt(pid).expect("ptrace");
    let mut counter = Counter::new(unit);
    until_quiet(&mut counter, pid, || true);
    let counts = (0..count)
        .map(|_| {
            let before = counter.count;
            bench.go();
            until_quiet(&mut counter, pid, || bench.is_done());
            counter.count - before
        })
        .collect();
    counter.detach();
    counts
}

/// Goes on until `done` was seen and the process sleeps. On a loaded machine it may want to run for long before it does.
fn until_quiet(counter: &mut Counter, pid: Pid, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    let mut seen = false;
    let mut last = begin;
    while !seen || last.elapsed() < QUIET || !sleeps(pid) {
        match waitpid(pid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)).expect("a monitor to count") {
            WaitStatus::StillAlive => {
                if !seen && done() {
                    (seen, last) = (true, Instant::now());
                }
                thread::yield_now();
            }
            status => {
                counter.handle(status);
                last = Instant::now();
            }
        }
        assert!(begin.elapsed() < BOUND, "the monitor does not rest");
    }
}

fn sleeps(pid: Pid) -> bool {
    dunnage_testing::status(Path::new(&format!("/proc/{pid}"))).is_ok_and(|status| status["State"].starts_with('S'))
}
