//! The rules, one by one, on the decider alone.

use std::time::Duration;

use super::*;

const RUNTIME: Pid = Pid::from_raw(100);
const PROCESS: Pid = Pid::from_raw(200);
const ORPHAN: Pid = Pid::from_raw(300);

const TERMINAL: CallSpec = CallSpec { runtime_timeout: Duration::from_secs(600), terminal: true };
const PIPES: CallSpec = CallSpec { terminal: false, ..TERMINAL };

/// A reaper and its clock.
struct Play {
    reaper: Reaper,
    now: Instant,
}

impl Play {
    fn new() -> Self {
        Self { reaper: Reaper::new(Timing::default()), now: Instant::now() }
    }

    fn start(&mut self, spec: &CallSpec) -> CallId {
        self.reaper.handle_runtime_started(self.now, RUNTIME, spec)
    }

    /// All that is to be done now.
    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.reaper.poll_action()).collect()
    }

    fn advance(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
        if self.reaper.next_timeout().is_some_and(|at| at <= self.now) {
            self.reaper.handle_timeout(self.now);
        }
    }

    fn runtime_exits(&mut self, call: CallId, code: i32) {
        self.reaper.handle_runtime_exit(self.now, call, ExitStatus::Code(code));
    }

    fn pid_file(&mut self, call: CallId, pid_file: PidFile) {
        assert_eq!(self.actions(), [Action::ReadPidFile(call)]);
        self.reaper.handle_pid_file(self.now, call, pid_file);
    }

    fn kinship(&mut self, call: CallId, kinship: Kinship) {
        assert_eq!(self.actions(), [Action::Examine(call, PROCESS)]);
        self.reaper.handle_kinship(self.now, call, kinship);
    }

    /// A call that goes well, to its registration.
    fn registered(&mut self) -> ChildId {
        let call = self.start(&PIPES);
        self.runtime_exits(call, 0);
        self.pid_file(call, PidFile::Pid(PROCESS));
        self.kinship(call, Kinship::Child);
        match self.actions()[..] {
            [Action::Register(_, child), Action::Report(Outcome::Started { .. })] => child,
            ref other => panic!("not registered: {other:?}"),
        }
    }

    fn zombies(&mut self, zombies: &[Pid]) -> Vec<Action> {
        self.reaper.handle_zombies(self.now, zombies);
        self.actions()
    }
}

fn failed(call: CallId, failure: Failure) -> Vec<Action> {
    vec![Action::Report(Outcome::Failed { call, failure }), Action::ListZombies]
}

#[test]
fn r2_a_call_that_goes_well_registers_its_process() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    assert!(play.actions().is_empty());
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    let actions = play.actions();
    let [Action::Register(of, child), Action::Report(Outcome::Started { call: started, child: same, pid })] =
        actions[..]
    else {
        panic!("{actions:?}");
    };
    assert_eq!((of, started, same, pid), (call, call, child, PROCESS));
    play.reaper.handle_child_exit(child, ExitStatus::Signal(9));
    assert_eq!(play.actions(), [Action::Report(Outcome::Exited { child, status: ExitStatus::Signal(9) })]);
    assert_eq!(play.reaper.next_timeout(), None);
}

#[test]
fn r1_nobody_but_its_owner_reaps_a_pending_or_registered_process() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    // The runtime has exited, and its owner was not told yet.
    assert!(play.zombies(&[RUNTIME]).is_empty());
    play.advance(5.0);
    assert!(play.zombies(&[RUNTIME]).is_empty());
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(PROCESS));
    // Claimed before it is examined (R10).
    assert_eq!(play.zombies(&[PROCESS]), [Action::Examine(call, PROCESS)]);
    play.reaper.handle_kinship(play.now, call, Kinship::Child);
    play.actions();
    play.advance(100.0);
    assert!(play.zombies(&[PROCESS]).is_empty());
    play.advance(100.0);
    assert!(play.zombies(&[PROCESS]).is_empty());
}

#[test]
fn r2_a_process_that_exits_before_its_call_knows_it_keeps_its_status() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    // It is a zombie for 20 s before its runtime ends: unclaimed, but a call may still claim it.
    assert!(play.zombies(&[PROCESS]).is_empty());
    play.advance(20.0);
    assert!(play.zombies(&[PROCESS]).is_empty());
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    let actions = play.actions();
    let Some(&Action::Register(_, child)) = actions.first() else { panic!("{actions:?}") };
    assert!(play.zombies(&[PROCESS]).is_empty());
    play.reaper.handle_child_exit(child, ExitStatus::Code(7));
    assert_eq!(play.actions(), [Action::Report(Outcome::Exited { child, status: ExitStatus::Code(7) })]);
}

#[test]
fn r3_an_unclaimed_zombie_is_reaped_after_its_grace_and_not_before() {
    let mut play = Play::new();
    assert!(play.zombies(&[ORPHAN]).is_empty());
    assert_eq!(play.reaper.next_timeout(), Some(play.now + Duration::from_secs(1)));
    play.advance(0.99);
    assert!(play.zombies(&[ORPHAN]).is_empty());
    play.advance(0.02);
    assert_eq!(play.actions(), [Action::ListZombies]);
    assert_eq!(play.zombies(&[ORPHAN]), [Action::ReapOrphan(ORPHAN)]);
    assert_eq!(play.reaper.next_timeout(), None);
}

#[test]
fn r3_a_pid_that_comes_again_has_its_own_grace() {
    let mut play = Play::new();
    play.zombies(&[ORPHAN]);
    play.advance(0.9);
    // Somebody reaped it meanwhile.
    assert!(play.zombies(&[]).is_empty());
    assert_eq!(play.reaper.next_timeout(), None);
    play.advance(0.2);
    assert!(play.zombies(&[ORPHAN]).is_empty());
}

#[test]
fn r4_a_call_that_started_after_the_zombie_was_seen_defers_nothing() {
    let mut play = Play::new();
    play.zombies(&[ORPHAN]);
    play.start(&PIPES);
    play.advance(1.0);
    play.actions();
    assert_eq!(play.zombies(&[ORPHAN]), [Action::ReapOrphan(ORPHAN)]);
}

#[test]
fn r4_deferral_ends_with_the_call_and_at_its_bound() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.zombies(&[ORPHAN]);
    play.advance(29.9);
    assert!(play.zombies(&[ORPHAN]).is_empty());
    play.advance(0.1);
    play.actions();
    assert_eq!(play.zombies(&[ORPHAN]), [Action::ReapOrphan(ORPHAN)]);

    // A second zombie is reaped as soon as the call has ended.
    play.zombies(&[PROCESS]);
    play.advance(10.0);
    assert!(play.zombies(&[PROCESS]).is_empty());
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Absent);
    play.reaper.handle_output_closed(call);
    assert!(play.actions().contains(&Action::ListZombies));
    assert_eq!(play.zombies(&[PROCESS]), [Action::ReapOrphan(PROCESS)]);
}

#[test]
fn r6_a_child_is_forgotten_by_its_registration_and_claims_nothing_once_reaped() {
    let mut play = Play::new();
    let first = play.registered();
    play.reaper.handle_child_exit(first, ExitStatus::Code(0));
    play.actions();
    // Another process has the PID now, first as an orphan, then as the next container.
    play.zombies(&[PROCESS]);
    play.advance(1.0);
    play.actions();
    assert_eq!(play.zombies(&[PROCESS]), [Action::ReapOrphan(PROCESS)]);
    let second = play.registered();
    assert_ne!(first, second);
    play.reaper.handle_child_exit(first, ExitStatus::Code(1));
    assert!(play.actions().is_empty());
    play.reaper.handle_child_exit(second, ExitStatus::Code(2));
    assert_eq!(play.actions(), [Action::Report(Outcome::Exited { child: second, status: ExitStatus::Code(2) })]);
}

#[test]
fn r7_without_a_zombie_there_is_no_timer() {
    let mut play = Play::new();
    play.registered();
    assert_eq!(play.reaper.next_timeout(), None);
    play.reaper.handle_sigchld(play.now);
    assert_eq!(play.actions(), [Action::ListZombies]);
    assert!(play.zombies(&[]).is_empty());
    assert_eq!(play.reaper.next_timeout(), None);
}

#[test]
fn r8_a_flood_of_sigchld_lists_the_children_at_intervals() {
    let mut play = Play::new();
    play.reaper.handle_sigchld(play.now);
    assert_eq!(play.actions(), [Action::ListZombies]);
    play.zombies(&[ORPHAN]);
    for _ in 0..10 {
        play.advance(0.004);
        play.reaper.handle_sigchld(play.now);
        assert!(play.actions().is_empty());
    }
    play.advance(0.011);
    assert_eq!(play.actions(), [Action::ListZombies]);
    // What was seen first is still due first.
    play.zombies(&[ORPHAN, PROCESS]);
    play.advance(0.95);
    assert_eq!(play.actions(), [Action::ListZombies]);
    assert_eq!(play.zombies(&[ORPHAN, PROCESS]), [Action::ReapOrphan(ORPHAN)]);
}

#[test]
fn r10_a_pid_that_is_no_child_fails_the_call_and_is_left_alone() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::None);
    assert!(play.actions().is_empty());
    play.reaper.handle_output_closed(call);
    assert_eq!(play.actions(), failed(call, Failure::NotOurs(PROCESS)));
}

#[test]
fn r10_a_descendant_is_accepted() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Descendant);
    assert!(matches!(play.actions()[..], [Action::Register(..), Action::Report(Outcome::Started { .. })]));
}

#[test]
fn r10_the_pid_of_a_registered_child_is_not_a_second_calls() {
    let mut play = Play::new();
    let child = play.registered();
    // A runtime that lies and fails must not get the container killed.
    let call = play.start(&PIPES);
    play.runtime_exits(call, 1);
    play.pid_file(call, PidFile::Pid(PROCESS));
    assert!(play.actions().is_empty());
    play.reaper.handle_output_closed(call);
    assert_eq!(play.actions(), failed(call, Failure::Runtime(ExitStatus::Code(1))));
    play.reaper.handle_child_exit(child, ExitStatus::Code(0));
    assert_eq!(play.actions(), [Action::Report(Outcome::Exited { child, status: ExitStatus::Code(0) })]);
}

#[test]
fn r10_no_pid_and_an_invalid_one_fail_the_call() {
    for (pid_file, failure) in
        [(PidFile::Absent, Failure::NoPid), (PidFile::Invalid("\"x\"".into()), Failure::InvalidPid("\"x\"".into()))]
    {
        let mut play = Play::new();
        let call = play.start(&PIPES);
        play.reaper.handle_output_closed(call);
        play.runtime_exits(call, 0);
        play.pid_file(call, pid_file);
        assert_eq!(play.actions(), failed(call, failure));
    }
}

#[test]
fn r12_a_runtime_that_hangs_is_killed_at_its_deadline() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.advance(599.9);
    assert!(play.actions().is_empty());
    play.advance(0.1);
    assert_eq!(play.actions(), [Action::KillRuntime(call)]);
    play.reaper.handle_runtime_exit(play.now, call, ExitStatus::Signal(9));
    play.pid_file(call, PidFile::Absent);
    play.reaper.handle_output_closed(call);
    assert_eq!(play.actions(), failed(call, Failure::TimedOut(Duration::from_secs(600))));
}

#[test]
fn r12_a_killed_runtime_that_does_not_die_holds_nothing_up() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.advance(600.0);
    play.actions();
    play.advance(4.9);
    assert!(play.actions().is_empty());
    play.advance(0.1);
    assert_eq!(play.actions(), [Action::AbandonRuntime(call), Action::ReadPidFile(call)]);
    play.reaper.handle_pid_file(play.now, call, PidFile::Absent);
    play.advance(5.0);
    assert_eq!(play.actions(), failed(call, Failure::TimedOut(Duration::from_secs(600))));
    // It is anybody's orphan now.
    play.zombies(&[RUNTIME]);
    play.advance(1.0);
    play.actions();
    assert_eq!(play.zombies(&[RUNTIME]), [Action::ReapOrphan(RUNTIME)]);
}

#[test]
fn r14_a_failed_runtime_may_end_by_itself_and_is_killed_after_that() {
    let mut play = Play::new();
    let call = play.start(&TERMINAL);
    play.reaper.handle_terminal_failed(play.now, call);
    play.advance(4.0);
    assert!(play.actions().is_empty());
    play.runtime_exits(call, 1);
    assert_eq!(play.actions(), [Action::ReadPidFile(call)]);

    let mut play = Play::new();
    let call = play.start(&TERMINAL);
    play.reaper.handle_terminal_failed(play.now, call);
    play.advance(5.0);
    assert_eq!(play.actions(), [Action::KillRuntime(call)]);
    play.reaper.handle_runtime_exit(play.now, call, ExitStatus::Signal(9));
    play.pid_file(call, PidFile::Absent);
    play.reaper.handle_output_closed(call);
    assert_eq!(play.actions(), failed(call, Failure::NoTerminal));
}

#[test]
fn r15_a_failed_call_kills_and_reaps_the_process_that_its_runtime_left() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.runtime_exits(call, 1);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    assert_eq!(play.actions(), [Action::KillProcess(call)]);
    // It is the call's until it was reaped.
    assert!(play.zombies(&[PROCESS]).is_empty());
    play.advance(2.0);
    assert!(play.zombies(&[PROCESS]).is_empty());
    play.reaper.handle_process_exit(play.now, call);
    play.reaper.handle_output_closed(call);
    assert_eq!(play.actions(), failed(call, Failure::Runtime(ExitStatus::Code(1))));
}

#[test]
fn r15_a_process_that_does_not_die_holds_the_failure_up_for_its_grace_only() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.reaper.handle_output_closed(call);
    play.runtime_exits(call, 1);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    play.actions();
    play.advance(5.0);
    let mut expected = vec![Action::AbandonProcess(call)];
    expected.extend(failed(call, Failure::Runtime(ExitStatus::Code(1))));
    assert_eq!(play.actions(), expected);
}

#[test]
fn r16_helpers_get_their_grace_to_close_the_output() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.runtime_exits(call, 1);
    play.pid_file(call, PidFile::Absent);
    play.advance(4.9);
    assert!(play.actions().is_empty());
    play.advance(0.1);
    assert_eq!(play.actions(), failed(call, Failure::Runtime(ExitStatus::Code(1))));
}

#[test]
fn r16_the_terminal_is_to_be_connected_within_the_grace_after_a_clean_exit() {
    let mut play = Play::new();
    let call = play.start(&TERMINAL);
    play.runtime_exits(call, 0);
    assert!(play.actions().is_empty());
    play.advance(4.9);
    play.reaper.handle_terminal_connected(call);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    assert!(matches!(play.actions()[..], [Action::Register(..), ..]));

    let mut play = Play::new();
    let call = play.start(&TERMINAL);
    play.runtime_exits(call, 0);
    play.advance(5.0);
    // By R15: the process that waits behind the terminal is killed.
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    assert_eq!(play.actions(), [Action::KillProcess(call)]);
    play.reaper.handle_process_exit(play.now, call);
    play.reaper.handle_output_closed(call);
    assert_eq!(play.actions(), failed(call, Failure::NoTerminal));
}

#[test]
fn r18_signals_go_to_the_children_and_before_there_is_one_to_the_runtime() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.reaper.handle_termination(Signal::SIGINT);
    assert_eq!(play.actions(), [Action::SignalRuntime(call, Signal::SIGINT)]);
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    let actions = play.actions();
    let Some(&Action::Register(_, child)) = actions.first() else { panic!("{actions:?}") };
    play.reaper.handle_termination(Signal::SIGTERM);
    assert_eq!(play.actions(), [Action::SignalChild(child, Signal::SIGTERM)]);
    play.reaper.handle_child_exit(child, ExitStatus::Signal(15));
    play.actions();
    play.reaper.handle_termination(Signal::SIGTERM);
    assert!(play.actions().is_empty());
}

#[test]
fn r18_a_signal_between_runtime_and_registration_reaches_the_process() {
    let mut play = Play::new();
    let call = play.start(&TERMINAL);
    play.runtime_exits(call, 0);
    play.reaper.handle_termination(Signal::SIGTERM);
    assert!(play.actions().is_empty());
    play.reaper.handle_terminal_connected(call);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    assert!(matches!(
        play.actions()[..],
        [Action::Register(_, child), Action::Report(_), Action::SignalChild(same, Signal::SIGTERM)] if child == same
    ));
}

#[test]
fn several_calls_and_children_do_not_mix() {
    let mut play = Play::new();
    let first = play.registered();
    let runtimes = [Pid::from_raw(101), Pid::from_raw(102)];
    let calls = runtimes.map(|runtime| play.reaper.handle_runtime_started(play.now, runtime, &PIPES));
    play.runtime_exits(calls[1], 3);
    play.pid_file(calls[1], PidFile::Absent);
    play.reaper.handle_output_closed(calls[1]);
    assert_eq!(play.actions(), failed(calls[1], Failure::Runtime(ExitStatus::Code(3))));
    assert!(play.zombies(&[runtimes[0], PROCESS]).is_empty());
    play.advance(2.0);
    assert!(play.zombies(&[runtimes[0], PROCESS]).is_empty());
    play.reaper.handle_child_exit(first, ExitStatus::Code(0));
    assert_eq!(play.actions(), [Action::Report(Outcome::Exited { child: first, status: ExitStatus::Code(0) })]);
    play.runtime_exits(calls[0], 0);
    assert_eq!(play.actions(), [Action::ReadPidFile(calls[0])]);
}
