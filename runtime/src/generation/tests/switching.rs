//! Ready and switch (G15 to G18).

use super::*;

#[test]
fn g15_ready_widens_the_socket_of_what_runs() {
    let mut play = Play::new();
    assert!(matches!(play.answer_to(Request::Ready(ONE)), Err(Failure::NotFound(_))));
    play.running(ONE);
    let request = play.ask(Request::Ready(ONE));
    assert_eq!(play.actions(), [Action::Widen(request, ONE)]);
    play.service.handle_widened(request, ONE, Ok(()));
    assert_eq!(play.told(), [Outcome::Ready(ONE), Outcome::Answer(request, Ok(Reply::Done))]);
}

#[test]
fn g16_the_intent_is_written_before_the_rename_and_the_result_after() {
    let mut play = Play::new();
    play.running(ONE);
    play.write = None;
    let request = play.ask(Request::Switch(ONE));
    let actions = play.actions();
    let [Action::WriteRecord(serial)] = actions[..] else { panic!("{actions:?}") };
    assert_eq!(play.service.record().switching, Some(ONE));
    play.service.handle_recorded(play.now, serial, &Ok(()));
    assert_eq!(play.actions(), [Action::Switch(ONE)]);
    play.write = Some(Ok(()));
    play.service.handle_switched(ONE, Ok(()));
    assert_eq!(play.answer(request), Ok(Reply::Done));
    assert_eq!((play.disk.current, play.disk.switching), (Some(ONE), None));
}

#[test]
fn g16_a_failure_leaves_the_old_one_in_force() {
    let mut play = Play::new();
    play.running(ONE);
    play.running(TWO);
    play.ask(Request::Switch(ONE));
    play.actions();
    play.service.handle_switched(ONE, Ok(()));
    play.actions();
    let request = play.ask(Request::Switch(TWO));
    play.actions();
    play.service.handle_switched(TWO, Err("it is no socket".into()));
    assert_eq!(play.answer(request), Err(Failure::NotSwitchable("it is no socket".into())));
    assert_eq!((play.disk.current, play.disk.switching), (Some(ONE), None));
}

#[test]
fn g16_nothing_switches_to_what_is_killed_or_without_an_intent_on_disk() {
    let mut play = Play::new();
    play.running(ONE);
    play.ask(Request::Kill(N1, LIMIT));
    play.actions();
    assert!(matches!(play.answer_to(Request::Switch(ONE)), Err(Failure::NotSwitchable(_))));

    let mut play = Play::new();
    play.running(ONE);
    play.write = Some(Err("disk full".into()));
    assert!(matches!(play.answer_to(Request::Switch(ONE)), Err(Failure::NotSwitchable(_))));
}

#[test]
fn g17_event_and_hook_follow_the_switch_and_wait_for_nothing() {
    let mut play = Play::new();
    play.running(ONE);
    play.ask(Request::Switch(ONE));
    play.actions();
    play.write = None;
    play.service.handle_switched(ONE, Ok(()));
    let actions = play.actions();
    assert_eq!(actions[..2], [Action::Report(Outcome::Switched(ONE)), Action::RunHook(ONE)]);
}

#[test]
fn g18_what_ended_is_retired_and_not_current_any_more() {
    let mut play = Play::new();
    play.running(ONE);
    play.ask(Request::Switch(ONE));
    play.actions();
    play.service.handle_switched(ONE, Ok(()));
    play.actions();
    play.gone(N1);
    assert!(play.actions().contains(&Action::Retire(N1, vec![Name::of(N1)])));
    assert_eq!(play.disk.current, None);
}
