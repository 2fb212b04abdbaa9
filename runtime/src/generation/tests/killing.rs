//! Killing, proof, moves and the shutdown (G20 to G25, G28, R19, R20).

use super::*;

fn evict(role: Role) -> Action {
    Action::Evict(role, Name::of(role))
}

fn moved(number: Number) -> Request {
    Request::Move { number, to: target(), timeout: LIMIT }
}

fn target() -> Name {
    Name::chosen("canary").unwrap()
}

#[test]
fn g20_gone_is_an_empty_cgroup_and_a_reaped_leader() {
    for leader_first in [false, true] {
        let mut play = Play::new();
        play.running(ONE);
        let request = play.ask(Request::Kill(N1, LIMIT));
        assert_eq!(play.actions(), [evict(N1)]);
        if leader_first {
            play.service.handle_exited(play.now, N1);
            play.actions();
            play.found(N1, Found::Populated("42".into()));
            assert_eq!(play.told(), [], "an exit says nothing of what it forked");
            play.emptied(N1);
        } else {
            play.emptied(N1);
            assert_eq!(play.told(), [], "the leader is still a zombie");
            play.gone(N1);
        }
        assert_eq!(play.answer(request), Ok(Reply::Gone(N1)));
        assert!(play.disk.generations.is_empty() && play.disk.used.contains(ONE));
    }
}

#[test]
fn g20_at_the_deadline_it_is_read_once_more_and_the_rest_is_named() {
    let mut play = Play::new();
    let process = play.running(ONE);
    let request = play.ask(Request::Kill(N1, LIMIT));
    play.actions();
    play.advance(LIMIT);
    assert_eq!(play.actions(), [Action::Inspect(N1, Name::of(N1))]);
    play.found(N1, Found::Populated("101".into()));
    let left = vec![Left::Leader(process.pid), Left::Cgroup(Name::of(N1), "101".into())];
    assert_eq!(play.answer(request), Err(Failure::Unproven(left)));
    // The kill goes on.
    play.emptied(N1);
    play.gone(N1);
    assert!(play.told().contains(&Outcome::Killed(N1)));
}

#[test]
fn g20_several_callers_wait_for_one_kill_each_with_its_deadline() {
    let mut play = Play::new();
    play.running(ONE);
    let first = play.ask(Request::Kill(N1, LIMIT));
    let second = play.ask(Request::Kill(N1, LIMIT * 3));
    assert_eq!(play.actions(), [evict(N1)]);
    play.advance(LIMIT);
    play.actions();
    play.found(N1, Found::Populated("101".into()));
    assert!(matches!(play.answer(first), Err(Failure::Unproven(_))));
    play.emptied(N1);
    play.gone(N1);
    assert_eq!(play.answer(second), Ok(Reply::Gone(N1)));
}

#[test]
fn g20_a_kill_before_the_launch_ends_the_start() {
    let mut play = Play::new();
    let start = play.stage(ONE, Some(LIMIT));
    play.prepared();
    play.gate();
    let kill = play.ask(Request::Kill(N1, LIMIT));
    let told = play.told();
    assert!(told.contains(&Outcome::Answer(start, refusal("it was killed before it was started"))), "{told:?}");
    assert!(told.contains(&Outcome::Answer(kill, Ok(Reply::Gone(N1)))), "{told:?}");
    play.running(ONE);
}

#[test]
fn g20_a_kill_during_the_launch_waits_for_it_and_kills_again() {
    let mut play = Play::new();
    play.stage(ONE, None);
    let start = play.prepared();
    play.actions();
    let kill = play.ask(Request::Kill(N1, LIMIT));
    assert_eq!(play.actions(), [evict(N1)]);
    play.emptied(N1);
    assert_eq!(play.told(), [], "it may be born at any moment");
    play.launched(start);
    assert!(play.actions().contains(&evict(N1)));
    play.emptied(N1);
    play.gone(N1);
    assert_eq!(play.answer(kill), Ok(Reply::Gone(N1)));
}

#[test]
fn g20_a_leader_outside_its_cgroup_is_killed_itself() {
    let mut play = Play::new();
    play.running(ONE);
    play.ask(Request::Kill(N1, LIMIT));
    play.actions();
    play.emptied(N1);
    assert_eq!(play.actions(), [Action::KillLeader(N1)]);
}

#[test]
fn g21_a_cgroup_that_could_not_be_marked_is_in_the_record() {
    let mut play = Play::new();
    play.running(ONE);
    play.ask(Request::Kill(N1, LIMIT));
    play.actions();
    play.service.handle_unmarked(N1, Name::of(N1));
    play.actions();
    assert!(play.disk.generations[&ONE].unmarked.contains(&Name::of(N1)));
}

#[test]
fn g22_what_is_empty_is_left_without_a_kill() {
    let mut play = Play::new();
    play.running(ONE);
    let request = play.ask(Request::Empty(N1, LIMIT));
    assert_eq!(play.actions(), [Action::Inspect(N1, Name::of(N1))]);
    play.found(N1, Found::Populated("101".into()));
    assert_eq!(play.actions(), [evict(N1)]);
    play.emptied(N1);
    play.gone(N1);
    assert_eq!(play.answer(request), Ok(Reply::Gone(N1)));

    let request = play.ask(Request::Empty(Role::Worker, LIMIT));
    play.actions();
    play.found(Role::Worker, Found::Empty);
    let actions = play.actions();
    assert!(!actions.contains(&evict(Role::Worker)), "{actions:?}");
    assert!(actions.contains(&Action::Report(Outcome::Answer(request, Ok(Reply::Gone(Role::Worker))))));
}

#[test]
fn g23_without_delegation_the_leaders_exit_is_no_proof() {
    let mut play = Play::new();
    play.running(ONE);
    let request = play.ask(Request::Kill(N1, LIMIT));
    play.actions();
    play.service.handle_kill_failed(play.now, N1, &Name::of(N1), KillFailure::NoDelegation);
    assert_eq!(play.actions(), [Action::KillLeader(N1)]);
    play.service.handle_exited(play.now, N1);
    play.actions();
    play.found(N1, Found::NoDelegation);
    assert_eq!(play.answer(request), Err(Failure::NoDelegation));
    assert!(play.service.record().generations.contains_key(&ONE));
}

#[test]
fn g23_without_cgroup_kill_populated_0_is_a_proof_still() {
    for empties in [true, false] {
        let mut play = Play::new();
        play.running(ONE);
        let request = play.ask(Request::Kill(N1, LIMIT));
        play.actions();
        play.service.handle_kill_failed(play.now, N1, &Name::of(N1), KillFailure::NoKill);
        play.service.handle_exited(play.now, N1);
        play.actions();
        play.found(N1, Found::Populated("102".into()));
        let answer = if empties {
            play.emptied(N1);
            Ok(Reply::Gone(N1))
        } else {
            play.advance(LIMIT);
            play.actions();
            play.found(N1, Found::Populated("102".into()));
            Err(Failure::NoKill)
        };
        assert_eq!(play.answer(request), answer);
    }
}

#[test]
fn g24_host_is_emptied_whatever_the_layout_and_the_sidecar_is_not() {
    let mut play = Play::on(Layout::Barred("fenced off".into()), Record::default());
    assert_eq!(play.answer_to(Request::Kill(Role::Sidecar, LIMIT)), refusal("fenced off"));
    let request = play.ask(Request::Kill(Role::Worker, LIMIT));
    assert_eq!(play.actions(), [evict(Role::Worker)]);
    play.emptied(Role::Worker);
    assert_eq!(play.answer(request), Ok(Reply::Gone(Role::Worker)));
}

#[test]
fn g24_an_unknown_generation_is_not_found_and_one_that_ended_is_gone() {
    let mut play = Play::new();
    assert!(matches!(play.answer_to(Request::Kill(N2, LIMIT)), Err(Failure::NotFound(_))));
    play.running(ONE);
    play.gone(N1);
    play.actions();
    assert_eq!(play.answer_to(Request::Kill(N1, LIMIT)), Ok(Reply::Gone(N1)));
}

#[test]
fn g28_a_move_is_in_the_record_first_and_a_kill_acts_on_both_cgroups() {
    let mut play = Play::new();
    play.running(ONE);
    let request = play.ask(moved(ONE));
    let actions = play.actions();
    assert!(matches!(&actions[..], [Action::Move { to, .. }] if *to == target()), "{actions:?}");
    assert_eq!(play.disk.generations[&ONE].cgroups, [Name::of(N1), target()]);
    play.service.handle_moved(ONE, Ok(()));
    assert_eq!(play.answer(request), Ok(Reply::Done));
    let kill = play.ask(Request::Kill(N1, LIMIT));
    assert_eq!(play.actions(), [evict(N1), Action::Evict(N1, target())]);
    play.service.handle_emptied(play.now, N1, &target());
    play.service.handle_exited(play.now, N1);
    play.actions();
    play.found(N1, Found::Populated("101".into()));
    play.service.handle_found(play.now, N1, &target(), Found::Empty);
    assert_eq!(play.told(), []);
    play.emptied(N1);
    assert_eq!(play.answer(kill), Ok(Reply::Gone(N1)));
}

#[test]
fn g28_a_move_ends_at_its_deadline_and_when_it_is_killed() {
    for kills in [false, true] {
        let mut play = Play::new();
        play.running(ONE);
        let request = play.ask(moved(ONE));
        play.actions();
        if kills {
            play.ask(Request::Kill(N1, LIMIT));
        } else {
            play.advance(LIMIT);
        }
        let actions = play.actions();
        assert_eq!(actions[0], Action::EndMove(ONE));
        let unproven = |action: &Action| matches!(action, Action::Report(Outcome::Answer(its, Err(Failure::Unproven(_)))) if *its == request);
        assert!(actions.iter().any(unproven), "{actions:?}");
    }
}

#[test]
fn g28_a_cgroup_of_another_is_no_target() {
    for name in ["gen-2", "host", "role-sidecar", "a/b", "..", ".", "", "cgroup.procs"] {
        assert_eq!(Name::chosen(name), None, "{name}");
    }
    let mut play = Play::new();
    play.running(ONE);
    play.running(TWO);
    play.ask(moved(ONE));
    play.actions();
    assert_eq!(play.answer_to(moved(TWO)), refusal("cgroup canary belongs to generation 1"));
}

#[test]
fn r19_all_is_told_to_end_then_killed_then_named() {
    let mut play = Play::new();
    let process = play.running(ONE);
    let (kill_at, end_at) = (play.now + LIMIT, play.now + LIMIT * 2);
    play.service.handle_shutdown(play.now, kill_at, end_at);
    assert_eq!(play.actions(), [Action::Terminate(N1)]);
    let refused = play.stage(TWO, None);
    assert_eq!(play.answer(refused), Err(Failure::ShuttingDown));
    play.advance(LIMIT);
    assert_eq!(play.actions(), [evict(N1)]);
    play.advance(LIMIT);
    let told = play.told();
    assert!(matches!(&told[..], [Outcome::ShutDown { left }] if left.contains(&Left::Leader(process.pid))), "{told:?}");
}

#[test]
fn r19_what_leaders_left_is_killed_once_all_have_ended() {
    let mut play = Play::new();
    play.running(ONE);
    play.service.handle_shutdown(play.now, play.now + LIMIT, play.now + LIMIT * 2);
    play.actions();
    play.service.handle_exited(play.now, N1);
    assert!(play.actions().contains(&evict(N1)));
    play.found(N1, Found::Populated("102".into()));
    play.emptied(N1);
    assert!(play.told().contains(&Outcome::ShutDown { left: Vec::new() }));
}
