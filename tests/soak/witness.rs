//! A container that lives through all of it, with a client and some output every now and then: its monitor must not grow.

use std::fs;
use std::sync::{Mutex, PoisonError};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Process, Running, Sandbox, Script, Step, Tool, descriptors};

/// After how many looks its first size is taken: it has then done all that it does.
const WARM: usize = 20;

/// How much it may have grown, in KiB: two pages for what the allocator may do.
const TOLERANCE: usize = 8;

/// The container that lives on.
pub(crate) struct Witness {
    state: Mutex<State>,
}

struct State {
    // Before the sandbox that it is in.
    monitor: Running<'static>,
    sandbox: &'static Sandbox,
    looks: usize,
    /// Its descriptors before the first client.
    descriptors: usize,
    /// Its memory once it is warm.
    memory: Option<usize>,
}

impl Witness {
    /// Starts it.
    pub(crate) fn start() -> Self {
        // It lives as long as the program: that ends by removing it.
        let sandbox: &'static Sandbox = Box::leak(Box::new(Sandbox::with(&Script::new([Step::cat()]))));
        let mut monitor = sandbox.monitor(&Tool::under_test()).flag("-i").flag("--leave-stdin-open").start();
        monitor.pid();
        let descriptors = count_descriptors(&monitor);
        Self { state: Mutex::new(State { monitor, sandbox, looks: 0, descriptors, memory: None }) }
    }

    /// Attaches, types, reads the answer and leaves.
    pub(crate) fn look(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("look {}\n", state.looks);
        let mut client = state.monitor.attach();
        client.send(text.as_bytes());
        client.expect(&text);
        drop(client);
        state.looks += 1;
        if state.looks == WARM {
            state.memory = Some(private_memory(state.monitor.long()));
        }
    }

    /// Ends it. Gives a row of the table; panics if it has grown.
    pub(crate) fn end(self) -> String {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        // The last client is gone from it in a moment.
        let same = wait::whether(Deadline::usual(), || count_descriptors(&state.monitor) == state.descriptors);
        let left = count_descriptors(&state.monitor);
        let last = private_memory(state.monitor.long());
        let first = state.memory.unwrap_or(last);
        state.monitor.long().signal(nix::libc::SIGTERM);
        assert_eq!(state.monitor.exit_code(), "143");
        state.monitor.end();
        fs::remove_dir_all(state.sandbox.root()).expect("the witness's files");
        assert!(last <= first + TOLERANCE, "its monitor has grown from {first} to {last} KiB");
        assert!(same, "its monitor has {left} descriptors, not {}", state.descriptors);
        format!(
            "private memory of a monitor that lives through all of it, {} clients one after the other, KiB: at the start, at \
             the end | | {}, {}",
            state.looks, first, last
        )
    }
}

fn count_descriptors(monitor: &Running<'_>) -> usize {
    descriptors(&monitor.long().proc_dir()).expect("the monitor's descriptors").len()
}

/// What a process has for itself alone, in KiB.
pub(crate) fn private_memory(process: &Process) -> usize {
    let rollup = fs::read_to_string(process.proc_dir().join("smaps_rollup")).expect("a process's memory");
    let dirty = rollup.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).expect("a line");
    dirty.trim().trim_end_matches(" kB").parse().expect("a number")
}
