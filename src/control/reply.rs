//! What is answered, in the words of the interface file.

use std::process;
use std::time::SystemTime;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::call::{INTERFACE, SERVICE};
use super::outbox::Part;
use crate::exec::Captured;
use crate::log::rfc3339;

/// A type with fields, serialized as an object. (The derive macro of serde does not work where a program is linked
/// statically for the host, as this one is.)
macro_rules! object {
    ($(#[$attribute:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug)]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind,)*
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                #[allow(unused_mut, reason = "some have no fields")]
                let mut object = serializer.serialize_map(None)?;
                $(object.serialize_entry(stringify!($field), &self.$field)?;)*
                object.end()
            }
        }
    };
}

/// A type with variants without fields, serialized as words.
macro_rules! words {
    ($(#[$attribute:meta])* $name:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $(#[doc = $word] $variant,)*
        }

        impl $name {
            /// All of them.
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$variant),*];
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(match self {
                    $(Self::$variant => $word,)*
                })
            }
        }
    };
}

mod generations;

pub(crate) use generations::{
    AtGate, AtRecord, Emptied, Gate, GatePoint, Generation, GenerationEvent, GenerationState, HeldBuild, LaidOut,
    LaunchStarted, Launched, LayoutKind, Outcome, Paths, Recorded, Service, Sidecar, SidecarStarted, TierLimits,
    Worker,
};

object! {
    /// An answer that says only that it was done.
    Done {}
}

object! {
    /// `GetInfo`.
    Info {
        vendor: &'static str,
        product: &'static str,
        version: &'static str,
        url: &'static str,
        interfaces: [&'static str; 2],
    }
}

impl Info {
    pub(crate) fn new() -> Self {
        Self {
            vendor: "dunnage",
            product: "dunnage",
            version: env!("CARGO_PKG_VERSION"),
            url: "",
            interfaces: [SERVICE, INTERFACE],
        }
    }
}

object! {
    /// `GetInterfaceDescription`.
    Description { description: &'static str }
}

object! {
    /// `Status`.
    Status {
        id: String,
        name: Option<String>,
        bundle: String,
        terminal: bool,
        attach: Option<String>,
        logs: Vec<String>,
        shim_pid: u32,
        version: &'static str,
        state: State,
        exit_code: Option<i32>,
        shutting_down: bool,
        processes: Vec<Process>,
        calls: Vec<Call>,
        zombies: Vec<Zombie>,
        limits: Limits,
        counters: Counters,
        service: Option<Service>,
    }
}

impl Status {
    /// Of a shim of which only its name and state are known.
    pub(crate) fn new(id: String, state: State) -> Self {
        Self {
            id,
            name: None,
            bundle: String::new(),
            terminal: false,
            attach: None,
            logs: Vec::new(),
            shim_pid: process::id(),
            version: env!("CARGO_PKG_VERSION"),
            state,
            exit_code: None,
            shutting_down: false,
            processes: Vec::new(),
            calls: Vec::new(),
            zombies: Vec::new(),
            limits: Limits::default(),
            counters: Counters::default(),
            service: None,
        }
    }
}

words! {
    /// How far the container is.
    State { Waiting = "waiting", Starting = "starting", Running = "running", Ended = "ended" }
}

object! {
    /// A process that was started.
    Process { target: String, pid: i32, started: String }
}

object! {
    /// A runtime's run.
    Call { target: String, runtime_pid: Option<i32>, process_pid: Option<i32>, started: String }
}

object! {
    /// An orphan that is left alone for now.
    Zombie { pid: i32, first_seen: String }
}

object! {
    /// Of the container's cgroup; none where there is no such file.
    #[derive(Default, PartialEq, Eq)]
    Limits {
        memory_max: Option<String>,
        memory_high: Option<String>,
        pids_max: Option<String>,
        cpu_max: Option<String>,
        cpu_weight: Option<String>,
    }
}

object! {
    /// Since the start of the shim.
    #[derive(Default)]
    Counters { output_bytes: u64, lines_logged: u64, bytes_dropped: u64, orphans_swept: u64, runtimes_killed: u64 }
}

object! {
    /// `ExecSync`, but for the output.
    Executed { exit_code: i32, timed_out: bool }
}

object! {
    /// An exec's first answer.
    ExecStarted { started: StartedExec }
}

object! {
    /// Where it is.
    StartedExec { exec_id: String, pid: i32, socket: String }
}

object! {
    /// An exec's last answer.
    ExecExited { exited: ExitedExec }
}

object! {
    /// How it ended.
    ExitedExec { exec_id: String, exit_code: i32, timed_out: bool }
}

object! {
    /// `Events`.
    Told { event: Event }
}

object! {
    /// Something that happened.
    Event {
        time: String,
        kind: EventKind,
        target: Option<String>,
        pid: Option<i32>,
        exit_code: Option<i32>,
        count: Option<u64>,
        generation: Option<GenerationEvent>,
    }
}

words! {
    /// What happened.
    EventKind {
        Subscribed = "subscribed",
        Started = "started",
        Exited = "exited",
        TimedOut = "timed_out",
        Oom = "oom",
        OrphanSwept = "orphan_swept",
        LogDropped = "log_dropped",
        ShuttingDown = "shutting_down",
        Missed = "missed",
        Gate = "gate",
        Ready = "ready",
        Notified = "notified",
        Switched = "switched",
        Killed = "killed",
        Moved = "moved",
    }
}

impl Event {
    /// It happened just now.
    pub(crate) fn now(kind: EventKind) -> Self {
        let time = rfc3339(SystemTime::now());
        Self { time, kind, target: None, pid: None, exit_code: None, count: None, generation: None }
    }
}

/// An answer as it is sent; `continues` where another one follows.
pub(super) fn encode(parameters: &impl Serialize, continues: bool) -> Vec<u8> {
    struct Answer<'a, P>(&'a P, bool);

    impl<P: Serialize> Serialize for Answer<'_, P> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut object = serializer.serialize_map(None)?;
            object.serialize_entry("parameters", self.0)?;
            if self.1 {
                object.serialize_entry("continues", &true)?;
            }
            object.end()
        }
    }

    // Fails only for maps with keys that are no text and for writers that fail; there is neither.
    serde_json::to_vec(&Answer(parameters, continues)).unwrap_or_default()
}

/// An `ExecSync`'s answer as it is sent: the output, which may be large, is encoded on its way.
pub(super) fn encode_executed(executed: &Executed, output: Captured) -> [Part; 5] {
    let mut head = encode(executed, false);
    // It goes on inside of the parameters.
    head.truncate(head.len() - "}}".len());
    head.extend_from_slice(b",\"stdout\":\"");
    let end = format!("\",\"truncated\":{}}}}}", output.truncated);
    [
        Part::Text(head),
        Part::base64(output.stdout),
        Part::Text(b"\",\"stderr\":\"".to_vec()),
        Part::base64(output.stderr),
        Part::Text(end.into_bytes()),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::control::idl::{Interface, Type};
    use crate::control::outbox::Outbox;

    fn decode(message: &[u8]) -> Value {
        serde_json::from_slice(message).expect("JSON")
    }

    #[test]
    fn answers_are_what_the_interface_file_says() {
        let interface = Interface::ours();
        let output = |method: &str, answer: Vec<u8>| {
            let answer = decode(&answer);
            let described = &interface.methods.get(method).unwrap_or_else(|| panic!("{method}")).output;
            interface
                .check_fields(described, &answer["parameters"])
                .unwrap_or_else(|error| panic!("{method}: {error}"));
        };
        for &state in State::ALL {
            let mut status = Status::new("id".to_owned(), state);
            output("Status", encode(&status, false));
            status.exit_code = Some(-1);
            status.processes.push(Process { target: "container".to_owned(), pid: 2, started: "now".to_owned() });
            let target = "exec-1".to_owned();
            status.calls.push(Call { target, runtime_pid: Some(3), process_pid: None, started: String::new() });
            status.zombies.push(Zombie { pid: 4, first_seen: "now".to_owned() });
            output("Status", encode(&status, false));
        }
        let captured = Captured { stdout: b"out".to_vec(), stderr: Vec::new(), truncated: true };
        let mut outbox = Outbox::default();
        outbox.push(encode_executed(&Executed { exit_code: -1, timed_out: true }, captured));
        let mut answer = Vec::new();
        while !outbox.is_empty() {
            answer.extend_from_slice(outbox.unsent());
            outbox.advance(outbox.unsent().len());
        }
        assert_eq!(answer.pop(), Some(0));
        let parameters = json!({"exit_code": -1, "timed_out": true, "stdout": "b3V0", "stderr": "", "truncated": true});
        assert_eq!(decode(&answer), json!({"parameters": parameters}));
        output("ExecSync", answer);
        let exec_id = "exec-1".to_owned();
        let started = StartedExec { exec_id: exec_id.clone(), pid: 5, socket: "/attach".to_owned() };
        output("Exec", encode(&ExecStarted { started }, true));
        let exited = ExitedExec { exec_id, exit_code: 0, timed_out: false };
        output("Exec", encode(&ExecExited { exited }, false));
        for &kind in EventKind::ALL {
            output("Events", encode(&Told { event: Event::now(kind) }, true));
        }
        for method in ["Signal", "Resize", "CloseStdin", "ReopenLogs", "Shutdown"] {
            output(method, encode(&Done {}, false));
        }
        assert_eq!(interface.types["State"], Type::Enum(State::ALL.iter().map(word).collect()));
        assert_eq!(interface.types["EventKind"], Type::Enum(EventKind::ALL.iter().map(word).collect()));
    }

    fn word(value: &impl Serialize) -> String {
        serde_json::to_value(value).unwrap().as_str().unwrap().to_owned()
    }

    #[test]
    fn only_an_answer_that_another_follows_says_so() {
        assert_eq!(encode(&Done {}, false), b"{\"parameters\":{}}");
        assert_eq!(encode(&Done {}, true), b"{\"parameters\":{},\"continues\":true}");
    }
}
