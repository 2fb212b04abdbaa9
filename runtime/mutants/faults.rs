// The faults: what is right in a source file of the reaper, found exactly once there, and what is put in its place.

/// What is put in the place of what is right. `FAULT` in it is whether this fault is switched on.
enum Put {
    /// This value instead of that.
    Value(&'static str),
    /// These statements instead of that one.
    Statements(&'static str),
    /// All of this, whether or not it is switched on.
    Text(&'static str),
}

use Put::{Statements, Text, Value};

struct Fault {
    name: &'static str,
    file: &'static str,
    right: &'static str,
    put: Put,
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "reaps_the_runtime_of_a_call_as_an_orphan",
        file: "call.rs",
        right: "self.runtime == Some(pid) || self.process == Some(pid)",
        put: Value("self.process == Some(pid)"),
    },
    Fault {
        name: "reaps_the_process_of_a_call_as_an_orphan",
        file: "call.rs",
        right: "self.runtime == Some(pid) || self.process == Some(pid)",
        put: Value("self.runtime == Some(pid)"),
    },
    Fault {
        name: "reaps_registered_children_as_orphans",
        file: "sweep.rs",
        right: "self.children.iter().find(|child| child.pid == Some(pid))",
        put: Value("self.children.iter().find(|_| false)"),
    },
    Fault {
        name: "keeps_the_pid_of_a_reaped_child_claimed",
        file: "child.rs",
        right: "child.pid.take().is_none()",
        put: Value("child.pid.is_none()"),
    },
    Fault {
        name: "reaps_without_grace",
        file: "sweep.rs",
        right: "self.first_seen + timing.orphan_grace",
        put: Value("self.first_seen"),
    },
    Fault {
        name: "defers_nothing",
        file: "sweep.rs",
        right: "grace.max(until.min(self.first_seen + timing.orphan_max_defer))",
        put: Value("grace"),
    },
    Fault {
        name: "defers_for_ever",
        file: "sweep.rs",
        right: "grace.max(until.min(self.first_seen + timing.orphan_max_defer))",
        put: Value("grace.max(until)"),
    },
    Fault {
        name: "defers_for_later_calls",
        file: "sweep.rs",
        right: "self.newest_call.is_some_and(|newest| call.id <= newest) && call.may_claim()",
        put: Value("call.may_claim()"),
    },
    Fault {
        name: "defers_in_a_shutdown",
        file: "sweep.rs",
        right: "if self.shutdown.is_some() { &[][..] } else { &self.calls[..] }",
        put: Value("&self.calls[..]"),
    },
    Fault {
        name: "accepts_a_pid_that_the_sweep_reaped",
        file: "call.rs",
        right: "if self.sweep.reaped_during(id, pid) {",
        put: Text("if !FAULT && self.sweep.reaped_during(id, pid) {"),
    },
    Fault {
        name: "refuses_a_pid_that_the_sweep_reaped_before_the_call",
        file: "sweep.rs",
        right: "call <= newest_call",
        put: Value("true"),
    },
    Fault {
        name: "keeps_what_it_reaped_for_ever",
        file: "sweep.rs",
        right: "None => self.reaped.clear(),",
        put: Text("None if FAULT => {}
            None => self.reaped.clear(),"),
    },
    Fault {
        name: "does_not_read_pid_files_before_it_reaps",
        file: "sweep.rs",
        right: "self.actions.extend(calls.map(|call| Action::ReadPidFile(call.id)));",
        put: Statements("let _ = calls;"),
    },
    Fault {
        name: "reaps_what_was_claimed_since",
        file: "sweep.rs",
        right: "let orphan = !self.is_claimed(pid);",
        put: Text("let orphan = FAULT || !self.is_claimed(pid);"),
    },
    Fault {
        name: "looks_at_no_zombie_that_had_to_wait",
        file: "sweep.rs",
        right: "Some(when) => self.bring_forward(Timer::Look, when),",
        put: Text("Some(_) if FAULT => {}
            Some(when) => self.bring_forward(Timer::Look, when),"),
    },
    Fault {
        name: "reaps_one_slice_of_a_flood",
        file: "sweep.rs",
        right: "rest > 0",
        put: Value("false"),
    },
    Fault {
        name: "kills_without_the_check",
        file: "call.rs",
        right: "self.actions.push_back(Action::Examine(id, pid));",
        put: Statements("self.actions.push_back(Action::KillProcess(id));"),
    },
    Fault {
        name: "registers_a_stranger",
        file: "call.rs",
        right: "(Kinship::Child | Kinship::Descendant, Purpose::Register(_)) =>",
        put: Text("(_, Purpose::Register(_)) if FAULT => self.register(now, id, pid),
            (Kinship::Child | Kinship::Descendant, Purpose::Register(_)) =>"),
    },
    Fault {
        name: "takes_the_process_of_another",
        file: "call.rs",
        right: "self.children.iter().any(|child| child.pid == Some(pid))",
        put: Value("false"),
    },
    Fault {
        name: "leaves_the_process_of_a_failed_call",
        file: "call.rs",
        right: "fn clean_up(&mut self, id: CallId, failure: Failure) {",
        put: Text("fn clean_up(&mut self, id: CallId, failure: Failure) {
        if FAULT { return self.fail(id, failure); }"),
    },
    Fault {
        name: "waits_for_a_killed_runtime_for_ever",
        file: "call.rs",
        right: "self.enter(id, Phase::RuntimeKilled(failure), now + self.runtime_exit_wait());",
        put: Statements("self.set_phase(id, Phase::RuntimeKilled(failure));"),
    },
    Fault {
        name: "lets_a_runtime_hang",
        file: "call.rs",
        right: "self.deadlines.set(Timer::Call(id), runtime_deadline);",
        put: Statements(""),
    },
    Fault {
        name: "waits_for_helpers_for_ever",
        file: "call.rs",
        right: "self.enter(id, Phase::Draining(failure), now + self.output_wait());",
        put: Statements("self.set_phase(id, Phase::Draining(failure));"),
    },
    Fault {
        name: "signals_after_it_reaped",
        file: "mod.rs",
        right: "if !self.is_unreaped(id) => {}",
        put: Text("if !FAULT && !self.is_unreaped(id) => {}"),
    },
    Fault {
        name: "passes_no_signal_on_but_to_the_first",
        file: "shutdown.rs",
        right: "self.actions.extend(main.map(|child| Action::SignalChild(child.id, signal)));",
        put: Statements("self.actions.extend(main.take(1).map(|child| Action::SignalChild(child.id, signal)));"),
    },
    Fault {
        name: "misses_what_is_registered_in_a_shutdown",
        file: "child.rs",
        right: "let kind = if call.is_main() {",
        put: Text("let kind = if FAULT && self.shutdown.is_some() { Kind::Helper } else if call.is_main() {"),
    },
    Fault {
        name: "stops_no_call_in_a_shutdown",
        file: "shutdown.rs",
        right: "self.stop_calls(now);",
        put: Statements("let _ = now;"),
    },
    Fault {
        name: "kills_nothing_in_a_shutdown",
        file: "shutdown.rs",
        right: "self.kill_children();",
        put: Statements(""),
    },
    Fault {
        name: "names_no_abandoned_process",
        file: "shutdown.rs",
        right: ".chain(self.abandoned.iter().copied())",
        put: Text(".chain(self.abandoned.iter().copied().filter(|_| !FAULT))"),
    },
    Fault {
        name: "says_timed_out_of_what_ended_in_time",
        file: "child.rs",
        right: "match (child.state, status) {",
        put: Text("match (child.state, status) {
            (State::Expiring { limit }, Some(_)) if FAULT => self.finish_timed_out(id, limit),"),
    },
    Fault {
        name: "says_timed_out_before_it_reaped",
        file: "child.rs",
        right: "} else if child.pid.is_none() {",
        put: Text("} else if FAULT || child.pid.is_none() {"),
    },
    Fault {
        name: "walks_a_tree_once",
        file: "child.rs",
        right: "walk == Walk::Settled || slices == 0",
        put: Value("true"),
    },
    Fault {
        name: "holds_nothing_to_its_timeout",
        file: "child.rs",
        right: "self.deadlines.set(Timer::Child(id), when);",
        put: Statements("let _ = when;"),
    },
    Fault {
        name: "leaves_the_tree_of_an_exec_that_ended_meanwhile",
        file: "child.rs",
        right: "(State::Stopping { limit, .. }, _) => self.kill_tree(id, limit),",
        put: Text("(State::Stopping { limit, .. }, _) if FAULT => self.finish_timed_out(id, limit),
            (State::Stopping { limit, .. }, _) => self.kill_tree(id, limit),"),
    },
    Fault {
        name: "loses_a_status_that_comes_late",
        file: "child.rs",
        right: "(State::Running(_) | State::Expiring { .. } | State::Ended, Some(status)) => {",
        put: Text("(State::Ended, Some(_)) if FAULT => {}
            (State::Running(_) | State::Expiring { .. } | State::Ended, Some(status)) => {"),
    },
    Fault {
        name: "does_not_wait_for_a_status",
        file: "child.rs",
        right: "self.deadlines.set(Timer::Status(id), now + self.timing.runtime_grace);",
        put: Statements("self.deadlines.set(Timer::Status(id), now);"),
    },
    Fault {
        name: "cancels_nothing",
        file: "child.rs",
        right: "if let State::Running(_) = child.state {",
        put: Text("if let (State::Running(_), false) = (child.state, FAULT) {"),
    },
    Fault {
        name: "cancels_a_process_and_nothing_below_it",
        file: "child.rs",
        right: "child.state = State::Stopping { limit, slices: TREE_SLICES };",
        put: Text("if FAULT && limit.is_zero() {
                child.state = State::Killed { limit };
                return self.actions.push_back(Action::KillChild(id));
            }
            child.state = State::Stopping { limit, slices: TREE_SLICES };"),
    },
];
