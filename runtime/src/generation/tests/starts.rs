//! Starts: numbers, gates, holds, the worker (G3, G6, G7, G30 to G32).

use super::*;

const GATE: Option<Duration> = Some(LIMIT);

fn worker(replace: bool, gate: Option<Duration>) -> Request {
    Request::Start(Launch { target: Target::Worker { replace }, source: staged(), tier: None, gate })
}

fn cold(number: Number) -> Request {
    let source = Source::Live { build: None, digest: None };
    Request::Start(Launch { target: Target::Generation(number), source, tier: None, gate: None })
}

#[test]
fn g3_a_process_runs_only_once_its_pending_record_is_written() {
    let mut play = Play::new();
    play.write = None;
    play.stage(ONE, None);
    let start = play.prepared();
    let actions = play.actions();
    let [Action::WriteRecord(serial)] = actions[..] else { panic!("{actions:?}") };
    assert_eq!(play.service.record().generations[&ONE].progress, Progress::Pending);
    play.service.handle_recorded(play.now, serial, &Ok(()));
    assert_eq!(play.actions(), [Action::Launch(start, N1)]);
}

#[test]
fn g3_a_start_that_is_refused_before_its_record_leaves_the_number_free() {
    let mut play = Play::new();
    let request = play.stage(ONE, GATE);
    play.prepared();
    let (token, point) = play.gate();
    assert_eq!(point, Point::Prepared);
    assert!(play.service.handle_gate_answer(play.now, token, Err("not now".into())));
    assert_eq!(play.answer(request), refusal("not now"));
    play.running(ONE);
}

#[test]
fn g3_a_record_that_cannot_be_written_leaves_the_number_free() {
    let mut play = Play::new();
    play.write = Some(Err("disk full".into()));
    let request = play.stage(ONE, None);
    play.prepared();
    assert_eq!(play.answer(request), refusal("the record could not be written: disk full"));
    play.write = Some(Ok(()));
    play.running(ONE);
}

#[test]
fn g3_a_start_that_is_refused_after_its_record_marks_the_number() {
    let mut play = Play::new();
    let request = play.stage(ONE, GATE);
    play.prepared();
    let (first, _) = play.gate();
    play.service.handle_gate_answer(play.now, first, Ok(()));
    let (second, point) = play.gate();
    assert_eq!(point, Point::Recorded);
    play.service.handle_gate_answer(play.now, second, Err("superseded".into()));
    assert_eq!(play.answer(request), refusal("superseded"));
    assert!(play.disk.refused.contains(&ONE));
    let again = play.stage(ONE, None);
    assert_eq!(play.answer(again), refusal("generation 1 was refused before; its number is used up"));
}

#[test]
fn g3_a_number_is_used_once_and_is_busy_meanwhile() {
    let mut play = Play::new();
    play.stage(ONE, None);
    let second = play.stage(ONE, None);
    let busy = Err(Failure::Busy("generation 1 is being started".into()));
    assert!(play.actions().contains(&Action::Report(Outcome::Answer(second, busy))));
    let mut play = Play::new();
    play.running(ONE);
    play.gone(N1);
    let again = play.stage(ONE, None);
    assert_eq!(play.answer(again), refusal("the number of generation 1 is used up"));
}

#[test]
fn g6_a_gate_that_is_not_answered_in_time_starts_nothing() {
    let mut play = Play::new();
    let request = play.stage(ONE, GATE);
    let start = play.prepared();
    play.gate();
    play.advance(LIMIT);
    let answer = Outcome::Answer(request, refusal("the gate was not answered in time"));
    assert_eq!(play.actions(), [Action::Discard(start, N1), Action::Report(answer)]);
    assert_eq!(play.service.next_timeout(), None);
}

#[test]
fn g6_a_caller_that_goes_away_or_speaks_ends_its_start_until_the_launch() {
    for speaks in [false, true] {
        let mut play = Play::new();
        let request = play.stage(ONE, GATE);
        play.prepared();
        play.gate();
        if speaks {
            play.service.handle_caller_spoke(play.now, request);
        } else {
            play.service.handle_caller_gone(play.now, request);
        }
        assert!(matches!(play.answer(request), Err(Failure::Refused(_))));
    }
    let mut play = Play::new();
    let request = play.stage(ONE, None);
    let start = play.prepared();
    play.service.handle_caller_gone(play.now, request);
    assert_eq!(play.actions(), [Action::Launch(start, N1)], "without a gate nobody is asked");
}

#[test]
fn g6_an_answer_to_a_gate_that_is_over_is_nobodys() {
    let mut play = Play::new();
    play.stage(ONE, GATE);
    play.prepared();
    let (token, _) = play.gate();
    assert!(play.service.handle_gate_answer(play.now, token, Ok(())));
    assert!(!play.service.handle_gate_answer(play.now, token, Ok(())));
}

#[test]
fn g7_every_answer_says_what_may_have_run() {
    let outcomes = [
        (Launched::Nothing("ENOEXEC".into()), Effect::NothingRan),
        (Launched::Uncertain("it hangs".into()), Effect::MayHaveRun),
    ];
    for (launched, effect) in outcomes {
        let mut play = Play::new();
        let request = play.stage(ONE, None);
        let start = play.prepared();
        play.actions();
        play.service.handle_launched(play.now, start, launched);
        assert_eq!(play.answer(request).unwrap_err().effect(), effect);
        assert!(play.service.record().is_used(ONE), "either way the number is used up");
    }
}

#[test]
fn g7_a_process_whose_record_fails_may_run() {
    let mut play = Play::new();
    let request = play.stage(ONE, None);
    let start = play.prepared();
    play.actions();
    play.write = Some(Err("disk full".into()));
    play.launched(start);
    assert_eq!(play.answer(request).unwrap_err().effect(), Effect::MayHaveRun);
}

#[test]
fn g1_on_the_canonical_socket_itself_one_generation_runs_at_a_time() {
    let mut play = Play::on(Layout::Foreign("its path is long".into()), Record::default());
    play.running(ONE);
    let second = play.stage(TWO, None);
    assert!(matches!(play.answer(second), Err(Failure::Busy(_))));
    let switched = play.answer_to(Request::Switch(ONE));
    assert_eq!(switched, Err(Failure::NotSwitchable("its path is long".into())));
    play.gone(N1);
    play.actions();
    play.running(TWO);
}

#[test]
fn g30_a_cold_start_tells_the_gate_the_build_and_keeps_no_path() {
    let mut play = Play::new();
    play.ask(cold(ONE));
    let start = play.prepared();
    assert_eq!(play.actions(), [Action::Launch(start, N1)]);
    let run = &play.disk.generations[&ONE];
    assert_eq!((run.build.as_str(), &run.staged), ("live", &None));
    play.launched(start);
    play.actions();
    let sidecar = play.answer_to(Request::StartSidecar(ONE));
    assert_eq!(sidecar, refusal("generation 1 has no staged path to start a sidecar from"));
}

#[test]
fn g31_a_held_build_is_refused_cold_and_not_staged() {
    let mut play = Play::new();
    let hold = Request::Hold { build: "live".into(), reason: "it leaks".into() };
    assert_eq!(play.answer_to(hold), Ok(Reply::Done));
    assert!(play.disk.holds.contains_key("live"));
    let request = play.ask(cold(ONE));
    play.prepared();
    assert_eq!(play.answer(request), refusal("build live is held: it leaks"));
    let hold = Request::Hold { build: "b7".into(), reason: "it leaks".into() };
    play.answer_to(hold).unwrap();
    play.running(TWO);
    assert_eq!(play.answer_to(Request::Release { build: "live".into() }), Ok(Reply::Done));
    assert!(!play.disk.holds.contains_key("live"));
}

#[test]
fn g31_a_hold_counts_after_the_last_answer_too() {
    let mut play = Play::new();
    let mut launch = cold(ONE);
    if let Request::Start(launch) = &mut launch {
        launch.gate = GATE;
    }
    let request = play.ask(launch);
    play.prepared();
    let (first, _) = play.gate();
    play.service.handle_gate_answer(play.now, first, Ok(()));
    let (second, _) = play.gate();
    play.answer_to(Request::Hold { build: "live".into(), reason: "it leaks".into() }).unwrap();
    play.service.handle_gate_answer(play.now, second, Ok(()));
    assert_eq!(play.answer(request), refusal("build live is held: it leaks"));
}

#[test]
fn g31_a_release_that_cannot_be_written_releases_nothing() {
    let mut play = Play::new();
    play.answer_to(Request::Hold { build: "live".into(), reason: "it leaks".into() }).unwrap();
    play.write = Some(Err("disk full".into()));
    let released = play.answer_to(Request::Release { build: "live".into() });
    assert_eq!(released, Err(Failure::Record("disk full".into())));
    assert!(play.service.record().holds.contains_key("live"));
}

#[test]
fn g32_a_worker_is_stopped_for_another_only_after_its_gate() {
    let mut play = Play::new();
    let first = play.ask(worker(false, None));
    let start = play.prepared();
    play.actions();
    play.launched(start);
    assert!(play.answer(first).is_ok());
    assert!(matches!(play.answer_to(worker(false, None)), Err(Failure::Busy(_))));

    let second = play.ask(worker(true, GATE));
    let start = play.opened();
    let (token, point) = play.gate();
    assert_eq!(point, Point::Prepared);
    play.service.handle_gate_answer(play.now, token, Ok(()));
    assert_eq!(play.actions(), [Action::Evict(Role::Worker, Name::of(Role::Worker))]);
    play.emptied(Role::Worker);
    play.gone(Role::Worker);
    let actions = play.actions();
    assert!(matches!(actions[..], [.., Action::Prepare(its, Role::Worker, _)] if its == start), "{actions:?}");
    play.service.handle_prepared(play.now, start, Ok(()));
    let (token, _) = play.gate();
    play.service.handle_gate_answer(play.now, token, Ok(()));
    let (token, point) = play.gate();
    assert_eq!(point, Point::Recorded);
    play.service.handle_gate_answer(play.now, token, Ok(()));
    play.actions();
    play.launched(start);
    assert!(play.answer(second).is_ok());
}

#[test]
fn g32_a_worker_that_does_not_go_is_not_replaced() {
    let mut play = Play::new();
    play.ask(worker(false, None));
    let start = play.prepared();
    play.actions();
    play.launched(start);
    play.actions();
    let request = play.ask(worker(true, None));
    play.opened();
    play.actions();
    play.advance(LIMIT);
    assert!(matches!(play.answer(request), Err(Failure::Unproven(left)) if !left.is_empty()));
}
