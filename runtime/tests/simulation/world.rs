//! Plays one history: the kernel, what goes on in it, and the shim's loop around the reaper. It does with the reaper's
//! actions what the driver does with them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::checks::Checks;
use super::history::{CallPlan, History, Place, Text, What};
use super::kernel::{Event, Kernel, Plan, SHIM, State, Time, Uid};
use super::random::mix;
use super::reaper::{
    Action, CallId, CallSpec, ChildId, ExitStatus, Job, Kinship, Outcome, PidFile, Reaper, Timeout, Walk,
};
use super::search::Fault;

/// How many processes of a tree one slice sees to.
const TREE_SLICE: usize = 4;

/// What a watched process is to the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Runtime(usize),
    Leftover(usize),
    Child(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    pub(super) role: Role,
    pub(super) uid: Uid,
    since: Time,
    /// What of its end was seen to: that it exited, that it was reaped.
    seen: (bool, bool),
}

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a thing that the checks ask")]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) plan: CallPlan,
    pub(super) runtime: Uid,
    /// The process it really started.
    pub(super) process: Option<Uid>,
    pub(super) started: Time,
    pub(super) deadline: Time,
    pub(super) file: String,
    /// Whether the file holds the PID of `process`.
    pub(super) file_is_true: bool,
    /// All PIDs that the file ever named.
    pub(super) named: BTreeSet<i32>,
    pub(super) last_read: PidFile,
    pub(super) last_read_is_true: bool,
    pub(super) examined: Option<(Uid, Kinship)>,
    /// Its process did not die in time.
    pub(super) abandoned: bool,
    /// What was examined was not below the shim then.
    pub(super) refused: bool,
    /// The PIDs that the sweep reaped while the call was in progress.
    pub(super) swept: BTreeSet<i32>,
    pub(super) runtime_status: Option<ExitStatus>,
    /// When that was seen.
    pub(super) runtime_seen: Option<Time>,
    pub(super) connected: Option<Time>,
    pub(super) ended: Option<Time>,
    output_told: bool,
}

#[derive(Debug)]
pub(super) struct Child {
    pub(super) id: ChildId,
    pub(super) uid: Uid,
    /// None: a helper.
    pub(super) call: Option<usize>,
    pub(super) registered: Time,
    /// When its timeout is over, or nobody wanted it any more.
    pub(super) deadline: Option<Time>,
    pub(super) over: bool,
    pub(super) signals: Vec<i32>,
    /// What was below it when its time was over.
    pub(super) below: Vec<Uid>,
    pub(super) expired: Time,
    /// Whether it was still there when that began to be killed.
    pub(super) killed_alive: Option<bool>,
    /// What of that was stopped.
    pub(super) tree: Option<Vec<Uid>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Shutdown {
    pub(super) began: Time,
    pub(super) ends: Time,
    pub(super) stop_at: Time,
    pub(super) kill_at: Time,
}

#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) history: &'a History,
    pub(super) kernel: Kernel,
    pub(super) reaper: Reaper,
    epoch: Instant,
    pub(super) watches: Vec<Watch>,
    pub(super) calls: Vec<Call>,
    pub(super) children: Vec<Child>,
    pub(super) shutdown: Option<Shutdown>,
    /// What did not die for its call.
    pub(super) abandoned: Vec<Uid>,
    /// The shim has ended.
    pub(super) ended: bool,
    stalled_until: Time,
    /// Whom somebody else killed, and when last.
    pub(super) killed: BTreeMap<Uid, Time>,
    /// When the loop was held up: from and until.
    pub(super) stalls: Vec<(Time, Time)>,
    /// For whom the shim reaped a process.
    pub(super) reaped_for: BTreeMap<Uid, Role>,
    pub(super) checks: Checks,
    /// What happened, for a failure's report.
    pub(super) trace: Option<Vec<String>>,
}

/// Plays `history` to its end, and says what it found wrong.
pub(super) fn play(history: &History) -> Result<(), Fault> {
    World::new(history, false).run()
}

/// Plays it again and returns what happened, one line each.
pub(super) fn trace(history: &History) -> Vec<String> {
    let mut world = World::new(history, true);
    let fault = world.run().err();
    let mut trace = world.trace.take().unwrap_or_default();
    trace.extend(fault);
    trace
}

impl<'a> World<'a> {
    fn new(history: &'a History, traced: bool) -> Self {
        Self {
            history,
            kernel: Kernel::new(history.pid_max),
            reaper: Reaper::new(history.bounds.timing()),
            epoch: Instant::now(),
            watches: Vec::new(),
            calls: Vec::new(),
            children: Vec::new(),
            shutdown: None,
            abandoned: Vec::new(),
            ended: false,
            stalled_until: 0,
            killed: BTreeMap::new(),
            stalls: Vec::new(),
            reaped_for: BTreeMap::new(),
            checks: Checks::default(),
            trace: traced.then(Vec::new),
        }
    }

    fn run(&mut self) -> Result<(), Fault> {
        let mut steps = self.history.steps.iter().peekable();
        let mut waiting: Vec<&What> = Vec::new();
        let mut rounds_now = 0;
        let mut rounds = 0;
        while !self.ended {
            let mut next = [self.kernel.next_event(), steps.peek().map(|step| step.at)].into_iter().flatten().min();
            if let Some(wake) = self.next_wake() {
                next = Some(next.map_or(wake, |next| next.min(wake)));
            }
            if !waiting.is_empty() {
                next = Some(next.map_or(self.stalled_until, |next| next.min(self.stalled_until)));
            }
            let Some(next) = next else { break };
            rounds_now = if next > self.kernel.now { 0 } else { rounds_now + 1 };
            rounds += 1;
            if rounds_now > 1_000 || rounds > 20_000 {
                return Err("R7: the loop does not come to rest".into());
            }
            self.kernel.now = self.kernel.now.max(next);
            while self.kernel.is_due() {
                if let Some((_, number)) = self.kernel.step() {
                    self.planned(number)?;
                }
            }
            while let Some(step) = steps.next_if(|step| step.at <= self.kernel.now) {
                waiting.push(&step.what);
            }
            for what in std::mem::take(&mut waiting) {
                // What the loop does waits for it.
                let by_loop = !matches!(what, What::Orphans { .. } | What::Strangers { .. } | What::Kill(_));
                if by_loop && self.kernel.now < self.stalled_until {
                    waiting.push(what);
                } else {
                    self.note(|| format!("step {what:?}"));
                    self.begin(what)?;
                }
            }
            if self.kernel.now >= self.stalled_until {
                self.round()?;
                self.check()?;
            }
        }
        if self.ended { Ok(()) } else { self.check_the_end() }
    }

    /// When the loop has something to do.
    fn next_wake(&self) -> Option<Time> {
        let ready = self.kernel.sigchld
            || self.watches.iter().any(|watch| self.is_ready(watch))
            || (0..self.calls.len()).any(|call| self.output_is_to_be_told(call));
        let timeout = self.reaper.next_timeout().map(|at| {
            let after = at.saturating_duration_since(self.epoch);
            // Rounded up, as the poll does.
            u64::try_from(after.as_nanos().div_ceil(1_000_000)).expect("a time")
        });
        let wake = if ready { Some(self.kernel.now) } else { timeout }?;
        Some(wake.max(self.stalled_until))
    }

    /// One round of the loop: events in any order, then SIGCHLD, then what is due.
    fn round(&mut self) -> Result<(), Fault> {
        let mut ready: Vec<Watch> = self.watches.iter().copied().filter(|watch| self.is_ready(watch)).collect();
        ready.sort_by_key(|watch| mix(self.history.seed ^ watch.uid as u64));
        for watch in ready {
            self.see_end(watch)?;
        }
        for call in 0..self.calls.len() {
            if self.output_is_to_be_told(call) {
                self.calls[call].output_told = true;
                self.reaper.handle_output_closed(self.calls[call].id);
                self.carry_out()?;
            }
        }
        if std::mem::take(&mut self.kernel.sigchld) {
            self.reaper.handle_sigchld(self.now());
            self.carry_out()?;
        }
        if self.reaper.next_timeout().is_some_and(|at| at <= self.now()) {
            self.reaper.handle_timeout(self.now());
            self.carry_out()?;
        }
        Ok(())
    }

    pub(super) fn now(&self) -> Instant {
        self.epoch + Duration::from_millis(self.kernel.now)
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.kernel.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:>8} ms  {}", line()));
        }
    }

    // What goes on in the kernel.

    fn begin(&mut self, what: &What) -> Result<(), Fault> {
        match what {
            What::Call(plan) => self.start_call(plan),
            What::Orphans { count, live, interval } => {
                for number in 0..*count {
                    let exits = Some((live + number * interval, 0));
                    self.kernel.spawn(Some(SHIM), None, Plan { exits, leads: true, ..Plan::default() }, None);
                }
            }
            What::Strangers { count, live } => {
                for _ in 0..*count {
                    let exits = Some((*live, 0));
                    self.kernel.spawn(None, None, Plan { exits, ..Plan::default() }, None);
                }
            }
            What::Helper { live } => {
                let plan = Plan { exits: Some((*live, 0)), leads: true, ..Plan::default() };
                if let Some(uid) = self.kernel.spawn(Some(SHIM), None, plan, None) {
                    let id = self.reaper.handle_helper_started(self.pid(uid));
                    self.add_child(id, uid, None, None);
                    self.carry_out()?;
                }
            }
            What::Signal(number) => {
                let signal = Signal::try_from(*number).expect("a signal");
                let main: Vec<usize> = self.main_children();
                let before: Vec<usize> = main.iter().map(|&child| self.children[child].signals.len()).collect();
                self.reaper.handle_termination(self.now(), signal);
                if let (Some(within), None) = (self.history.bounds.shutdown_timeout, self.shutdown) {
                    self.shutdown_began(within);
                }
                self.carry_out()?;
                for (&child, &before) in main.iter().zip(&before) {
                    let (number, child) = (*number, &self.children[child]);
                    if !child.over && !child.signals[before..].contains(&number) {
                        return Err(format!("R18: signal {number} was not passed on"));
                    }
                }
            }
            What::Kill(signal) => {
                for uid in self.calls.iter().filter_map(|call| call.process) {
                    self.killed.insert(uid, self.kernel.now);
                    self.kernel.signal(uid, *signal);
                }
            }
            What::Shutdown(within) => self.shut_down(*within)?,
            What::Cancel(which) => self.cancel(*which)?,
            What::Stall(length) => {
                let until = self.stalled_until.max(self.kernel.now + length);
                self.stalls.push((self.stalled_until.max(self.kernel.now), until));
                self.stalled_until = until;
            }
        }
        Ok(())
    }

    fn start_call(&mut self, plan: &CallPlan) {
        if !self.reaper.accepts_calls() {
            return;
        }
        let number = self.calls.len();
        let Some(runtime) = self.kernel.spawn(Some(SHIM), None, plan.runtime, Some(number)) else { return };
        let ms = Duration::from_millis;
        let timeout = plan.timeout.map(|limit| {
            if limit.since_request {
                Timeout::SinceRequest(ms(limit.after))
            } else {
                Timeout::SinceKnown(ms(limit.after))
            }
        });
        let spec = CallSpec {
            job: if plan.exec { Job::Exec } else { Job::Create },
            main: plan.main,
            terminal: plan.terminal,
            timeout,
        };
        let id = self.reaper.handle_runtime_started(self.now(), self.pid(runtime), &spec);
        let bounds = &self.history.bounds;
        let limit = if plan.exec {
            plan.timeout.map_or(0, |limit| limit.after) + bounds.exec_runtime_grace
        } else {
            bounds.create_runtime_timeout
        };
        // What it does, in the order of `planned`.
        if let Some((at, _)) = plan.process {
            self.kernel.at(at, Event::Planned(runtime, code(number, Part::Fork)));
        }
        for (helper, (at, _)) in plan.helpers.iter().enumerate() {
            self.kernel.at(*at, Event::Planned(runtime, code(number, Part::Helper(helper))));
        }
        for (write, plan) in plan.writes.iter().enumerate() {
            let by = if plan.late { SHIM } else { runtime };
            self.kernel.at(plan.at, Event::Planned(by, code(number, Part::Write(write))));
        }
        if let Some(at) = plan.terminal_connects {
            self.kernel.at(at, Event::Planned(SHIM, code(number, Part::Connect)));
        }
        if let Some(at) = plan.terminal_fails {
            self.kernel.at(at, Event::Planned(SHIM, code(number, Part::FailTerminal)));
        }
        self.watches.push(Watch {
            role: Role::Runtime(number),
            uid: runtime,
            since: self.kernel.now,
            seen: (false, false),
        });
        self.calls.push(Call {
            id,
            plan: plan.clone(),
            runtime,
            process: None,
            started: self.kernel.now,
            deadline: self.kernel.now + limit,
            file: String::new(),
            file_is_true: false,
            named: BTreeSet::new(),
            last_read: PidFile::Absent,
            last_read_is_true: false,
            examined: None,
            refused: false,
            abandoned: false,
            swept: BTreeSet::new(),
            runtime_status: None,
            runtime_seen: None,
            connected: None,
            ended: None,
            output_told: false,
        });
    }

    /// A part of a call's plan is due.
    fn planned(&mut self, code: usize) -> Result<(), Fault> {
        let (number, part) = decode(code);
        let plan = self.calls[number].plan.clone();
        match part {
            Part::Fork => {
                if let Some((_, process)) = plan.process {
                    self.calls[number].process = self.fork_process(number, plan.place, process);
                }
            }
            Part::Helper(helper) => {
                let runtime = self.calls[number].runtime;
                self.kernel.spawn(Some(runtime), None, plan.helpers[helper].1, Some(number));
            }
            Part::Write(write) => self.write(number, plan.writes[write].text),
            // The shim's loop has a part in these; they wait for it.
            Part::Connect | Part::FailTerminal if self.kernel.now < self.stalled_until => {
                self.kernel.at(self.stalled_until - self.kernel.now, Event::Planned(SHIM, code));
            }
            Part::Connect => {
                let call = &mut self.calls[number];
                call.connected.get_or_insert(self.kernel.now);
                self.reaper.handle_terminal_connected(call.id);
            }
            Part::FailTerminal => {
                if self.calls[number].connected.is_none() {
                    let (now, id) = (self.now(), self.calls[number].id);
                    self.reaper.handle_terminal_failed(now, id);
                }
            }
        }
        self.note(|| format!("call {number}: {part:?}"));
        self.carry_out()
    }

    fn fork_process(&mut self, number: usize, place: Place, plan: Plan) -> Option<Uid> {
        let runtime = self.calls[number].runtime;
        match place {
            Place::Plain => self.kernel.spawn(Some(runtime), None, plan, Some(number)),
            Place::Init => {
                let uid = self.kernel.spawn(Some(runtime), None, plan, Some(number))?;
                self.kernel.processes[uid].namespace = Some(uid);
                Some(uid)
            }
            Place::Joined => {
                let runs = |uid: &Uid| matches!(self.kernel.processes[*uid].state, State::Running);
                let inits = self.calls.iter().filter(|call| call.plan.place == Place::Init);
                let init = inits.filter_map(|call| call.process).find(runs);
                self.kernel.spawn(Some(runtime), init, plan, Some(number))
            }
            Place::Below(reaps_after) => {
                let exits = Some((60_000, 0));
                let above = Plan { reaps_after, exits, leads: true, ignores_term: true, ..Plan::default() };
                let above = self.kernel.spawn(Some(runtime), None, above, None)?;
                self.kernel.spawn(Some(above), None, plan, Some(number))
            }
        }
    }

    fn write(&mut self, number: usize, text: Text) {
        let process = self.calls[number].process.map(|uid| self.kernel.processes[uid].pid);
        let runtime = self.kernel.processes[self.calls[number].runtime].pid;
        let truth = process.map(|pid| pid.to_string()).unwrap_or_default();
        let file = match text {
            Text::Truth => truth.clone(),
            Text::Torn => truth[..truth.len().saturating_sub(1)].to_owned(),
            Text::Empty => String::new(),
            Text::Garbage => "x".into(),
            Text::Runtime => runtime.to_string(),
            Text::Number(number) => number.to_string(),
        };
        let call = &mut self.calls[number];
        call.file_is_true = process.is_some() && file == truth;
        call.named.extend(file.parse::<i32>());
        call.file = file;
    }

    fn shut_down(&mut self, within: Time) -> Result<(), Fault> {
        let main = self.main_children();
        let first = self.shutdown.is_none();
        let accepted = self.reaper.handle_shutdown(self.now(), Duration::from_millis(within)).is_ok();
        if !accepted {
            return Err("R19: a valid shutdown was refused".into());
        }
        self.shutdown_began(within);
        self.carry_out()?;
        let untold = |&child: &usize| !self.children[child].over && !self.children[child].signals.contains(&15);
        if first && main.iter().any(untold) {
            return Err("R19: a container was not told to end".into());
        }
        Ok(())
    }

    /// Also of a child that is over: it may end just before.
    fn cancel(&mut self, which: usize) -> Result<(), Fault> {
        let of_calls = (0..self.children.len()).filter(|&child| self.children[child].call.is_some());
        let of_calls: Vec<usize> = of_calls.collect();
        let Some(&child) = of_calls.get(which % of_calls.len().max(1)) else { return Ok(()) };
        let now = self.kernel.now;
        let child = &mut self.children[child];
        child.deadline = Some(child.deadline.map_or(now, |deadline| deadline.min(now)));
        self.reaper.handle_cancel(child.id);
        self.carry_out()
    }

    fn shutdown_began(&mut self, within: Time) {
        let now = self.kernel.now;
        let kill_at = now + within - self.history.bounds.stop_budget;
        let stop_at = kill_at.min(now + self.history.bounds.in_flight_wait);
        let asked = Shutdown { began: now, ends: now + within, stop_at, kill_at };
        let shutdown = self.shutdown.get_or_insert(asked);
        if asked.ends < shutdown.ends {
            shutdown.ends = asked.ends;
            shutdown.stop_at = shutdown.stop_at.min(stop_at);
            shutdown.kill_at = shutdown.kill_at.min(kill_at);
        }
    }

    fn main_children(&self) -> Vec<usize> {
        let is_main = |child: &Child| child.call.is_some_and(|call| self.calls[call].plan.main);
        let mut main = Vec::new();
        for (number, child) in self.children.iter().enumerate() {
            if is_main(child) && !child.over && self.watch(Role::Child(number)).is_some() {
                main.push(number);
            }
        }
        main
    }

    // What the loop sees.

    fn is_ready(&self, watch: &Watch) -> bool {
        let process = &self.kernel.processes[watch.uid];
        (process.has_exited() && !watch.seen.0) || (process.is_gone() && !watch.seen.1 && !self.history.old_kernel)
    }

    fn output_is_to_be_told(&self, number: usize) -> bool {
        let call = &self.calls[number];
        let holds = |uid: &Uid| {
            let process = &self.kernel.processes[*uid];
            process.call == Some(number) && process.plan.holds_output && !process.has_exited()
        };
        call.ended.is_none() && !call.output_told && !(call.runtime..self.kernel.processes.len()).any(|uid| holds(&uid))
    }

    fn see_end(&mut self, watch: Watch) -> Result<(), Fault> {
        // It may be given up by now.
        let Some(position) = self.watches.iter().position(|other| other.role == watch.role) else { return Ok(()) };
        let process = &self.kernel.processes[watch.uid];
        self.watches[position].seen = (process.has_exited(), process.is_gone());
        match watch.role {
            Role::Child(child) => self.collect(child),
            Role::Runtime(call) => {
                if let Some(status) = self.kernel.reap(watch.uid) {
                    self.reaped_for.insert(watch.uid, watch.role);
                    self.watches.remove(position);
                    self.calls[call].runtime_status = Some(status);
                    self.calls[call].runtime_seen = Some(self.kernel.now);
                    self.note(|| format!("call {call}: the runtime {status}"));
                    self.reaper.handle_runtime_exit(self.now(), self.calls[call].id, status);
                }
            }
            Role::Leftover(call) => {
                if self.kernel.is_child(watch.uid) {
                    self.reaped_for.insert(watch.uid, watch.role);
                    self.kernel.reap(watch.uid);
                }
                self.watches.remove(position);
                self.reaper.handle_process_exit(self.now(), self.calls[call].id);
            }
        }
        self.carry_out()
    }

    /// As the driver does.
    fn collect(&mut self, child: usize) {
        let Some(uid) = self.watch(Role::Child(child)).map(|watch| watch.uid) else { return };
        let id = self.children[child].id;
        let is_child = self.kernel.is_child(uid);
        match self.kernel.processes[uid].state {
            State::Zombie(status) if is_child => {
                self.reaped_for.insert(uid, Role::Child(child));
                self.kernel.reap(uid);
                self.unwatch(Role::Child(child));
                self.reaper.handle_child_exit(id, status);
            }
            State::Zombie(_) => self.reaper.handle_child_ended(self.now(), id),
            State::Gone(status) => {
                self.unwatch(Role::Child(child));
                let status = if self.history.old_kernel { ExitStatus::Unknown } else { status };
                self.reaper.handle_child_exit(id, status);
            }
            _ => self.reaper.handle_child_running(id),
        }
    }

    // What the reaper wants.

    fn carry_out(&mut self) -> Result<(), Fault> {
        let mut count = 0;
        while let Some(action) = self.reaper.poll_action() {
            count += 1;
            if count > 2_000 {
                return Err("R8: the reaper's actions do not end".into());
            }
            if self.trace.is_some() {
                self.note(|| format!("{action:?}"));
            }
            self.carry_out_one(action)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_lines, reason = "one line or two for each action")]
    fn carry_out_one(&mut self, action: Action) -> Result<(), Fault> {
        let now = self.now();
        match action {
            Action::KillRuntime(id) => {
                let uid = self.target(Role::Runtime(self.call(id)), "KillRuntime")?;
                self.kernel.signal_group(uid, 9);
                self.kernel.signal(uid, 9);
            }
            Action::SignalRuntime(id, signal) => {
                let uid = self.target(Role::Runtime(self.call(id)), "SignalRuntime")?;
                self.kernel.signal(uid, signal as i32);
            }
            Action::AbandonRuntime(id) => {
                let uid = self.target(Role::Runtime(self.call(id)), "AbandonRuntime")?;
                self.abandoned.push(uid);
                self.unwatch(Role::Runtime(self.call(id)));
            }
            Action::ReadPidFile(id) => {
                let number = self.call(id);
                let call = &mut self.calls[number];
                let pid_file = match call.file.parse::<i32>() {
                    Ok(pid) if pid > 1 => PidFile::Pid(Pid::from_raw(pid)),
                    _ if call.file.is_empty() => PidFile::Absent,
                    _ => PidFile::Invalid(call.file.clone()),
                };
                call.last_read = pid_file.clone();
                call.last_read_is_true = call.file_is_true;
                self.reaper.handle_pid_file(now, id, pid_file);
            }
            Action::Examine(id, pid) => {
                let number = self.call(id);
                let uid = self.kernel.by_pid(pid.as_raw());
                let kinship = match uid {
                    Some(uid) if self.kernel.is_child(uid) => Kinship::Child,
                    Some(uid) if uid != SHIM && self.kernel.descends(uid) => Kinship::Descendant,
                    _ => Kinship::None,
                };
                self.calls[number].refused = kinship == Kinship::None;
                self.calls[number].examined = uid.map(|uid| (uid, kinship));
                self.reaper.handle_kinship(now, id, kinship);
            }
            Action::KillProcess(id) => {
                let number = self.call(id);
                let uid = self.check_leftover(number)?;
                self.watches.push(Watch {
                    role: Role::Leftover(number),
                    uid,
                    since: self.kernel.now,
                    seen: (false, false),
                });
                self.kernel.signal(uid, 9);
            }
            Action::AbandonProcess(id) => {
                self.target(Role::Leftover(self.call(id)), "AbandonProcess")?;
                self.unwatch(Role::Leftover(self.call(id)));
                let number = self.call(id);
                self.calls[number].abandoned = true;
            }
            Action::Register(id, child) => {
                let number = self.call(id);
                let uid = self.check_registration(number)?;
                let deadline = self.calls[number].plan.timeout.map(|limit| {
                    let begin = if limit.since_request { self.calls[number].started } else { self.kernel.now };
                    begin + limit.after
                });
                self.add_child(child, uid, Some(number), deadline);
            }
            Action::SignalChild(id, signal) => {
                let child = self.child(id);
                let uid = self.target(Role::Child(child), "SignalChild")?;
                self.children[child].signals.push(signal as i32);
                self.kernel.signal(uid, signal as i32);
            }
            Action::KillChild(id) => {
                let child = self.child(id);
                let uid = self.target(Role::Child(child), "KillChild")?;
                self.children[child].signals.push(9);
                if self.kernel.is_child(uid) {
                    self.kernel.signal_group(uid, 9);
                }
                self.kernel.signal(uid, 9);
            }
            Action::Collect(id) => self.collect(self.child(id)),
            Action::ForgetChild(id) => {
                self.target(Role::Child(self.child(id)), "ForgetChild")?;
                self.unwatch(Role::Child(self.child(id)));
            }
            Action::StopTree(id) => {
                let walk = self.stop_tree(self.child(id))?;
                self.reaper.handle_tree_stopped(now, id, walk);
            }
            Action::KillTree(id) => {
                let walk = self.kill_tree(self.child(id));
                self.reaper.handle_tree_killed(now, id, walk);
            }
            Action::ListZombies => {
                let zombies: Vec<Uid> = self.kernel.zombies_of_shim().collect();
                self.checks.listed(self.kernel.now, &zombies);
                let pids: Vec<Pid> = zombies.into_iter().map(|uid| self.pid(uid)).collect();
                self.reaper.handle_zombies(now, &pids);
            }
            Action::ReapOrphan(pid) => {
                let uid = self.check_orphan(pid)?;
                self.kernel.reap(uid);
                for call in self.calls.iter_mut().filter(|call| call.ended.is_none()) {
                    call.swept.insert(pid.as_raw());
                }
            }
            Action::Report(outcome) => self.report(outcome)?,
        }
        Ok(())
    }

    fn report(&mut self, outcome: Outcome) -> Result<(), Fault> {
        match outcome {
            Outcome::Started { call, child, pid } => {
                let number = self.call(call);
                self.check_started(number, self.child(child), pid)?;
                self.end_call(number)
            }
            Outcome::Failed { call, failure } => {
                let number = self.call(call);
                self.check_failed(number, &failure)?;
                self.end_call(number)
            }
            Outcome::Exited { child, status } => {
                let child = self.child(child);
                self.check_exited(child, status)?;
                self.end_child(child)
            }
            Outcome::TimedOut { child, .. } => {
                let child = self.child(child);
                self.check_timed_out(child)?;
                self.end_child(child)
            }
            Outcome::ShutDown { left } => {
                self.check_shut_down(&left)?;
                self.ended = true;
                Ok(())
            }
        }
    }

    fn end_call(&mut self, number: usize) -> Result<(), Fault> {
        match self.calls[number].ended.replace(self.kernel.now) {
            None => Ok(()),
            Some(_) => Err(format!("call {number} ended twice")),
        }
    }

    fn end_child(&mut self, child: usize) -> Result<(), Fault> {
        if std::mem::replace(&mut self.children[child].over, true) {
            return Err(format!("R2: the status of child {child} was given twice"));
        }
        Ok(())
    }

    fn stop_tree(&mut self, child: usize) -> Result<Walk, Fault> {
        let root = self.target(Role::Child(child), "StopTree")?;
        self.kernel.signal(root, 19);
        let below: Vec<Uid> =
            (root + 1..self.kernel.processes.len()).filter(|&uid| self.kernel.is_below(uid, root)).collect();
        let mut walk = Walk::Settled;
        if self.children[child].tree.is_none() {
            self.children[child].below.clone_from(&below);
            self.children[child].expired = self.kernel.now;
        }
        let tree = self.children[child].tree.get_or_insert_default();
        let found = below.into_iter().filter(|uid| !tree.contains(uid)).take(TREE_SLICE).collect::<Vec<_>>();
        tree.extend(&found);
        for uid in found {
            walk = Walk::Unfinished;
            self.kernel.signal(uid, 19);
        }
        Ok(walk)
    }

    fn kill_tree(&mut self, child: usize) -> Walk {
        let alive = matches!(self.kernel.processes[self.children[child].uid].state, State::Running | State::Stopped);
        self.children[child].killed_alive.get_or_insert(alive);
        let mut tree = self.children[child].tree.clone().unwrap_or_default();
        tree.retain(|&uid| matches!(self.kernel.processes[uid].state, State::Running | State::Stopped));
        tree.retain(|&uid| !self.kernel.processes[uid].is_stuck());
        for &uid in tree.iter().rev().take(TREE_SLICE) {
            self.kernel.signal(uid, 9);
        }
        if tree.len() > TREE_SLICE { Walk::Unfinished } else { Walk::Settled }
    }

    // Who is who.

    pub(super) fn watch(&self, role: Role) -> Option<&Watch> {
        self.watches.iter().find(|watch| watch.role == role)
    }

    pub(super) fn is_watched(&self, uid: Uid) -> bool {
        self.watched_since(uid).is_some()
    }

    pub(super) fn watched_since(&self, uid: Uid) -> Option<Time> {
        self.watches.iter().find(|watch| watch.uid == uid).map(|watch| watch.since)
    }

    fn unwatch(&mut self, role: Role) {
        self.watches.retain(|watch| watch.role != role);
    }

    /// Whom an action is about: it must be watched, which it is until it was reaped.
    fn target(&self, role: Role, action: &str) -> Result<Uid, Fault> {
        let watch = self.watch(role).ok_or_else(|| format!("R9: {action} for {role:?}, which is not watched"))?;
        Ok(watch.uid)
    }

    fn add_child(&mut self, id: ChildId, uid: Uid, call: Option<usize>, deadline: Option<Time>) {
        let number = self.children.len();
        self.watches.push(Watch { role: Role::Child(number), uid, since: self.kernel.now, seen: (false, false) });
        self.children.push(Child {
            id,
            uid,
            call,
            registered: self.kernel.now,
            deadline,
            over: false,
            signals: Vec::new(),
            below: Vec::new(),
            expired: 0,
            killed_alive: None,
            tree: None,
        });
    }

    fn call(&self, id: CallId) -> usize {
        self.calls.iter().position(|call| call.id == id).expect("a call")
    }

    fn child(&self, id: ChildId) -> usize {
        self.children.iter().position(|child| child.id == id).expect("a child")
    }

    pub(super) fn pid(&self, uid: Uid) -> Pid {
        Pid::from_raw(self.kernel.processes[uid].pid)
    }
}

/// A part of a call's plan.
#[derive(Clone, Copy, Debug)]
enum Part {
    Fork,
    Connect,
    FailTerminal,
    Helper(usize),
    Write(usize),
}

fn code(call: usize, part: Part) -> usize {
    let part = match part {
        Part::Fork => 0,
        Part::Connect => 1,
        Part::FailTerminal => 2,
        Part::Helper(number) => 10 + number,
        Part::Write(number) => 20 + number,
    };
    call * 100 + part
}

fn decode(code: usize) -> (usize, Part) {
    let part = match code % 100 {
        0 => Part::Fork,
        1 => Part::Connect,
        2 => Part::FailTerminal,
        number @ 10..20 => Part::Helper(number - 10),
        number => Part::Write(number - 20),
    };
    (code / 100, part)
}
