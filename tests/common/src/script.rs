//! What the fake runtime does: the contents of a bundle's `fake.json`.
//!
//! A script has two stories, the runtime's and that of the container's process (the payload). Each is a list of steps
//! done in order; after the last one the process ends with status 0. A step is a list, its name first. The usual
//! runtime, with a payload that says hello and ends with status 3:
//!
//! ```json
//! {
//!   "runtime": [["Payload"], ["Console", ["Terminal"]], ["PidFile", "{payload}"]],
//!   "payload": [["Print", ["Stdout"], "hello\n"], ["Exit", 3]]
//! }
//! ```
//!
//! An *event* is a fifo in the bundle, made by the test before anything starts ([`crate::Sandbox::event`]); both sides
//! can fire it and wait for it. Prefer events to sleeps: they put two things in order whatever the machine's load.

use std::fmt::Write as _;

use crate::wire::{wire_enum, wire_struct};

/// The name of the script in the bundle.
pub const FILE: &str = "fake.json";

/// The file in the bundle where the runtime says what it was started with ([`crate::Facts`]).
pub const RUNTIME_FACTS: &str = "runtime.json";

wire_struct! {
    /// What the runtime does, and what its container does.
    pub struct Script {
        /// The runtime's story.
        pub runtime: Vec<Step>,
        /// The payload's story.
        pub payload: Vec<Step>,
    }
}

impl Script {
    /// A runtime that behaves, with `payload` in its container.
    pub fn new(payload: impl Into<Vec<Step>>) -> Self {
        Self { runtime: Step::usual().into(), payload: payload.into() }
    }

    /// A runtime with a story of its own.
    pub fn runtime(runtime: impl Into<Vec<Step>>) -> Self {
        Self { runtime: runtime.into(), payload: Vec::new() }
    }

    /// The same with another payload.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<Step>>) -> Self {
        self.payload = payload.into();
        self
    }
}

wire_enum! {
    /// One thing to do.
    pub enum Step {
        /// Sleeps so many milliseconds.
        Sleep(millis: u64),
        /// Waits until the event was fired.
        Await(event: String),
        /// Fires the event.
        Fire(event: String),
        /// Writes the text.
        Print(to: Out, text: String),
        /// Writes [`noise`]: so many bytes, with this seed.
        Noise(to: Out, bytes: usize, seed: u64),
        /// Writes [`lines`]: so many, of so many bytes each.
        Lines(to: Out, count: usize, width: usize),
        /// Writes for ever.
        Flood(to: Out),
        /// Reads stdin: so many bytes, or to its end.
        Stdin(bytes: Option<usize>, to: Sink),
        /// Closes a descriptor.
        Close(fd: i32),
        /// Blocks the signal, so that the process does not die of it.
        Block(signal: i32),
        /// Blocks the signal and waits for one.
        AwaitSignal(signal: i32),
        /// Leaves its session for a new one.
        Setsid,
        /// Starts a process with these steps, which inherits everything, and does not wait for it.
        Spawn(steps: Vec<Step>),
        /// Runs a command to its end.
        Run(argv: Vec<String>),
        /// Becomes a command.
        Exec(argv: Vec<String>),
        /// Writes [`crate::Facts`] about itself into a file of the bundle.
        Report(file: String),
        /// Writes what is below the bundle's parent directory ([`crate::tree`]) into a file of the bundle.
        Tree(file: String),
        /// Ends with this status.
        Exit(status: i32),
        /// Sends itself a signal.
        Raise(signal: i32),
        /// Does nothing for ever.
        Hang,

        /// The runtime alone: starts the payload.
        Payload,
        /// The runtime alone: writes the pid file as runtimes do, by a temporary file and a rename. `{payload}`,
        /// `{self}` and `{parent}` stand for pids.
        PidFile(text: String),
        /// The runtime alone: writes the payload's pid in place, first so many digits, then, after the event, the rest.
        TornPidFile(first: usize, event: String),
        /// The runtime alone: connects to the console socket, if it was given one.
        Console(what: Console),
    }
}

impl Step {
    /// What a runtime does that behaves.
    pub fn usual() -> [Self; 3] {
        [Self::Payload, Self::Console(Console::Terminal), Self::pid()]
    }

    /// The right pid file.
    pub fn pid() -> Self {
        Self::PidFile("{payload}".to_owned())
    }

    /// Prints to stdout.
    pub fn out(text: &str) -> Self {
        Self::Print(Out::Stdout, text.to_owned())
    }

    /// Prints to stderr.
    pub fn err(text: &str) -> Self {
        Self::Print(Out::Stderr, text.to_owned())
    }

    /// Waits for an event.
    pub fn wait(event: &str) -> Self {
        Self::Await(event.to_owned())
    }

    /// Fires an event.
    pub fn fire(event: &str) -> Self {
        Self::Fire(event.to_owned())
    }

    /// Runs a command.
    pub fn run(argv: &[&str]) -> Self {
        Self::Run(argv.iter().map(ToString::to_string).collect())
    }

    /// Becomes a shell with this script.
    pub fn shell(script: &str) -> Self {
        Self::Exec(["/bin/sh", "-c", script].map(str::to_owned).into())
    }

    /// Copies stdin to stdout until its end, as cat does.
    pub fn cat() -> Self {
        Self::Stdin(None, Sink::Stdout)
    }

    /// Writes facts into a file of the bundle.
    pub fn report(file: &str) -> Self {
        Self::Report(file.to_owned())
    }
}

wire_enum! {
    /// An output stream.
    pub enum Out {
        /// Descriptor 1.
        Stdout,
        /// Descriptor 2.
        Stderr,
    }
}

impl Copy for Out {}

wire_enum! {
    /// Where what was read goes.
    pub enum Sink {
        /// Back to stdout.
        Stdout,
        /// Into a file of the bundle.
        File(name: String),
        /// Nowhere.
        Nowhere,
    }
}

wire_enum! {
    /// What is sent over the console socket.
    pub enum Console {
        /// The terminal.
        Terminal,
        /// A regular file.
        PlainFile,
        /// Data without a descriptor.
        NoDescriptor,
        /// The terminal and another descriptor.
        TwoDescriptors,
        /// Nothing: it connects and hangs up.
        Nothing,
        /// Nothing, and the connection stays open for as long as the runtime lives.
        Silence,
    }
}

impl Copy for Console {}

/// Bytes that look random and are the same for the same seed.
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// Numbered lines of one width: a number, then dots, then a newline.
pub fn lines(count: usize, width: usize) -> Vec<u8> {
    let mut out = String::with_capacity(count * width);
    for number in 0..count {
        let start = out.len();
        // Writing to a string cannot fail.
        let _ = write!(out, "{number}");
        while out.len() - start + 1 < width {
            out.push('.');
        }
        out.push('\n');
    }
    out.into_bytes()
}
