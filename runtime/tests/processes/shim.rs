//! A shim of the tests' own: the driver, a loop around it, and nothing else.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dunnage_runtime::driver::{Broadcasted, Driver, RuntimeCall, StartError, Watched};
use dunnage_runtime::event_loop::{EventLoop, Events, Interest, Source};
use dunnage_runtime::reaper::{CallId, CallSpec, ChildId, ExitStatus, Job, Outcome, Timing};
use dunnage_runtime::sys::{Environment, Program, Signals, Ties};
use dunnage_testing::wait;
use mio::Token;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// Time of a usual machine, of which a slow one needs more.
pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds) * wait::slowness()
}

/// How long anything may take that is waited for.
pub(crate) fn patience() -> Duration {
    ms(30_000)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Signals,
    Process(Watched),
}

impl Source for Name {
    fn into_token(self) -> Token {
        match self {
            Self::Signals => Token(0),
            Self::Process(Watched(number)) => Token(number as usize + 1),
        }
    }

    fn from_token(Token(token): Token) -> Self {
        match u32::try_from(token) {
            Ok(number @ 1..) => Self::Process(Watched(number - 1)),
            _ => Self::Signals,
        }
    }
}

impl From<Watched> for Name {
    fn from(watched: Watched) -> Self {
        Self::Process(watched)
    }
}

pub(crate) struct Shim {
    pub(crate) driver: Driver,
    pub(crate) event_loop: EventLoop<Name>,
    signals: Signals,
    null: File,
    dir: PathBuf,
    calls: u32,
    /// What there was to tell more in one round.
    untold: VecDeque<Outcome>,
    /// The longest that one round ran to see to its events; what else the machine does is not its fault.
    pub(crate) longest_round: Duration,
}

pub(crate) const CREATE: CallSpec = CallSpec { job: Job::Create, main: true, terminal: false, timeout: None };
pub(crate) const EXEC: CallSpec = CallSpec { job: Job::Exec, main: false, ..CREATE };

/// Bounds short enough to wait for.
pub(crate) fn short() -> Timing {
    Timing { orphan_grace: ms(200), runtime_grace: ms(600), ..Timing::default() }
}

impl Shim {
    pub(crate) fn new(timing: Timing) -> Self {
        nix::sys::prctl::set_child_subreaper(true).unwrap();
        let event_loop = EventLoop::new().unwrap();
        let signals = Signals::catch(&[Signal::SIGCHLD, Signal::SIGTERM]).unwrap();
        event_loop.watch(&signals, Name::Signals, Interest::READABLE).unwrap();
        // PIDs are the same in all these namespaces; the namespace's number is not.
        let namespace = fs::metadata("/proc/self/ns/pid").unwrap().ino();
        let dir = std::env::temp_dir().join(format!("dunnage-rule-{namespace}"));
        fs::create_dir_all(&dir).unwrap();
        Self {
            driver: Driver::new(timing),
            event_loop,
            signals,
            null: File::options().read(true).write(true).open("/dev/null").unwrap(),
            dir,
            calls: 0,
            untold: VecDeque::new(),
            longest_round: Duration::ZERO,
        }
    }

    /// A path of the test's own.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Starts this shell script as a runtime. `$F` is its PID file, `$D` the test's directory.
    pub(crate) fn call(&mut self, spec: CallSpec, script: &str) -> CallId {
        self.try_call(spec, script).unwrap()
    }

    pub(crate) fn try_call(&mut self, spec: CallSpec, script: &str) -> Result<CallId, StartError> {
        self.calls += 1;
        let pid_file = self.path(&format!("pid-{}", self.calls));
        let script = format!("F={}; D={}; {script}", pid_file.display(), self.dir.display());
        let program = Program {
            path: OsStr::new("/bin/sh"),
            args: vec!["-c".into(), script.into()],
            stdio: [self.null.as_fd(); 3],
            ties: Ties::OwnGroupDiesWithParent,
            mask: self.signals.original_mask(),
            oom_score_adj: None,
            environment: Environment::Inherited,
        };
        let call = self.driver.start_call(&self.event_loop, Instant::now(), RuntimeCall { program, pid_file, spec })?;
        // Nothing of these runtimes' output is waited for.
        self.driver.handle_output_closed(&self.event_loop, Instant::now(), call);
        Ok(call)
    }

    /// One round of the loop; returns what is to be told.
    fn round(&mut self, until: Instant) -> Vec<Outcome> {
        let mut events = Events::with_capacity(32);
        let wake = self.driver.next_timeout().map_or(until, |at| at.min(until));
        self.event_loop.wait(&mut events, Some(wake)).unwrap();
        let (now, began) = (Instant::now(), time_on_cpu());
        let mut signalled = false;
        for event in events.iter::<Name>() {
            match event.source {
                Name::Signals => signalled = true,
                Name::Process(watched) => self.driver.handle_exit(&self.event_loop, now, watched),
            }
        }
        if signalled {
            for signal in self.signals.pending().collect::<Vec<_>>() {
                match signal {
                    Signal::SIGCHLD => self.driver.handle_sigchld(&self.event_loop, now),
                    other => self.driver.handle_termination(&self.event_loop, now, other),
                }
            }
        }
        if self.driver.next_timeout().is_some_and(|at| at <= now) {
            self.driver.handle_timeout(&self.event_loop, now);
        }
        self.longest_round = self.longest_round.max(time_on_cpu().saturating_sub(began));
        std::iter::from_fn(|| self.driver.poll_outcome()).collect()
    }

    /// What there is to tell after one round.
    pub(crate) fn outcomes(&mut self) -> Vec<Outcome> {
        let mut outcomes = Vec::from(std::mem::take(&mut self.untold));
        outcomes.extend(self.round(Instant::now() + patience()));
        outcomes
    }

    /// Runs the loop until there is something to tell.
    pub(crate) fn next(&mut self) -> Outcome {
        let until = Instant::now() + patience();
        while self.untold.is_empty() && Instant::now() < until {
            let outcomes = self.round(until);
            self.untold.extend(outcomes);
        }
        if let Some(outcome) = self.untold.pop_front() {
            return outcome;
        }
        panic!("nothing to tell within {:?}", patience());
    }

    /// Runs the loop until `done`, with nothing to tell meanwhile.
    pub(crate) fn run_until(&mut self, what: &str, done: impl Fn() -> bool) {
        let until = Instant::now() + patience();
        while !done() {
            assert!(Instant::now() < until, "{what}: not within {:?}", patience());
            // What is waited for may be nothing that the loop hears of.
            let outcomes = self.round(Instant::now() + Duration::from_millis(5));
            assert!(outcomes.is_empty(), "{what}: {outcomes:?}");
        }
    }

    /// Goes on until there is nothing left to wait for but events.
    pub(crate) fn run_to_rest(&mut self) {
        let until = Instant::now() + patience();
        while self.driver.next_timeout().is_some() {
            assert!(Instant::now() < until, "a timer is still set after {:?}", patience());
            let outcomes = self.round(until);
            assert!(outcomes.is_empty(), "{outcomes:?}");
        }
    }

    /// A call that goes well.
    pub(crate) fn started(&mut self, spec: CallSpec, script: &str) -> (ChildId, Pid) {
        let call = self.call(spec, script);
        match self.next() {
            Outcome::Started { call: started, child, pid } if started == call => (child, pid),
            other => panic!("not started: {other:?}"),
        }
    }

    pub(crate) fn exited(&mut self, child: ChildId) -> ExitStatus {
        match self.next() {
            Outcome::Exited { child: exited, status } if exited == child => status,
            other => panic!("not exited: {other:?}"),
        }
    }

    /// Sends a signal to all processes of the child, and runs the loop until that was done.
    pub(crate) fn signal_all(&mut self, child: ChildId, signal: Signal) {
        let id = self.driver.signal_all(Instant::now(), child, signal).unwrap();
        let until = Instant::now() + patience();
        while self.driver.poll_broadcast() != Some(Broadcasted { id, reached: true }) {
            assert!(Instant::now() < until, "{signal} is not sent within {:?}", patience());
            let outcomes = self.round(until);
            self.untold.extend(outcomes);
        }
    }

    pub(crate) fn shutdown(&mut self, within: Duration) {
        self.driver.handle_shutdown(&self.event_loop, Instant::now(), within).unwrap();
    }

    /// What the script wrote to this file of the test's directory, as a PID.
    pub(crate) fn pid_in(&self, name: &str) -> Pid {
        let text = fs::read_to_string(self.path(name)).unwrap();
        Pid::from_raw(text.trim().parse().unwrap())
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The state of a process as proc_pid_stat(5) has it; none if it is gone.
pub(crate) fn state_of(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 2..].chars().next()
}

/// How long this thread has run so far (`/proc/PID/schedstat`).
pub(crate) fn time_on_cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// All children of this process that are zombies.
pub(crate) fn zombies() -> usize {
    let list = fs::read_to_string("/proc/thread-self/children").unwrap();
    list.split_whitespace().filter(|pid| state_of(Pid::from_raw(pid.parse().unwrap())) == Some('Z')).count()
}
