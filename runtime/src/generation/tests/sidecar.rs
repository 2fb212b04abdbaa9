//! The sidecar (G26, G27).

use super::*;

fn with_sidecar() -> Play {
    let mut play = Play::new();
    play.running(ONE);
    let request = play.ask(Request::StartSidecar(ONE));
    started(&mut play);
    assert!(play.answer(request).is_ok());
    play
}

/// The sidecar is started, as asked for or by itself.
fn started(play: &mut Play) {
    let start = play.prepared();
    assert_eq!(play.actions(), [Action::Launch(start, Role::Sidecar)]);
    play.launched(start);
}

/// It has ended, and its cgroup is proven empty.
fn ended(play: &mut Play) {
    play.service.handle_exited(play.now, Role::Sidecar);
    assert!(play.actions().contains(&Action::Evict(Role::Sidecar, Name::of(Role::Sidecar))));
    play.emptied(Role::Sidecar);
    play.actions();
}

fn wait(play: &Play) -> Duration {
    play.service.next_timeout().unwrap().duration_since(play.now)
}

#[test]
fn g26_the_sidecar_comes_from_its_generations_staged_path() {
    let mut play = Play::new();
    play.running(ONE);
    play.ask(Request::StartSidecar(ONE));
    let actions = play.actions();
    let source = Source::Sidecar { build: "b7".into(), path: "/staged/b7".into() };
    assert!(matches!(&actions[..], [Action::Open { source: its, .. }] if *its == source), "{actions:?}");
}

#[test]
fn g27_the_sidecar_is_started_again_with_backoff() {
    let mut play = with_sidecar();
    for millis in [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000] {
        ended(&mut play);
        assert_eq!(wait(&play), Duration::from_millis(millis));
        play.advance(Duration::from_millis(millis));
        started(&mut play);
    }
    play.advance(Duration::from_secs(60));
    play.actions();
    ended(&mut play);
    assert_eq!(wait(&play), Duration::from_millis(100), "it has lived long");
}

#[test]
fn g27_nothing_is_started_before_the_old_one_is_proven_gone() {
    let mut play = with_sidecar();
    play.service.handle_exited(play.now, Role::Sidecar);
    play.actions();
    play.advance(LIMIT);
    assert_eq!(play.actions(), []);
    assert_eq!(play.service.next_timeout(), None);
    play.emptied(Role::Sidecar);
    assert_eq!(wait(&play), Duration::from_millis(100), "the wait counts from here");
}

#[test]
fn g27_a_sidecar_ends_with_its_generation_or_when_it_is_killed() {
    let mut play = with_sidecar();
    play.ask(Request::Kill(N1, LIMIT));
    assert!(play.actions().contains(&Action::Evict(Role::Sidecar, Name::of(Role::Sidecar))));
    play.service.handle_exited(play.now, Role::Sidecar);
    play.actions();
    play.found(Role::Sidecar, Found::Empty);
    play.actions();
    assert_eq!(play.disk.sidecar, None);

    let mut play = with_sidecar();
    let request = play.ask(Request::Kill(Role::Sidecar, LIMIT));
    play.actions();
    play.emptied(Role::Sidecar);
    play.gone(Role::Sidecar);
    assert_eq!(play.answer(request), Ok(Reply::Gone(Role::Sidecar)));
    assert_eq!((&play.disk.sidecar, play.service.next_timeout()), (&None, None));
}
