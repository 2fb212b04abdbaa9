//! What happens in one history: the bounds that hold in it, and a schedule of calls, orphans, signals, shutdowns and
//! stalls. A seed determines it; it can be cut down by leaving steps out.

use std::time::Duration;

use super::kernel::{Plan, Time};
use super::random::Random;
use super::reaper::Timing;
use super::search::{Fault, Scenario};
use super::world;

/// One history.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) seed: u64,
    pub(super) bounds: Bounds,
    /// The highest PID there is.
    pub(super) pid_max: i32,
    /// A kernel that does not tell a status that another process took (R11).
    pub(super) old_kernel: bool,
    pub(super) steps: Vec<Step>,
}

/// The bounds in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) orphan_grace: Time,
    pub(super) orphan_max_defer: Time,
    pub(super) runtime_grace: Time,
    pub(super) create_runtime_timeout: Time,
    pub(super) exec_runtime_grace: Time,
    pub(super) in_flight_wait: Time,
    pub(super) stopped_exit_wait: Time,
    pub(super) stopped_output_wait: Time,
    pub(super) stop_budget: Time,
    pub(super) shutdown_timeout: Option<Time>,
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) at: Time,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Call(Box<CallPlan>),
    /// So many processes that were left to the shim, which exit at this interval.
    Orphans {
        count: u64,
        live: Time,
        interval: Time,
    },
    /// Processes of others, which use PIDs up.
    Strangers {
        count: u64,
        live: Time,
    },
    /// A program of the shim's own.
    Helper {
        live: Time,
    },
    /// SIGTERM, SIGINT or SIGQUIT.
    Signal(i32),
    /// Somebody kills the processes of all calls with this signal.
    Kill(i32),
    Shutdown(Time),
    /// Nobody wants the process of a call any more: of those that were started, the one with this number, counted round.
    Cancel(usize),
    /// The loop is held up for so long.
    Stall(Time),
}

#[derive(Clone, Debug)]
pub(super) struct CallPlan {
    pub(super) exec: bool,
    pub(super) main: bool,
    pub(super) terminal: bool,
    pub(super) timeout: Option<Limit>,
    pub(super) runtime: Plan,
    /// The runtime forks it after so long.
    pub(super) process: Option<(Time, Plan)>,
    pub(super) place: Place,
    /// What the runtime leaves behind, and when it forks it.
    pub(super) helpers: Vec<(Time, Plan)>,
    pub(super) writes: Vec<Write>,
    pub(super) terminal_connects: Option<Time>,
    pub(super) terminal_fails: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) since_request: bool,
    pub(super) after: Time,
}

/// Where the process of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Plain,
    /// The init of a PID namespace of its own.
    Init,
    /// In the PID namespace of the first container that runs.
    Joined,
    /// Below a process that does not end with the runtime and reaps after so long, if at all: no child of the shim.
    Below(Option<Time>),
}

/// What is written to the PID file, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) at: Time,
    pub(super) text: Text,
    /// By somebody who outlives the runtime.
    pub(super) late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// The PID of the call's process.
    Truth,
    /// Without its last digit.
    Torn,
    Empty,
    Garbage,
    /// The runtime's own PID.
    Runtime,
    Number(i32),
}

impl Scenario for History {
    const TEST: &'static str = "reapers";

    fn draw(seed: u64) -> Self {
        History::draw(seed)
    }

    fn play(&self) -> Result<(), Fault> {
        world::play(self)
    }

    fn trace(&self) -> Vec<String> {
        world::trace(self)
    }

    fn describe(&self) -> String {
        format!("pid_max {}, old kernel: {}, {:?}", self.pid_max, self.old_kernel, self.bounds)
    }

    fn steps(&self) -> Vec<String> {
        self.steps.iter().map(|step| format!("{:>8} ms  {:?}", step.at, step.what)).collect()
    }

    fn without_step(&self, position: usize) -> Self {
        let mut shorter = self.clone();
        shorter.steps.remove(position);
        shorter
    }
}

impl Bounds {
    pub(super) fn claim_margin(&self) -> Time {
        self.runtime_grace + self.orphan_grace
    }

    pub(super) fn timing(&self) -> Timing {
        let ms = Duration::from_millis;
        Timing {
            orphan_grace: ms(self.orphan_grace),
            orphan_max_defer: ms(self.orphan_max_defer),
            runtime_grace: ms(self.runtime_grace),
            create_runtime_timeout: ms(self.create_runtime_timeout),
            exec_runtime_grace: ms(self.exec_runtime_grace),
            in_flight_wait: ms(self.in_flight_wait),
            stopped_exit_wait: ms(self.stopped_exit_wait),
            stopped_output_wait: ms(self.stopped_output_wait),
            stop_budget: ms(self.stop_budget),
            shutdown_timeout: self.shutdown_timeout.map(ms),
        }
    }

    fn draw(random: &mut Random) -> Self {
        let (stopped_exit_wait, stopped_output_wait) = random.pick(&[(500, 200), (50, 20), (2_000, 1_000)]);
        let stop_budget = stopped_exit_wait + stopped_output_wait + random.pick(&[1_000, 1_300, 4_000]);
        Self {
            orphan_grace: random.pick(&[1_000, 1_000, 100, 3_000]),
            orphan_max_defer: random.pick(&[30_000, 30_000, 4_000]),
            runtime_grace: random.pick(&[5_000, 5_000, 500]),
            create_runtime_timeout: random.pick(&[600_000, 60_000, 8_000]),
            exec_runtime_grace: random.pick(&[60_000, 5_000]),
            in_flight_wait: random.pick(&[5_000, 300]),
            stopped_exit_wait,
            stopped_output_wait,
            stop_budget,
            shutdown_timeout: random.percent(30).then(|| stop_budget + random.time(20_000)),
        }
    }
}

impl History {
    pub(super) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let bounds = Bounds::draw(random);
        let pid_max = random.pick(&[12, 24, 40, 40, 100, 300, 700]);
        let old_kernel = random.percent(20);
        let count = random.between(1, 14);
        let span = random.pick(&[100, 3_000, 20_000, 90_000]);
        let mut steps: Vec<Step> = (0..count)
            .map(|_| Step { at: random.between(0, span), what: What::draw(random, pid_max, &bounds) })
            .collect();
        // Where things meet: at the timeout of a process it is killed, the loop is held up, or there is a shutdown.
        for step in steps.clone() {
            let What::Call(plan) = step.what else { continue };
            let Some(limit) = plan.timeout.filter(|limit| limit.since_request) else { continue };
            let at = step.at + limit.after;
            if random.percent(30) {
                steps.push(Step { at: at + random.between(0, 4), what: What::Kill(9) });
            }
            if random.percent(20) {
                steps.push(Step {
                    at: at.saturating_sub(random.between(0, 200)),
                    what: What::Stall(random.pick(&[100, 1_000])),
                });
            }
            if random.percent(10) {
                let within = bounds.stop_budget + random.between(0, 50);
                steps.push(Step { at: at.saturating_sub(within - bounds.stop_budget), what: What::Shutdown(within) });
            }
        }
        if random.percent(40) {
            let within = bounds.stop_budget + random.pick(&[0, 0, 500, 3_000, 20_000]);
            steps.push(Step { at: random.between(0, span + 5_000), what: What::Shutdown(within) });
        }
        draw_cancels(random, span, &mut steps);
        steps.sort_by_key(|step| step.at);
        Self { seed, bounds, pid_max, old_kernel, steps }
    }
}

impl What {
    fn draw(random: &mut Random, pid_max: i32, bounds: &Bounds) -> Self {
        match random.between(0, 99) {
            0..=54 => Self::Call(Box::new(CallPlan::draw(random, pid_max, bounds))),
            55..=69 => Self::Orphans {
                count: random.pick(&[1, 1, 2, 5, 40, 650]),
                live: random.time(10_000),
                interval: random.pick(&[0, 0, 1, 30, 700]),
            },
            70..=79 => Self::Strangers { count: random.between(1, 30), live: random.time(3_000) },
            80..=82 => Self::Helper { live: random.time(10_000) },
            83..=87 => Self::Signal(random.pick(&[15, 15, 2, 3])),
            88..=93 => Self::Kill(random.pick(&[9, 9, 15, 6])),
            _ => Self::Stall(random.pick(&[5, 100, 1_000, 7_000])),
        }
    }
}

impl CallPlan {
    fn draw(random: &mut Random, pid_max: i32, bounds: &Bounds) -> Self {
        let exec = random.percent(50);
        let hangs = random.percent(12);
        let code = if random.percent(80) { 0 } else { random.pick(&[1, 3, 127]) };
        let longest = random.pick(&[2_000, 90_000]);
        let takes = random.time(longest);
        let forks_at = random.between(0, takes);
        let terminal = random.percent(25);
        let stuck_until = bounds.create_runtime_timeout + 40_000;
        let runtime = Plan {
            exits: (!hangs).then_some((takes, code)),
            ignores_term: random.percent(50),
            stuck: random.percent(6).then(|| (random.between(0, takes), random.time(stuck_until))),
            forks: None,
            reaps_after: None,
            holds_output: true,
            leads: true,
        };
        let process = Plan {
            exits: random.percent(90).then(|| (random.time(100_000), random.pick(&[0, 1, 7]))),
            ignores_term: random.percent(40),
            stuck: random.percent(6).then(|| (random.time(5_000), random.time(100_000))),
            forks: random.percent(30).then(|| (random.pick(&[1, 3, 9, 14]), random.pick(&[1, 1, 50, 2_000]))),
            reaps_after: random.percent(40).then(|| random.time(2_000)),
            holds_output: random.percent(50),
            leads: random.percent(85),
        };
        let helpers = if random.percent(20) { random.between(1, 3) } else { 0 };
        let helpers = (0..helpers)
            .map(|_| {
                let plan = Plan {
                    exits: Some((random.time(20_000), 0)),
                    holds_output: random.percent(50),
                    ignores_term: true,
                    ..Plan::default()
                };
                (random.between(0, takes), plan)
            })
            .collect();
        let place = match random.between(0, 99) {
            0..=49 => Place::Plain,
            50..=64 => Place::Init,
            65..=84 => Place::Joined,
            _ => Place::Below(random.percent(70).then(|| random.time(8_000))),
        };
        Self {
            exec,
            main: if exec { random.percent(20) } else { random.percent(95) },
            terminal,
            timeout: random
                .percent(if exec { 60 } else { 10 })
                .then(|| Limit { since_request: random.percent(50), after: random.time(20_000) }),
            runtime,
            process: random.percent(93).then_some((forks_at, process)),
            place,
            helpers,
            writes: draw_writes(random, pid_max, forks_at, takes),
            terminal_connects: (terminal && random.percent(80)).then(|| random.time(takes + 3_000)),
            terminal_fails: (terminal && random.percent(20)).then(|| random.time(takes + 3_000)),
        }
    }
}

/// Cancels at any time, and at once with whatever else happens: with a timeout, a kill, a shutdown.
fn draw_cancels(random: &mut Random, span: Time, steps: &mut Vec<Step>) {
    for _ in 0..random.pick(&[0, 0, 1, 1, 2, 5]) {
        let which = usize::try_from(random.between(0, 20)).expect("a number");
        let at = if random.percent(40) {
            let met = &steps[usize::try_from(random.between(0, steps.len() as u64 - 1)).expect("a number")];
            let later = match &met.what {
                What::Call(plan) => plan.timeout.map_or(0, |limit| limit.after),
                _ => 0,
            };
            (met.at + later + random.between(0, 3)).saturating_sub(random.between(0, 3))
        } else {
            random.between(0, span + 20_000)
        };
        steps.push(Step { at, what: What::Cancel(which) });
    }
}

fn draw_writes(random: &mut Random, pid_max: i32, forks_at: Time, takes: Time) -> Vec<Write> {
    let mut writes = Vec::new();
    if random.percent(15) {
        writes.push(Write { at: 0, text: Text::Empty, late: false });
    }
    let at = random.between(forks_at, takes);
    if random.percent(10) {
        let text = random.pick(&[Text::Torn, Text::Torn, Text::Garbage, Text::Empty]);
        writes.push(Write { at: random.between(forks_at, at), text, late: false });
    }
    if random.percent(90) {
        let late = random.percent(6);
        writes.push(Write { at: if late { at + random.time(3_000) } else { at }, text: Text::Truth, late });
    }
    if random.percent(12) {
        let number = i32::try_from(random.between(1, pid_max.unsigned_abs().into())).expect("a PID");
        let text = random.pick(&[Text::Number(number), Text::Number(number), Text::Runtime, Text::Garbage]);
        writes.push(Write { at: random.between(forks_at, takes), text, late: false });
    }
    writes
}
