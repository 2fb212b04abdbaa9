//! Calls: R2, R10, R12 to R16.

use super::*;

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
    assert_eq!(play.zombies(&[PROCESS]), [Action::Collect(child)]);
    play.reaper.handle_child_exit(child, ExitStatus::Code(7));
    assert_eq!(play.actions(), [exited(child, ExitStatus::Code(7)), Action::ListZombies]);
}

#[test]
fn r10_a_pid_that_is_no_child_fails_the_call_and_is_left_alone() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::None);
    // It is nobody's any more.
    assert_eq!(play.actions(), [Action::ListZombies]);
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
fn several_calls_and_children_do_not_mix() {
    let mut play = Play::new();
    let first = play.registered();
    let runtimes = [Pid::from_raw(101), Pid::from_raw(102)];
    let calls = runtimes.map(|runtime| play.reaper.handle_runtime_started(play.now, runtime, &PIPES));
    play.runtime_exits(calls[1], 3);
    play.pid_file(calls[1], PidFile::Absent);
    play.reaper.handle_output_closed(calls[1]);
    assert_eq!(play.actions(), failed(calls[1], Failure::Runtime(ExitStatus::Code(3))));
    assert_eq!(play.zombies(&[runtimes[0], PROCESS]), [Action::Collect(first)]);
    play.advance(0.5);
    assert_eq!(play.zombies(&[runtimes[0], PROCESS]), [Action::Collect(first)]);
    play.reaper.handle_child_exit(first, ExitStatus::Code(0));
    assert_eq!(play.actions(), [exited(first, ExitStatus::Code(0)), Action::ListZombies]);
    play.runtime_exits(calls[0], 0);
    assert_eq!(play.actions(), [Action::ReadPidFile(calls[0])]);
}

#[test]
fn an_exec_whose_runtime_fails_but_left_a_pid_has_not_failed() {
    let mut play = Play::new();
    let call = play.start(&EXEC);
    play.runtime_exits(call, 3);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    assert!(matches!(play.actions()[..], [Action::Register(..), Action::Report(Outcome::Started { .. })]));

    let mut play = Play::new();
    let call = play.start(&EXEC);
    play.reaper.handle_output_closed(call);
    play.runtime_exits(call, 3);
    play.pid_file(call, PidFile::Absent);
    assert_eq!(play.actions(), failed(call, Failure::Runtime(ExitStatus::Code(3))));
}

#[test]
fn r12_the_runtime_of_an_exec_has_its_grace_beyond_the_timeout() {
    let timed = CallSpec { timeout: Some(Timeout::SinceRequest(seconds(10.0))), ..EXEC };
    for (spec, limit) in [(EXEC, 60.0), (timed, 70.0)] {
        let mut play = Play::new();
        let call = play.start(&spec);
        play.advance(limit - 0.1);
        assert!(play.actions().is_empty());
        play.advance(0.1);
        assert_eq!(play.actions(), [Action::KillRuntime(call)]);
    }
}

#[test]
fn r14_a_failed_runtime_is_killed_at_its_deadline_at_the_latest() {
    let mut play = Play::new();
    let call = play.start(&CallSpec { terminal: true, ..EXEC });
    play.advance(58.0);
    play.reaper.handle_terminal_failed(play.now, call);
    play.advance(2.0);
    assert_eq!(play.actions(), [Action::KillRuntime(call)]);
}

#[test]
fn r15_what_another_call_holds_too_is_not_killed() {
    let mut play = Play::new();
    let liar = play.start(&PIPES);
    let honest = play.reaper.handle_runtime_started(play.now, Pid::from_raw(101), &TERMINAL);
    play.runtime_exits(honest, 0);
    // The sweep had the honest one's file read.
    play.reaper.handle_pid_file(play.now, honest, PidFile::Pid(PROCESS));
    play.runtime_exits(liar, 1);
    play.pid_file(liar, PidFile::Pid(PROCESS));
    assert!(!play.actions().iter().any(|action| matches!(action, Action::Examine(..))));
    play.reaper.handle_terminal_connected(honest);
    play.pid_file(honest, PidFile::Pid(PROCESS));
    play.kinship(honest, Kinship::Child);
    assert!(matches!(play.actions()[..], [Action::Register(..), ..]));
}

#[test]
fn r2_a_pid_that_two_calls_hold_is_claimed_until_both_let_go() {
    let mut play = Play::new();
    let calls = [RUNTIME, Pid::from_raw(101)].map(|pid| play.reaper.handle_runtime_started(play.now, pid, &PIPES));
    for call in calls {
        play.reaper.handle_pid_file(play.now, call, PidFile::Pid(PROCESS));
        play.reaper.handle_output_closed(call);
    }
    for call in calls {
        play.advance(2.0);
        assert!(play.zombies(&[PROCESS]).is_empty());
        play.runtime_exits(call, 1);
        play.pid_file(call, PidFile::Invalid("x".into()));
        play.actions();
    }
    play.zombies(&[PROCESS]);
    play.advance(1.0);
    play.actions();
    assert_eq!(play.zombies(&[PROCESS]), [Action::ReapOrphan(PROCESS)]);
}
