//! What happens in one history: a schedule of requests, answers to gates, crashes and a shutdown, and how often what
//! fails. A seed determines it; it can be cut down by leaving steps out.

use super::super::random::Random;

/// Milliseconds since the history began.
pub(super) type Time = u64;

#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(super) seed: u64,
    pub(super) foreign: bool,
    pub(super) kernel: Ability,
    pub(super) faults: Faults,
    pub(super) steps: Vec<Step>,
}

/// What the kernel of the history can do with cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ability {
    Kill,
    NoKill,
    NoDelegation,
}

/// In how many of a hundred cases what goes wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub(super) record: u64,
    pub(super) launch: u64,
    pub(super) other: u64,
    /// Processes that do not die at once of SIGKILL.
    pub(super) stuck: u64,
    /// Leaders that leave their cgroup.
    pub(super) escape: u64,
    /// How long what takes time takes at most.
    pub(super) slowest: Time,
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) at: Time,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// `live`: a cold start.
    Start {
        number: u64,
        live: bool,
        gate: Option<GatePlan>,
        limited: bool,
    },
    StartWorker {
        replace: bool,
        live: bool,
        gate: Option<GatePlan>,
    },
    StartSidecar(u64),
    Hold(u8),
    Release(u8),
    Ready(u64),
    Switch(u64),
    RaiseParent,
    RestoreParent(u64),
    Kill(Whom, Time),
    Empty(Whom, Time),
    Move {
        number: u64,
        to: u8,
        limit: Time,
    },
    /// The shim is gone after so many further actions, and another is started.
    Crash {
        actions: u64,
    },
    Shutdown {
        kill: Time,
        end: Time,
    },
    /// The live link leads to another build.
    Relink(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    Generation(u64),
    Sidecar,
    Worker,
}

/// What a caller does about its gates.
#[derive(Clone, Copy, Debug)]
pub(super) struct GatePlan {
    pub(super) limit: Time,
    /// What it answers at which point, and after how long.
    pub(super) answers: [(Reaction, Time); 2],
    /// It goes away, or says something on its own connection, after so long.
    pub(super) leaves: Option<(bool, Time)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    Proceed,
    Refuse,
    Silence,
}

impl History {
    pub(super) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let kernel = random.pick(&[Ability::Kill; 8]);
        let kernel = if random.percent(15) { random.pick(&[Ability::NoKill, Ability::NoDelegation]) } else { kernel };
        let some = |random: &mut Random| random.pick(&[0, 0, 5, 20]);
        let faults = Faults {
            record: some(&mut random),
            launch: some(&mut random),
            other: some(&mut random),
            stuck: some(&mut random),
            escape: some(&mut random),
            slowest: random.pick(&[0, 1, 20, 500, 3_000]),
        };
        let foreign = random.percent(10);
        let length = random.pick(&[2_000, 20_000, 100_000]);
        let count = random.between(2, 24);
        let most = random.between(1, 4);
        let mut steps: Vec<Step> =
            (0..count).map(|_| Step { at: random.between(0, length), what: draw_step(&mut random, most) }).collect();
        if random.percent(20) {
            let kill = random.time(8_000);
            let end = kill + random.time(8_000);
            steps.push(Step { at: random.between(length / 2, length), what: What::Shutdown { kill, end } });
        }
        steps.sort_by_key(|step| step.at);
        Self { seed, foreign, kernel, faults, steps }
    }

    pub(super) fn layout_name(&self) -> &'static str {
        if self.foreign { "one" } else { "many" }
    }
}

fn draw_step(random: &mut Random, most: u64) -> What {
    let number = random.between(1, most);
    let limit = 1 + random.time(20_000);
    let build = u8::try_from(random.between(0, 2)).unwrap_or(0);
    let whom = match random.between(0, 5) {
        0 => Whom::Sidecar,
        1 => Whom::Worker,
        _ => Whom::Generation(number),
    };
    match random.between(0, 31) {
        0..=9 => What::Start {
            number: random.between(1, most + 1),
            live: random.percent(30),
            gate: draw_gate(random),
            limited: random.percent(50),
        },
        10..=11 => What::StartWorker { replace: random.percent(60), live: random.percent(50), gate: draw_gate(random) },
        12..=13 => What::StartSidecar(number),
        14 => What::Hold(build),
        15 => What::Release(build),
        16 => What::Ready(number),
        17..=19 => What::Switch(number),
        20 => What::RaiseParent,
        21 => What::RestoreParent(number),
        22..=24 => What::Kill(whom, limit),
        25..=26 => What::Empty(whom, limit),
        27..=28 => What::Move { number, to: build, limit },
        29..=30 => What::Crash { actions: random.pick(&[0, 1, 2, 3, 5, 9, 14]) },
        _ => What::Relink(build),
    }
}

fn draw_gate(random: &mut Random) -> Option<GatePlan> {
    random.percent(60).then(|| {
        let mut answer = || (random.pick(&[Reaction::Proceed; 6]), random.time(2_000));
        let mut answers = [answer(), answer()];
        for answer in &mut answers {
            if random.percent(15) {
                answer.0 = random.pick(&[Reaction::Refuse, Reaction::Silence]);
            }
        }
        let leaves = random.percent(12).then(|| (random.percent(50), random.time(4_000)));
        GatePlan { limit: 1 + random.time(10_000), answers, leaves }
    })
}
