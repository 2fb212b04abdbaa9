//! Signals and the shutdown: R18 to R21.

use super::*;

#[test]
fn r18_signals_go_to_the_children_and_before_there_is_one_to_the_runtime() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.reaper.handle_termination(play.now, Signal::SIGINT);
    assert_eq!(play.actions(), [Action::SignalRuntime(call, Signal::SIGINT)]);
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    let actions = play.actions();
    let Some(&Action::Register(_, child)) = actions.first() else { panic!("{actions:?}") };
    play.reaper.handle_termination(play.now, Signal::SIGTERM);
    assert_eq!(play.actions(), [Action::SignalChild(child, Signal::SIGTERM)]);
    play.reaper.handle_child_exit(child, ExitStatus::Signal(15));
    play.actions();
    play.reaper.handle_termination(play.now, Signal::SIGTERM);
    assert!(play.actions().is_empty());
}

#[test]
fn r18_a_signal_between_runtime_and_registration_reaches_the_process() {
    let mut play = Play::new();
    let call = play.start(&TERMINAL);
    play.runtime_exits(call, 0);
    play.reaper.handle_termination(play.now, Signal::SIGTERM);
    assert!(play.actions().is_empty());
    play.reaper.handle_terminal_connected(call);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    assert!(matches!(
        play.actions()[..],
        [Action::Register(_, child), Action::Report(_), Action::SignalChild(same, Signal::SIGTERM)] if child == same
    ));
}

const EXEC_RUNTIME: Pid = Pid::from_raw(101);
const EXEC_PROCESS: Pid = Pid::from_raw(201);

fn shut_down(left: &[Pid]) -> Action {
    Action::Report(Outcome::ShutDown { left: left.to_vec() })
}

#[test]
fn r18_a_shutdown_follows_a_signal_where_it_has_a_deadline() {
    let mut play = Play::new();
    play.reaper = Reaper::new(Timing { shutdown_timeout: Some(seconds(10.0)), ..Timing::default() });
    let child = play.registered();
    play.reaper.handle_termination(play.now, Signal::SIGINT);
    assert_eq!(
        play.actions(),
        [Action::SignalChild(child, Signal::SIGINT), Action::SignalChild(child, Signal::SIGTERM), Action::ListZombies]
    );
    assert!(!play.reaper.accepts_calls());
    play.advance(3.0);
    play.actions();
    // Again: passed on, and nothing begins anew.
    play.reaper.handle_termination(play.now, Signal::SIGTERM);
    assert_eq!(play.actions(), [Action::SignalChild(child, Signal::SIGTERM)]);
    play.advance(5.0);
    assert_eq!(play.actions(), [Action::KillChild(child)]);
}

#[test]
fn r19_processes_are_told_to_end_and_killed_before_the_deadline() {
    let mut play = Play::new();
    let container = play.registered();
    let exec = play.registered_as(&EXEC, EXEC_RUNTIME, EXEC_PROCESS);
    play.reaper.handle_shutdown(play.now, seconds(20.0)).unwrap();
    assert_eq!(play.actions(), [Action::SignalChild(container, Signal::SIGTERM), Action::ListZombies]);
    play.advance(17.9);
    assert!(play.actions().is_empty());
    play.advance(0.1);
    assert_eq!(play.actions(), [Action::KillChild(container), Action::KillChild(exec)]);
    play.child_exits(exec, 0);
    play.child_exits(container, 0);
    assert_eq!(
        play.actions(),
        [exited(exec, ExitStatus::Code(0)), exited(container, ExitStatus::Code(0)), shut_down(&[])]
    );
    assert_eq!(play.reaper.next_timeout(), None);
}

#[test]
fn r19_what_is_left_is_killed_early_once_there_is_nothing_to_wait_for() {
    let mut play = Play::new();
    let container = play.registered();
    let exec = play.registered_as(&EXEC, EXEC_RUNTIME, EXEC_PROCESS);
    play.reaper.handle_shutdown(play.now, seconds(20.0)).unwrap();
    play.actions();
    play.advance(1.0);
    play.child_exits(container, 0);
    play.actions();
    play.advance(0.0);
    assert_eq!(play.actions(), [Action::KillChild(exec)]);
    play.child_exits(exec, 0);
    assert_eq!(play.actions(), [exited(exec, ExitStatus::Code(0)), shut_down(&[])]);
}

#[test]
fn r19_calls_are_stopped_after_their_wait() {
    for (deadline, stopped_after) in [(20.0, 5.0), (4.0, 2.0), (2.0, 0.0)] {
        let mut play = Play::new();
        let call = play.start(&PIPES);
        play.reaper.handle_shutdown(play.now, seconds(deadline)).unwrap();
        assert_eq!(play.actions(), [Action::ListZombies]);
        if stopped_after > 0.0 {
            play.advance(stopped_after - 0.1);
            assert!(play.actions().is_empty());
            play.advance(0.1);
        } else {
            play.advance(0.0);
        }
        assert_eq!(play.actions(), [Action::KillRuntime(call)]);
        play.reaper.handle_runtime_exit(play.now, call, ExitStatus::Signal(9));
        play.pid_file(call, PidFile::Absent);
        play.reaper.handle_output_closed(call);
        let actions = play.actions();
        assert_eq!(actions[..2], failed(call, Failure::ShuttingDown)[..]);
        assert_eq!(actions[2..], [shut_down(&[])]);
    }
}

#[test]
fn r19_a_call_that_ends_by_itself_registers_and_its_process_is_killed_in_time() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.reaper.handle_shutdown(play.now, seconds(20.0)).unwrap();
    play.actions();
    play.advance(1.0);
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    let actions = play.actions();
    let [Action::Register(_, child), _, Action::SignalChild(_, Signal::SIGTERM)] = actions[..] else {
        panic!("{actions:?}")
    };
    play.advance(17.0);
    assert_eq!(play.actions(), [Action::KillChild(child)]);
}

#[test]
fn r19_what_is_registered_after_the_kill_is_killed_at_once() {
    let mut play = Play::new();
    let call = play.start(&TERMINAL);
    play.runtime_exits(call, 0);
    play.reaper.handle_shutdown(play.now, seconds(20.0)).unwrap();
    play.actions();
    play.now += seconds(18.0);
    // Both are due in one round; the terminal comes in the same.
    play.reaper.handle_timeout(play.now);
    let actions = play.actions();
    assert_eq!(actions, [Action::ReadPidFile(call)]);
    // The call was stopped while it waited for its terminal: its process is cleaned up.
    play.reaper.handle_pid_file(play.now, call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    assert_eq!(play.actions(), [Action::KillProcess(call)]);

    let mut play = Play::new();
    let call = play.start(&EXEC);
    play.reaper.handle_shutdown(play.now, seconds(2.0)).unwrap();
    play.runtime_exits(call, 0);
    play.advance(0.0);
    assert_eq!(play.actions(), [Action::ListZombies, Action::ReadPidFile(call)]);
    play.reaper.handle_pid_file(play.now, call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    assert!(matches!(play.actions()[..], [Action::Register(..), Action::Report(_), Action::KillChild(_)]));
}

#[test]
fn r19_a_budget_that_cannot_be_kept_is_refused() {
    let mut play = Play::new();
    assert_eq!(
        play.reaper.handle_shutdown(play.now, seconds(1.9)),
        Err(InvalidBudget::DeadlineBelowStopBudget { deadline: seconds(1.9), budget: seconds(2.0) })
    );
    assert!(play.reaper.accepts_calls());
    let timing = Timing { stop_budget: seconds(1.6), ..Timing::default() };
    assert_eq!(
        timing.validate(),
        Err(InvalidBudget::StopBudgetBelowWaits { budget: seconds(1.6), needed: seconds(1.7) })
    );
    let timing = Timing { shutdown_timeout: Some(seconds(1.0)), ..Timing::default() };
    assert!(matches!(timing.validate(), Err(InvalidBudget::DeadlineBelowStopBudget { .. })));
    assert_eq!(Timing { stop_budget: seconds(1.7), ..Timing::default() }.validate(), Ok(()));
}

#[test]
fn r19_asked_again_a_shutdown_ends_earlier_but_not_later() {
    let mut play = Play::new();
    let container = play.registered();
    play.reaper.handle_shutdown(play.now, seconds(20.0)).unwrap();
    play.actions();
    play.advance(1.0);
    play.reaper.handle_shutdown(play.now, seconds(60.0)).unwrap();
    assert!(play.actions().is_empty());
    play.reaper.handle_shutdown(play.now, seconds(5.0)).unwrap();
    play.actions();
    play.advance(3.0);
    assert_eq!(play.actions(), [Action::KillChild(container)]);
    play.advance(2.0);
    assert_eq!(play.actions(), [shut_down(&[PROCESS])]);
}

#[test]
fn r20_what_is_stuck_is_named_at_the_deadline_and_has_no_exit() {
    let mut play = Play::new();
    let container = play.registered();
    let call = play.reaper.handle_runtime_started(play.now, EXEC_RUNTIME, &EXEC);
    play.reaper.handle_shutdown(play.now, seconds(10.0)).unwrap();
    play.actions();
    play.advance(5.0);
    assert_eq!(play.actions(), [Action::KillRuntime(call)]);
    play.advance(0.5);
    assert_eq!(play.actions(), [Action::AbandonRuntime(call), Action::ReadPidFile(call)]);
    play.reaper.handle_pid_file(play.now, call, PidFile::Absent);
    play.advance(0.2);
    assert_eq!(play.actions(), failed(call, Failure::ShuttingDown));
    play.advance(2.3);
    assert_eq!(play.actions(), [Action::KillChild(container)]);
    play.advance(2.0);
    assert_eq!(play.actions(), [shut_down(&[EXEC_RUNTIME, PROCESS])]);
}

#[test]
fn r20_an_abandoned_runtime_that_dies_after_all_is_not_left() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.reaper.handle_shutdown(play.now, seconds(10.0)).unwrap();
    play.advance(5.0);
    play.actions();
    play.advance(0.5);
    play.actions();
    play.reaper.handle_pid_file(play.now, call, PidFile::Absent);
    play.advance(0.2);
    assert_eq!(play.actions(), failed(call, Failure::ShuttingDown));
    play.zombies(&[RUNTIME]);
    play.advance(1.0);
    play.actions();
    assert_eq!(play.zombies(&[RUNTIME]), [Action::ReapOrphan(RUNTIME), shut_down(&[])]);
}

#[test]
fn r21_a_stopped_call_ends_within_its_budget_whatever_is_stuck() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.reaper.handle_shutdown(play.now, seconds(20.0)).unwrap();
    play.advance(5.0);
    let stopped_at = play.now;
    assert!(play.actions().contains(&Action::KillRuntime(call)));
    play.advance(0.5);
    assert_eq!(play.actions(), [Action::AbandonRuntime(call), Action::ReadPidFile(call)]);
    play.reaper.handle_pid_file(play.now, call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    assert_eq!(play.actions(), [Action::KillProcess(call)]);
    play.advance(0.5);
    assert_eq!(play.actions(), [Action::AbandonProcess(call)]);
    play.advance(0.2);
    assert_eq!(play.actions(), failed(call, Failure::ShuttingDown));
    assert!(play.now <= stopped_at + seconds(2.0));
}
