//! A shim that is started anew (G29, G16).

use super::*;

/// The record of a shim with one generation, as it was when that was gone.
fn record() -> (Record, Process) {
    let mut play = Play::new();
    let process = play.running(ONE);
    play.ask(Request::Switch(ONE));
    play.actions();
    play.service.handle_switched(ONE, Ok(()));
    play.actions();
    (play.disk, process)
}

#[test]
fn g29_what_may_run_is_looked_at_and_nothing_is_started_meanwhile() {
    let (record, process) = record();
    let mut play = Play::on(Layout::Overlapping, record);
    assert_eq!(play.actions(), [Action::ReadLink, Action::Adopt(N1, process)]);
    let early = play.stage(TWO, None);
    assert!(matches!(play.answer(early), Err(Failure::Busy(_))));
    play.service.handle_adopted(N1, true);
    play.actions();
    play.found(N1, Found::Populated("101".into()));
    assert_eq!(play.told(), [Outcome::Adopted(N1, Occupancy::Running)]);
    play.running(TWO);
    // Its exit is told by another, and counts as any.
    play.gone(N1);
    assert!(!play.service.record().generations.contains_key(&ONE));
}

#[test]
fn g29_what_is_gone_is_empty_and_what_cannot_be_read_unproven() {
    for (found, occupancy) in [
        (Found::Empty, Occupancy::Empty),
        (Found::Unreadable("EIO".into()), Occupancy::Unproven("gen-1: EIO".into())),
        (Found::NoDelegation, Occupancy::Unproven("gen-1: no cgroup is delegated".into())),
        (Found::Populated("103".into()), Occupancy::Running),
    ] {
        let (record, _) = record();
        let mut play = Play::on(Layout::Overlapping, record);
        play.actions();
        play.service.handle_adopted(N1, false);
        play.actions();
        play.found(N1, found.clone());
        assert!(play.told().contains(&Outcome::Adopted(N1, occupancy)), "{found:?}");
        assert_eq!(play.service.record().generations.contains_key(&ONE), found != Found::Empty);
    }
}

#[test]
fn g6_a_crash_between_record_and_start_never_makes_a_refusal() {
    let mut play = Play::new();
    play.stage(ONE, None);
    play.prepared();
    play.actions();
    let mut play = Play::on(Layout::Overlapping, play.disk);
    play.actions();
    play.found(N1, Found::Empty);
    assert_eq!(play.told(), [Outcome::Adopted(N1, Occupancy::Empty)]);
    assert!(play.disk.refused.is_empty() && play.disk.used.contains(ONE));
}

#[test]
fn g16_after_a_restart_the_link_is_the_truth() {
    for link in [None, Some(TWO)] {
        let (mut record, _) = record();
        record.switching = Some(TWO);
        let mut play = Play::on(Layout::Overlapping, record);
        play.actions();
        play.service.handle_link(link);
        play.actions();
        assert_eq!((play.disk.current, play.disk.switching), (link, None));
    }
}

#[test]
fn g29_the_record_keeps_of_what_ended_its_number_alone() {
    let mut play = Play::new();
    for n in 1..200 {
        play.running(number(n));
        play.gone(Role::Generation(number(n)));
        play.actions();
    }
    assert_eq!(play.disk.generations.len(), 0);
    assert_eq!(play.disk.used.ranges().collect::<Vec<_>>(), [(1, 199)]);
}

#[test]
fn g29_one_write_at_a_time_and_the_last_state_in_it() {
    let mut play = Play::new();
    play.write = None;
    for build in ["a", "b", "c"] {
        play.ask(Request::Hold { build: build.into(), reason: String::new() });
    }
    let actions = play.actions();
    let [Action::WriteRecord(serial)] = actions[..] else { panic!("{actions:?}") };
    play.ask(Request::Hold { build: "d".into(), reason: String::new() });
    assert_eq!(play.actions(), []);
    play.service.handle_recorded(play.now, serial, &Ok(()));
    let actions = play.actions();
    assert!(matches!(actions[0], Action::WriteRecord(later) if later > serial), "{actions:?}");
    assert_eq!(actions.len(), 4, "three are confirmed: {actions:?}");
}
