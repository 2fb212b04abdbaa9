//! Answers about staged generations.

use dunnage_runtime::generation::Tier;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::generations::tier;

/// A tier as the kernel writes its limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierLimits(pub(crate) Tier);

impl Serialize for TierLimits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(tier::limits(&self.0))
    }
}

words! {
    /// How generations run (G1).
    LayoutKind {
        Flat = "flat",
        Nested = "nested",
        Foreign = "foreign",
        Fenced = "fenced",
        Conflict = "conflict",
        Unit = "unit",
    }
}

object! {
    /// `Layout`.
    LaidOut { layout: LayoutKind, reason: Option<String>, canonical_socket: Option<String>, cgroup: Option<String> }
}

object! {
    /// `Paths`.
    Paths { socket: Option<String>, control_socket: Option<String> }
}

object! {
    /// A start's question to its caller.
    AtGate { gate: Gate }
}

object! {
    /// What it is about.
    Gate { token: String, point: GatePoint, build: String }
}

words! {
    /// When the gate is asked (G6).
    GatePoint { Prepared = "prepared", Recorded = "recorded" }
}

object! {
    /// A start whose record is on disk.
    AtRecord { recorded: Recorded }
}

object! {
    /// What is in it.
    Recorded { n: Option<u64>, build: String }
}

object! {
    /// A start's last answer.
    LaunchStarted { started: Launched }
}

object! {
    /// What runs.
    Launched {
        target: String,
        n: Option<u64>,
        build: String,
        path: String,
        digest: Option<String>,
        tier: TierLimits,
        pid: i32,
        socket: Option<String>,
        control_socket: Option<String>,
    }
}

object! {
    /// All that kills or empties.
    Emptied { outcome: Outcome }
}

words! {
    /// What it came to (G20, G22).
    Outcome { Gone = "gone", NotOurs = "not_ours" }
}

object! {
    /// `StartSidecar`.
    SidecarStarted { pid: i32 }
}

object! {
    /// What a status says of a service.
    Service {
        layout: LayoutKind,
        current: Option<u64>,
        generations: Vec<Generation>,
        refused: Vec<u64>,
        last: Option<u64>,
        tier: TierLimits,
        sidecar: Option<Sidecar>,
        worker: Option<Worker>,
        holds: Vec<HeldBuild>,
        parent: Option<TierLimits>,
    }
}

object! {
    /// One generation.
    Generation {
        n: u64,
        build: String,
        path: Option<String>,
        digest: Option<String>,
        state: GenerationState,
        current: bool,
        ready: bool,
        killing: bool,
        tier: TierLimits,
        cgroups: Vec<String>,
        pid: Option<i32>,
        started: Option<String>,
        socket: Option<String>,
        control_socket: Option<String>,
        status: Option<String>,
    }
}

words! {
    /// How far it is (G6, G29).
    GenerationState {
        Starting = "starting",
        Running = "running",
        Unproven = "unproven",
    }
}

object! {
    /// The sidecar; without a PID it waits to be started again.
    Sidecar { n: u64, pid: Option<i32>, restarts: u64 }
}

object! {
    /// The worker.
    Worker { build: String, path: String, state: GenerationState, tier: TierLimits, pid: Option<i32>, started: Option<String> }
}

object! {
    /// A build that no cold start may run (G31).
    HeldBuild { build: String, reason: String }
}

object! {
    /// What an event says of a generation.
    GenerationEvent { n: Option<u64>, build: Option<String>, gate: Option<GatePoint>, message: Option<String> }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::{Event, EventKind, State, Status, Told, encode};
    use super::*;
    use crate::control::idl::{Interface, Type};

    fn text() -> String {
        "text".to_owned()
    }

    fn service(state: GenerationState) -> Service {
        let (n, tier) = (3, TierLimits(Tier::UNLIMITED));
        let some = || Some(text());
        Service {
            layout: LayoutKind::Flat,
            current: Some(n),
            refused: vec![3],
            last: Some(n),
            tier,
            generations: vec![Generation {
                n,
                build: text(),
                path: some(),
                digest: some(),
                state,
                current: true,
                ready: true,
                killing: false,
                tier,
                cgroups: vec![text()],
                pid: Some(1),
                started: some(),
                socket: some(),
                control_socket: some(),
                status: some(),
            }],
            sidecar: Some(Sidecar { n, pid: None, restarts: 0 }),
            worker: Some(Worker { build: text(), path: text(), state, tier, pid: None, started: None }),
            holds: vec![HeldBuild { build: text(), reason: text() }],
            parent: Some(tier),
        }
    }

    #[test]
    fn k5_answers_about_generations_are_what_the_interface_file_says() {
        let interface = Interface::ours();
        let output = |method: &str, answer: Vec<u8>| {
            let answer: Value = serde_json::from_slice(&answer).expect("JSON");
            let described = &interface.methods.get(method).unwrap_or_else(|| panic!("{method}")).output;
            let checked = interface.check_fields(described, &answer["parameters"]);
            checked.unwrap_or_else(|error| panic!("{method}: {error}"));
        };
        for &layout in LayoutKind::ALL {
            let answer = LaidOut { layout, reason: Some(text()), canonical_socket: None, cgroup: None };
            output("Layout", encode(&answer, false));
        }
        output("Paths", encode(&Paths { socket: Some(text()), control_socket: None }, false));
        let tier = TierLimits(Tier::UNLIMITED);
        for method in ["Stage", "Start", "StartWorker"] {
            for &point in GatePoint::ALL {
                output(method, encode(&AtGate { gate: Gate { token: text(), point, build: text() } }, true));
            }
            output(method, encode(&AtRecord { recorded: Recorded { n: Some(1), build: text() } }, true));
            let (digest, socket, control_socket) = (None, Some(text()), Some(text()));
            let (target, n, build, path, pid) = (text(), Some(1), text(), text(), 2);
            let started = Launched { target, n, build, path, digest, tier, pid, socket, control_socket };
            output(method, encode(&LaunchStarted { started }, false));
        }
        output("StartSidecar", encode(&SidecarStarted { pid: 1 }, false));
        for &outcome in Outcome::ALL {
            for method in ["KillGeneration", "Empty", "KillHost", "EmptyHost", "KillSidecar"] {
                output(method, encode(&Emptied { outcome }, false));
            }
        }
        for method in ["Hold", "Release", "AnswerGate", "Ready", "RaiseParent", "RestoreParent", "Switch", "Move"] {
            output(method, encode(&super::super::Done {}, false));
        }
        for &state in GenerationState::ALL {
            let status = Status { service: Some(service(state)), ..Status::new(text(), State::Running) };
            output("Status", encode(&status, false));
        }
        for &point in GatePoint::ALL {
            let generation = GenerationEvent { n: Some(1), build: None, gate: Some(point), message: Some(text()) };
            let event = Event { generation: Some(generation), ..Event::now(EventKind::Gate) };
            output("Events", encode(&Told { event }, true));
        }
    }

    #[test]
    fn k4_the_words_of_generations_are_those_of_the_interface_file() {
        fn words(all: &[impl Serialize]) -> Type {
            let word = |value| serde_json::to_value(value).unwrap().as_str().unwrap().to_owned();
            Type::Enum(all.iter().map(word).collect())
        }
        let types = Interface::ours().types;
        assert_eq!(types["LayoutKind"], words(LayoutKind::ALL));
        assert_eq!(types["GatePoint"], words(GatePoint::ALL));
        assert_eq!(types["Outcome"], words(Outcome::ALL));
        assert_eq!(types["GenerationState"], words(GenerationState::ALL));
    }
}
