//! Plays one history: the shim's loop around the decider, which does with actions what the driver does with them, the
//! callers, and what is left when the shim is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::super::random::mix;
use super::super::search::Fault;
use super::checks::Checks;
use super::history::{Ability, GatePlan, History, Reaction, Time, What, Whom};
use super::kernel::{Kernel, Process as Body, State};
use crate::cgroup::Name;
use crate::generation::{
    Action, Failure, Found, Generations, KillFailure, Launch, Launched, Layout, Limit, Number, Opened, Outcome,
    ParentLimits, Point, Process, Record, Reply, Request, RequestId, Role, Run, Serial, Source, StartId, Target, Tier,
    Token,
};

/// A request and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) id: RequestId,
    pub(super) what: Request,
    pub(super) at: Time,
    pub(super) gate: Option<GatePlan>,
    pub(super) answered: bool,
    /// Its caller went away, or spoke where it had nothing to say, before anything was launched.
    pub(super) gone: bool,
}

/// A start as the driver sees it.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a thing that the checks ask")]
pub(super) struct Begun {
    pub(super) role: Role,
    pub(super) source: Source,
    pub(super) request: Option<RequestId>,
    pub(super) build: String,
    pub(super) prepared: bool,
    /// What the caller said at which point.
    pub(super) said: [Option<Result<(), String>>; 2],
    pub(super) launched: bool,
    pub(super) born: bool,
    /// It came to nothing.
    pub(super) discarded: bool,
}

/// What happens later.
#[derive(Clone, Debug)]
pub(super) enum Later {
    Opened(StartId, Result<Opened, Failure>),
    Prepared(StartId),
    Recorded(Serial, Box<Record>, bool),
    Launched(StartId, Launched, Option<Box<Body>>),
    Emptied(Name),
    Exited(i32),
    Moved(Number, Vec<Name>, Name, Result<(), Failure>),
    ParentSet(Tier, bool, bool),
    Reclaimed,
    Widened(RequestId, Number),
    Answer(Token, Result<(), String>),
    Leaves(RequestId, bool),
    Escapes(i32),
}

pub(super) struct World<'a> {
    pub(super) history: &'a History,
    pub(super) kernel: Kernel,
    pub(super) service: Generations,
    epoch: Instant,
    pub(super) now: Time,
    pub(super) later: BTreeMap<(Time, u64), Later>,
    drawn: u64,
    pub(super) disk: Record,
    pub(super) asked: Vec<Asked>,
    pub(super) starts: BTreeMap<StartId, Begun>,
    /// The leaders that the shim watches.
    pub(super) watched: BTreeMap<i32, Role>,
    /// The leaders that are its own children.
    children: BTreeSet<i32>,
    pub(super) link: Option<Number>,
    pub(super) parent: Tier,
    pub(super) memory: u64,
    pub(super) live_build: u8,
    crash_in: Option<u64>,
    incarnation: u64,
    /// When all is killed, and when that is over.
    pub(super) shutdown: Option<(Time, Time)>,
    pub(super) ended: bool,
    /// Nothing goes wrong any more.
    pub(super) calm: bool,
    pub(super) checks: Checks,
    trace: Option<Vec<String>>,
}

pub(super) fn play(history: &History) -> Result<(), Fault> {
    World::new(history, false).run()
}

pub(super) fn trace(history: &History) -> Vec<String> {
    let mut world = World::new(history, true);
    let fault = world.run().err();
    let mut trace = world.trace.take().unwrap_or_default();
    trace.extend(fault);
    trace
}

pub(super) fn number(number: u64) -> Number {
    Number::new(number).expect("numbers begin at 1")
}

fn role(whom: Whom) -> Role {
    match whom {
        Whom::Generation(it) => Role::Generation(number(it)),
        Whom::Sidecar => Role::Sidecar,
        Whom::Worker => Role::Worker,
    }
}

fn tier(limited: bool) -> Tier {
    if limited { Tier { memory_max: Limit::Value(1_000), ..Tier::UNLIMITED } } else { Tier::UNLIMITED }
}

fn layout(history: &History) -> Layout {
    if history.foreign { Layout::Foreign("its path is long".into()) } else { Layout::Overlapping }
}

impl<'a> World<'a> {
    fn new(history: &'a History, traced: bool) -> Self {
        let epoch = Instant::now();
        Self {
            history,
            kernel: Kernel::default(),
            service: Generations::new(epoch, layout(history), Record::default(), 0),
            epoch,
            now: 0,
            later: BTreeMap::new(),
            drawn: 0,
            disk: Record::default(),
            asked: Vec::new(),
            starts: BTreeMap::new(),
            watched: BTreeMap::new(),
            children: BTreeSet::new(),
            link: None,
            parent: Tier::UNLIMITED,
            memory: 500,
            live_build: 0,
            crash_in: None,
            incarnation: 0,
            shutdown: None,
            ended: false,
            calm: false,
            checks: Checks::default(),
            trace: traced.then(Vec::new),
        }
    }

    fn run(&mut self) -> Result<(), Fault> {
        let history = self.history;
        let mut steps = history.steps.iter().peekable();
        let mut rounds = 0;
        while !self.ended {
            rounds += 1;
            if rounds > 20_000 {
                return Err("R7: the loop does not come to rest".into());
            }
            let timer = self.service.next_timeout().map(|at| self.millis(at));
            let events = [
                self.later.keys().next().map(|&(at, _)| at),
                steps.peek().map(|step| step.at),
                self.kernel.next(self.now),
                timer,
            ];
            let last = steps.peek().is_none();
            let next = events.into_iter().flatten().min();
            // A sidecar may be started again for ever.
            let next = next.filter(|_| !last || self.calm || self.now < END);
            // What lives for ever is ended, and then nothing may be left.
            let Some(next) = next.filter(|&next| next < FOREVER) else {
                if last && !self.calm {
                    self.end_all()?;
                    continue;
                }
                break;
            };
            self.now = self.now.max(next);
            self.advance();
            while let Some(step) = steps.next_if(|step| step.at <= self.now) {
                self.note(|| format!("step {:?}", step.what));
                self.begin(&step.what)?;
            }
            self.deliver()?;
            if timer.is_some_and(|at| at <= self.now) {
                self.service.handle_timeout(self.instant(self.now));
                self.carry_out()?;
            }
            self.advance();
            self.check()?;
        }
        if self.ended { Ok(()) } else { self.check_the_end() }
    }

    fn instant(&self, at: Time) -> Instant {
        self.epoch + Duration::from_millis(at)
    }

    fn clock(&self) -> Instant {
        self.instant(self.now)
    }

    fn millis(&self, at: Instant) -> Time {
        Time::try_from(at.duration_since(self.epoch).as_millis()).unwrap_or(FOREVER)
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.trace.is_some() {
            let line = format!("{:>8} ms  {}", self.now, what());
            self.trace.iter_mut().for_each(|trace| trace.push(line.clone()));
        }
    }

    /// The next number that the seed determines.
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.history.seed ^ mix(self.drawn))
    }

    fn fails(&mut self, percent: u64) -> bool {
        let drawn = self.draw();
        !self.calm && drawn % 100 < percent
    }

    fn delay(&mut self) -> Time {
        let drawn = self.draw();
        if drawn.is_multiple_of(3) { 0 } else { (drawn >> 8) % (self.history.faults.slowest + 1) }
    }

    fn later(&mut self, after: Time, what: Later) {
        self.drawn += 1;
        self.later.insert((self.now + after, self.drawn), what);
    }

    fn soon(&mut self, what: Later) {
        let delay = self.delay();
        self.later(delay, what);
    }

    /// What the kernel does by itself, and what the shim is to be told of that.
    fn advance(&mut self) {
        self.kernel.advance(self.now);
        let mut told = Vec::new();
        for process in &mut self.kernel.processes {
            let is_child = self.children.contains(&process.pid);
            if process.state == State::Zombie && !is_child {
                process.state = State::Gone;
            }
            if process.leader && process.state != State::Alive && self.watched.contains_key(&process.pid) {
                told.push(process.pid);
            }
        }
        for pid in told {
            if !self.later.values().any(|later| matches!(later, Later::Exited(its) if *its == pid)) {
                self.soon(Later::Exited(pid));
            }
        }
        let evicting: Vec<Name> = self.kernel.evicting.keys().cloned().collect();
        for cgroup in evicting {
            let told = self.later.values().any(|later| matches!(later, Later::Emptied(its) if *its == cgroup));
            if !told && self.kernel.populated(&cgroup).is_empty() {
                self.soon(Later::Emptied(cgroup));
            }
        }
    }

    fn begin(&mut self, what: &What) -> Result<(), Fault> {
        let ms = Duration::from_millis;
        let request = match *what {
            What::Start { number: it, live, gate, limited } => {
                let build = format!("build-{}", it % 3);
                let path = format!("/staged/{it}").into();
                let source = if live { LIVE } else { Source::Staged { build, path, digest: None } };
                let target = Target::Generation(number(it));
                return self.ask_start(target, source, limited.then(|| tier(true)), gate);
            }
            What::StartWorker { replace, live, gate } => {
                let source = Source::Staged { build: "build-0".into(), path: "/staged/worker".into(), digest: None };
                let source = if live { LIVE } else { source };
                return self.ask_start(Target::Worker { replace }, source, None, gate);
            }
            What::StartSidecar(it) => Request::StartSidecar(number(it)),
            What::Hold(build) => Request::Hold { build: format!("build-{build}"), reason: "it is broken".into() },
            What::Release(build) => Request::Release { build: format!("build-{build}") },
            What::Ready(it) => Request::Ready(number(it)),
            What::Switch(it) => Request::Switch(number(it)),
            What::RaiseParent => Request::RaiseParent { incumbent: tier(true), successor: tier(true) },
            What::RestoreParent(it) => Request::RestoreParent(number(it)),
            What::Kill(whom, limit) => Request::Kill(role(whom), ms(limit)),
            What::Empty(whom, limit) => Request::Empty(role(whom), ms(limit)),
            What::Move { number: it, to, limit } => {
                let to = Name::chosen(&format!("moved-{to}")).expect("a name");
                Request::Move { number: number(it), to, timeout: ms(limit) }
            }
            What::Crash { actions: 0 } => return self.crash(),
            What::Crash { actions } => {
                self.crash_in = Some(actions);
                return Ok(());
            }
            What::Shutdown { kill, end } => {
                self.shutdown = Some((self.now + kill, self.now + end));
                let (kill, end) = (self.instant(self.now + kill), self.instant(self.now + end));
                self.service.handle_shutdown(self.clock(), kill, end);
                return self.carry_out();
            }
            What::Relink(build) => {
                self.live_build = build;
                return Ok(());
            }
        };
        self.ask(request, None)
    }

    fn ask_start(
        &mut self,
        target: Target,
        source: Source,
        tier: Option<Tier>,
        plan: Option<GatePlan>,
    ) -> Result<(), Fault> {
        let gate = plan.map(|plan| Duration::from_millis(plan.limit));
        self.ask(Request::Start(Launch { target, source, tier, gate }), plan)
    }

    pub(super) fn ask(&mut self, what: Request, gate: Option<GatePlan>) -> Result<(), Fault> {
        let id = RequestId(self.asked.len() as u64);
        self.asked.push(Asked { id, what: what.clone(), at: self.now, gate, answered: false, gone: false });
        if let Some((spoke, after)) = gate.and_then(|plan| plan.leaves) {
            self.later(after, Later::Leaves(id, spoke));
        }
        self.note_asked(&what);
        self.service.handle_request(self.clock(), id, what);
        self.carry_out()
    }

    fn deliver(&mut self) -> Result<(), Fault> {
        while let Some((&(at, seq), _)) = self.later.first_key_value().filter(|((at, _), _)| *at <= self.now) {
            let Some(what) = self.later.remove(&(at, seq)) else { break };
            self.note(|| match &what {
                Later::Recorded(serial, _, lands) => format!("event Recorded({serial:?}, {lands})"),
                what => format!("event {what:?}"),
            });
            self.happen(what);
            self.carry_out()?;
            self.advance();
        }
        Ok(())
    }

    fn happen(&mut self, what: Later) {
        let now = self.clock();
        match what {
            Later::Opened(id, result) => self.service.handle_opened(now, id, result),
            Later::Prepared(id) => {
                let role = self.starts[&id].role;
                let result = self.kernel.make(&Name::of(role)).map_err(Failure::LaunchFailed);
                let result = if self.fails(self.history.faults.other) {
                    Err(Failure::LaunchFailed("no room".into()))
                } else {
                    result
                };
                self.starts.entry(id).and_modify(|start| start.prepared = result.is_ok());
                self.service.handle_prepared(now, id, result);
            }
            Later::Recorded(serial, record, lands) => {
                let fails = !lands;
                self.note_written(&record, fails);
                if lands || self.fails(50) {
                    self.disk = *record;
                }
                let result = if fails { Err("the disk is full".to_owned()) } else { Ok(()) };
                self.service.handle_recorded(now, serial, &result);
            }
            Later::Launched(id, launched, body) => {
                let launched = match body {
                    Some(body) => self.bear(id, *body, &launched),
                    None => launched,
                };
                self.service.handle_launched(now, id, launched);
            }
            Later::Emptied(cgroup) => {
                if self.kernel.populated(&cgroup).is_empty()
                    && let Some(role) = self.kernel.evicting.remove(&cgroup)
                {
                    self.service.handle_emptied(now, role, &cgroup);
                }
            }
            Later::Exited(pid) => {
                self.children.remove(&pid);
                if let Some(process) = self.kernel.by_pid(pid) {
                    process.state = State::Gone;
                }
                if let Some(role) = self.watched.remove(&pid) {
                    self.note_exit(role);
                    self.service.handle_exited(now, role);
                }
            }
            Later::Moved(number, from, to, result) => {
                if result.is_ok() {
                    self.move_some(&from, &to, 1);
                }
                self.service.handle_moved(number, result);
            }
            Later::ParentSet(to, keep, refused) => {
                let memory_max = if keep || refused { self.parent.memory_max } else { to.memory_max };
                self.parent = Tier { memory_max, ..to };
                let refused = refused.then(|| "memory.max: busy".to_owned());
                self.service.handle_parent_set(ParentLimits { are: self.parent, refused });
            }
            Later::Reclaimed => {
                self.memory -= self.draw() % (self.memory + 1);
                self.service.handle_reclaimed();
            }
            Later::Widened(request, number) => {
                let result = if self.fails(self.history.faults.other) { Err("gone".to_owned()) } else { Ok(()) };
                self.service.handle_widened(request, number, result);
            }
            Later::Answer(token, answer) => {
                if self.service.handle_gate_answer(now, token, answer.clone()) {
                    self.note_said(token, &answer);
                }
            }
            Later::Leaves(request, spoke) => {
                let position = usize::try_from(request.0).unwrap_or(0);
                let launched = self.starts.values().any(|start| start.request == Some(request) && start.launched);
                self.asked[position].gone |= !launched && !self.asked[position].answered;
                if spoke {
                    self.service.handle_caller_spoke(now, request);
                } else {
                    self.service.handle_caller_gone(now, request);
                }
            }
            Later::Escapes(pid) => {
                let known = |process: &Body| {
                    self.disk.run(process.role).and_then(Run::process).is_some_and(|its| its.pid == pid)
                };
                if self.kernel.processes.iter().any(|process| process.pid == pid && known(process))
                    && let Some(process) = self.kernel.by_pid(pid)
                {
                    process.cgroup = None;
                }
            }
        }
    }

    /// Does what the decider wants done.
    fn carry_out(&mut self) -> Result<(), Fault> {
        while !self.ended {
            if self.crash_in == Some(0) {
                return self.crash();
            }
            let Some(action) = self.service.poll_action() else { break };
            self.crash_in = self.crash_in.map(|left| left - 1);
            self.note(|| format!("  {action:?}"));
            self.check_action(&action)?;
            self.act(action)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each action")]
    fn act(&mut self, action: Action) -> Result<(), Fault> {
        let now = self.clock();
        let other = self.history.faults.other;
        match action {
            Action::Open { start, role, source, tier: asked } => {
                let build = match &source {
                    Source::Live { .. } => format!("build-{}", self.live_build),
                    Source::Staged { build, .. } | Source::Sidecar { build, .. } => build.clone(),
                };
                self.begin_start(start, role, source, build.clone());
                let opened = Opened { build, digest: None, tier: asked.unwrap_or(tier(false)) };
                let result =
                    if self.fails(other) { Err(Failure::Refused("it is a script".into())) } else { Ok(opened) };
                self.soon(Later::Opened(start, result));
            }
            Action::Prepare(id, ..) => self.soon(Later::Prepared(id)),
            Action::Launch(id, role) => self.launch(id, role),
            Action::Discard(id, role) => {
                self.note_discard(id, role);
                if self.starts.get(&id).is_some_and(|start| start.prepared) {
                    self.kernel.remove(&Name::of(role));
                }
            }
            Action::WriteRecord(serial) => {
                let lands = !self.fails(self.history.faults.record);
                let record = Box::new(self.service.record().clone());
                self.note_writing();
                self.soon(Later::Recorded(serial, record, lands));
            }
            Action::Inspect(role, cgroup) => {
                let inside = self.kernel.populated(&cgroup);
                let found = match self.history.kernel {
                    Ability::NoDelegation => Found::NoDelegation,
                    _ if inside.is_empty() => Found::Empty,
                    _ => Found::Populated(format!("{inside:?}")),
                };
                let unreadable = self.fails(other / 4);
                let found = if unreadable { Found::Unreadable("EIO".into()) } else { found };
                self.service.handle_found(now, role, &cgroup, found);
            }
            Action::Evict(role, cgroup) => match self.history.kernel {
                Ability::NoDelegation => {
                    self.service.handle_kill_failed(now, role, &cgroup, KillFailure::NoDelegation);
                }
                Ability::NoKill => {
                    self.kernel.evicting.insert(cgroup.clone(), role);
                    self.service.handle_kill_failed(now, role, &cgroup, KillFailure::NoKill);
                }
                Ability::Kill => {
                    if self.fails(other) {
                        self.service.handle_unmarked(role, cgroup.clone());
                    }
                    self.kernel.evicting.insert(cgroup, role);
                }
            },
            Action::EndEviction(cgroup) => drop(self.kernel.evicting.remove(&cgroup)),
            Action::Terminate(role) => {
                let obeys = self.draw().is_multiple_of(2);
                self.signal_leader(role, obeys);
            }
            Action::KillLeader(role) => self.signal_leader(role, true),
            Action::Retire(role, cgroups) => {
                self.link.take_if(|link| Role::Generation(*link) == role);
                for cgroup in cgroups {
                    self.kernel.remove(&cgroup);
                }
            }
            Action::Widen(request, number) => self.soon(Later::Widened(request, number)),
            Action::Switch(number) => {
                let result = if self.fails(other) { Err("EACCES".to_owned()) } else { Ok(()) };
                if result.is_ok() {
                    self.link = Some(number);
                }
                self.service.handle_switched(number, result);
            }
            Action::RunHook(_) => {}
            Action::ReadLink => self.service.handle_link(self.link),
            Action::ReadParent => self.service.handle_parent_read(Some(self.parent)),
            Action::SetParent { tier, keep_memory_max } => {
                let refused = self.fails(other);
                self.soon(Later::ParentSet(tier, keep_memory_max, refused));
            }
            Action::ReadMemory => {
                if self.draw().is_multiple_of(4) {
                    self.memory = self.draw() % 3_000;
                }
                self.service.handle_memory(Ok(self.memory));
            }
            Action::Reclaim(_) => self.soon(Later::Reclaimed),
            Action::Move { number, from, to, .. } => {
                let result = self.kernel.make(&to).map_err(Failure::Refused);
                if result.is_ok() {
                    self.move_some(&from, &to, 2);
                }
                self.soon(Later::Moved(number, from, to, result));
            }
            Action::EndMove(number) => {
                self.later.retain(|_, later| !matches!(later, Later::Moved(its, ..) if *its == number));
            }
            Action::Adopt(role, process) => {
                let alive = self.kernel.by_pid(process.pid).is_some_and(|process| process.state == State::Alive);
                if alive {
                    self.watched.insert(process.pid, role);
                }
                self.service.handle_adopted(role, alive);
            }
            Action::Report(outcome) => return self.told(&outcome),
        }
        Ok(())
    }

    fn told(&mut self, outcome: &Outcome) -> Result<(), Fault> {
        self.check_outcome(outcome)?;
        match *outcome {
            Outcome::Gate { request, token, point, .. } => {
                let plan = self.asked[usize::try_from(request.0).unwrap_or(0)].gate;
                let Some(plan) = plan else { return Err("g6: a caller is asked that has no gate".into()) };
                self.checks.tokens.insert(token, (request, point));
                let (reaction, after) = plan.answers[usize::from(point == Point::Recorded)];
                match reaction {
                    Reaction::Proceed => self.later(after, Later::Answer(token, Ok(()))),
                    Reaction::Refuse => self.later(after, Later::Answer(token, Err(format!("no, {token:?}")))),
                    Reaction::Silence => {}
                }
            }
            Outcome::Answer(id, _) => self.asked[usize::try_from(id.0).unwrap_or(0)].answered = true,
            Outcome::ShutDown { .. } => self.ended = true,
            _ => {}
        }
        Ok(())
    }

    fn begin_start(&mut self, id: StartId, role: Role, source: Source, build: String) {
        let asks = |what: &Request| match what {
            Request::Start(launch) => match launch.target {
                Target::Generation(number) => role == Role::Generation(number),
                Target::Worker { .. } => role == Role::Worker,
            },
            Request::StartSidecar(_) => role == Role::Sidecar,
            _ => false,
        };
        let claimed = |id: RequestId| self.starts.values().any(|start| start.request == Some(id));
        let open = self.asked.iter().rev().find(|asked| !asked.answered && asks(&asked.what) && !claimed(asked.id));
        let request = open.map(|asked| asked.id);
        let said = [None, None];
        let begun = Begun {
            role,
            source,
            request,
            build,
            prepared: false,
            said,
            launched: false,
            born: false,
            discarded: false,
        };
        self.starts.insert(id, begun);
    }

    fn launch(&mut self, id: StartId, role: Role) {
        self.starts.entry(id).and_modify(|start| start.launched = true);
        let drawn = self.draw();
        let ends = match drawn % 4 {
            0 => FOREVER,
            1 => self.now + (drawn >> 8) % 500,
            _ => self.now + (drawn >> 8) % 100_000,
        };
        let mut body = Body::new(role, Name::of(role), ends);
        for _ in 0..(drawn >> 4) % 3 {
            let at = self.now + self.draw() % 30_000;
            body.forks.push(at);
        }
        if self.fails(self.history.faults.stuck) {
            body.stuck_until = self.now + self.draw() % 40_000;
        }
        let process = Process { pid: 0, start_time: 0 };
        let fails = self.fails(self.history.faults.launch);
        let (launched, body) = match self.draw() % 3 {
            0 if fails => (Launched::Uncertain("the runtime hangs".into()), Some(body)),
            1 if fails => (Launched::Uncertain("the runtime hangs".into()), None),
            _ if fails => (Launched::Nothing("ENOEXEC".into()), None),
            _ => (Launched::Running(process), Some(body)),
        };
        self.soon(Later::Launched(id, launched, body.map(Box::new)));
    }

    /// A process is there.
    fn bear(&mut self, id: StartId, body: Body, launched: &Launched) -> Launched {
        let role = body.role;
        let pid = self.kernel.born(body);
        self.starts.entry(id).and_modify(|start| start.born = true);
        if !matches!(launched, Launched::Running(_)) {
            return launched.clone();
        }
        self.children.insert(pid);
        self.watched.insert(pid, role);
        if self.fails(self.history.faults.escape) {
            let after = self.draw() % 5_000;
            self.later(after, Later::Escapes(pid));
        }
        Launched::Running(Process { pid, start_time: 0 })
    }

    fn signal_leader(&mut self, role: Role, kills: bool) {
        let leader = self.watched.iter().find(|&(_, &its)| its == role).map(|(&pid, _)| pid);
        if let Some(pid) = leader.filter(|_| kills) {
            self.kernel.kill(pid);
        }
    }

    /// Every so-manieth process moves.
    fn move_some(&mut self, from: &[Name], to: &Name, every: usize) {
        let inside = |process: &&mut Body| {
            process.state == State::Alive && process.cgroup.as_ref().is_some_and(|cgroup| from.contains(cgroup))
        };
        for process in self.kernel.processes.iter_mut().filter(inside).step_by(every) {
            process.cgroup = Some(to.clone());
        }
    }

    /// The shim is gone, and another is started on what is on the disk.
    fn crash(&mut self) -> Result<(), Fault> {
        self.note(|| "the shim is gone".into());
        self.crash_in = None;
        for (_, later) in std::mem::take(&mut self.later) {
            let happens = self.draw().is_multiple_of(2);
            match later {
                Later::Recorded(_, record, _) if happens => {
                    self.disk = *record;
                }
                Later::Launched(id, launched, Some(body)) if happens => drop(self.bear(id, *body, &launched)),
                Later::ParentSet(to, false, false) if happens => self.parent = to,
                _ => {}
            }
        }
        self.children.clear();
        self.watched.clear();
        self.kernel.lose_parent();
        self.advance();
        self.starts.clear();
        self.shutdown = None;
        self.asked.iter_mut().for_each(|asked| asked.answered = true);
        self.check_crash()?;
        self.incarnation += 1;
        let first = self.incarnation * 1_000_000;
        self.service = Generations::new(self.clock(), layout(self.history), self.disk.clone(), first);
        self.carry_out()?;
        self.check_restart()
    }

    /// Has all ended that is still there.
    fn end_all(&mut self) -> Result<(), Fault> {
        self.calm = true;
        self.crash_in = None;
        let roles: Vec<Role> = self.service.record().roles().chain([Role::Sidecar, Role::Worker]).collect();
        let limit = Duration::from_secs(1_000);
        roles.into_iter().try_for_each(|role| self.ask(Request::Kill(role, limit), None))
    }

    pub(super) fn reply_is_gone(answer: &Result<Reply, Failure>) -> Option<Role> {
        match answer {
            Ok(Reply::Gone(role)) => Some(*role),
            _ => None,
        }
    }
}

/// When all is ended, some time after the last step.
const END: Time = 250_000;

const LIVE: Source = Source::Live { build: None, digest: None };

/// Later than anything.
pub(super) const FOREVER: Time = 1 << 40;
