//! Registered children: R6, R11, R17.

use super::*;

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

fn with_timeout(timeout: Timeout) -> CallSpec {
    CallSpec { timeout: Some(timeout), ..EXEC }
}

/// An exec whose time is over, and which was found running then.
fn expired(play: &mut Play) -> ChildId {
    let child = play.registered_as(&with_timeout(Timeout::SinceKnown(seconds(10.0))), RUNTIME, PROCESS);
    play.advance(9.9);
    assert!(play.actions().is_empty());
    play.advance(0.1);
    assert_eq!(play.actions(), [Action::Collect(child)]);
    play.reaper.handle_child_running(child);
    assert_eq!(play.actions(), [Action::StopTree(child)]);
    child
}

fn timed_out(child: ChildId) -> Action {
    Action::Report(Outcome::TimedOut { child, limit: seconds(10.0) })
}

#[test]
fn r17_an_exec_is_stopped_killed_with_all_below_it_and_reaped_before_it_says_so() {
    let mut play = Play::new();
    let child = expired(&mut play);
    // Something new turned up.
    play.reaper.handle_tree_stopped(play.now, child, Walk::Unfinished);
    assert!(play.actions().is_empty());
    play.advance(0.001);
    assert_eq!(play.actions(), [Action::StopTree(child)]);
    play.reaper.handle_tree_stopped(play.now, child, Walk::Settled);
    assert_eq!(play.actions(), [Action::KillTree(child)]);
    play.reaper.handle_tree_killed(play.now, child, Walk::Unfinished);
    play.advance(0.001);
    assert_eq!(play.actions(), [Action::KillTree(child)]);
    play.reaper.handle_tree_killed(play.now, child, Walk::Settled);
    assert_eq!(play.actions(), [Action::KillChild(child)]);
    play.advance(100.0);
    assert!(play.actions().is_empty());
    play.reaper.handle_child_exit(child, ExitStatus::Signal(9));
    assert_eq!(play.actions(), [timed_out(child)]);
    assert_eq!(play.reaper.next_timeout(), None);
}

#[test]
fn r17_what_cannot_be_stopped_is_killed_as_it_is() {
    let mut play = Play::new();
    let child = expired(&mut play);
    for _ in 0..500 {
        play.reaper.handle_tree_stopped(play.now, child, Walk::Unfinished);
        play.advance(0.001);
        assert_eq!(play.actions(), [Action::StopTree(child)]);
    }
    play.reaper.handle_tree_stopped(play.now, child, Walk::Unfinished);
    assert_eq!(play.actions(), [Action::KillTree(child)]);
}

#[test]
fn r17_an_exec_that_ended_in_time_never_says_that_it_timed_out() {
    let mut play = Play::new();
    let child = play.registered_as(&with_timeout(Timeout::SinceKnown(seconds(10.0))), RUNTIME, PROCESS);
    // It ended at 9 s, and the loop was held up.
    play.advance(20.0);
    assert_eq!(play.actions(), [Action::Collect(child)]);
    play.child_exits(child, 4);
    assert_eq!(play.actions(), [exited(child, ExitStatus::Code(4))]);

    // The same for one that is another's to reap.
    let child = play.registered_as(&with_timeout(Timeout::SinceKnown(seconds(10.0))), RUNTIME, PROCESS);
    play.advance(20.0);
    play.actions();
    play.reaper.handle_child_ended(play.now, child);
    assert!(play.actions().is_empty());
    play.child_exits(child, 5);
    assert_eq!(play.actions(), [exited(child, ExitStatus::Code(5))]);
}

#[test]
fn r17_what_is_below_is_killed_even_if_the_exec_ends_meanwhile() {
    let mut play = Play::new();
    let child = expired(&mut play);
    play.child_exits(child, 0);
    assert_eq!(play.actions(), [Action::KillTree(child)]);
    // It was reaped: another process may have its PID (R6).
    play.zombies(&[PROCESS]);
    play.advance(1.0);
    play.actions();
    assert_eq!(play.zombies(&[PROCESS]), [Action::ReapOrphan(PROCESS)]);
    play.reaper.handle_tree_killed(play.now, child, Walk::Settled);
    assert_eq!(play.actions(), [timed_out(child)]);
}

#[test]
fn r17_a_timeout_since_the_request_kills_as_soon_as_there_is_a_process() {
    let mut play = Play::new();
    let call = play.start(&with_timeout(Timeout::SinceRequest(seconds(10.0))));
    play.advance(12.0);
    assert!(play.actions().is_empty());
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    assert!(matches!(play.actions()[..], [Action::Register(..), Action::Report(Outcome::Started { .. })]));
    play.advance(0.0);
    assert!(matches!(play.actions()[..], [Action::Collect(_)]));
}

#[test]
fn r11_a_status_that_another_has_is_waited_for_and_then_unknown() {
    let mut play = Play::new();
    let child = play.registered();
    play.reaper.handle_child_ended(play.now, child);
    play.advance(4.0);
    // Told once more, which changes nothing.
    play.reaper.handle_child_ended(play.now, child);
    assert!(play.actions().is_empty());
    play.advance(1.0);
    assert_eq!(play.actions(), [Action::ForgetChild(child), exited(child, ExitStatus::Unknown)]);

    let child = play.registered();
    play.reaper.handle_child_ended(play.now, child);
    play.advance(1.0);
    play.child_exits(child, 6);
    assert_eq!(play.actions(), [exited(child, ExitStatus::Code(6))]);
    assert_eq!(play.reaper.next_timeout(), None);
}

#[test]
fn r11_a_zombie_that_came_down_to_this_process_is_collected() {
    let mut play = Play::new();
    let child = play.registered();
    play.reaper.handle_child_ended(play.now, child);
    play.reaper.handle_sigchld(play.now);
    play.actions();
    assert_eq!(play.zombies(&[PROCESS]), [Action::Collect(child)]);
}

#[test]
fn a_helper_is_signalled_by_its_starter_alone() {
    let mut play = Play::new();
    let helper = play.reaper.handle_helper_started(PROCESS);
    play.reaper.handle_termination(play.now, Signal::SIGTERM);
    assert!(play.actions().is_empty());
    play.reaper.handle_signal(helper, Signal::SIGKILL);
    assert_eq!(play.actions(), [Action::SignalChild(helper, Signal::SIGKILL)]);
    play.child_exits(helper, 0);
    play.actions();
    play.reaper.handle_signal(helper, Signal::SIGKILL);
    assert!(play.actions().is_empty());
}

#[test]
fn r9_what_was_reaped_meanwhile_is_not_signalled() {
    let mut play = Play::new();
    let child = play.registered_as(
        &CallSpec { main: true, ..with_timeout(Timeout::SinceKnown(seconds(10.0))) },
        RUNTIME,
        PROCESS,
    );
    play.reaper.handle_shutdown(play.now, seconds(12.0)).unwrap();
    play.actions();
    // Its timeout and the shutdown's kill are due in one round, and it has ended.
    play.now += seconds(10.0);
    play.reaper.handle_timeout(play.now);
    assert_eq!(play.reaper.poll_action(), Some(Action::Collect(child)));
    play.child_exits(child, 0);
    assert!(!play.actions().contains(&Action::KillChild(child)));
}
