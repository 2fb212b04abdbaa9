//! The parent's limits (G11 to G13).

use super::*;

fn tier(memory: u64) -> Tier {
    Tier { memory_max: Limit::Value(memory), ..Tier::UNLIMITED }
}

fn set(memory: u64, keep_memory_max: bool) -> Action {
    Action::SetParent { tier: tier(memory), keep_memory_max }
}

#[test]
fn g11_the_parent_is_raised_to_the_sum_and_the_record_says_so() {
    let mut play = Play::new();
    let request = play.ask(Request::RaiseParent { incumbent: tier(100), successor: tier(50) });
    assert_eq!(play.actions(), [set(150, false)]);
    play.service.handle_parent_set(ParentLimits { are: tier(150), refused: None });
    assert_eq!(play.answer(request), Ok(Reply::Done));
    assert_eq!(play.disk.parent, Some(tier(150)));
}

#[test]
fn g12_the_parent_is_not_lowered_beside_another_that_may_run() {
    let mut play = Play::new();
    play.running(ONE);
    play.running(TWO);
    assert!(matches!(play.answer_to(Request::RestoreParent(ONE)), Err(Failure::Busy(_))));
    // Its leader has ended, and something is left.
    play.service.handle_exited(play.now, N2);
    play.actions();
    play.found(N2, Found::Populated("105".into()));
    assert!(matches!(play.answer_to(Request::RestoreParent(ONE)), Err(Failure::Busy(_))));
}

#[test]
fn g12_memory_max_stays_where_more_is_in_use_after_a_reclaim() {
    let mut play = Play::new();
    play.running(ONE);
    let request = play.ask(Request::RestoreParent(ONE));
    assert_eq!(play.actions(), [Action::ReadMemory]);
    play.service.handle_memory(Ok(130));
    assert_eq!(play.actions(), [Action::Reclaim(31)]);
    play.service.handle_reclaimed();
    assert_eq!(play.actions(), [Action::ReadMemory]);
    play.service.handle_memory(Ok(120));
    assert_eq!(play.actions(), [set(100, true)]);
    play.service.handle_parent_set(ParentLimits { are: tier(150), refused: None });
    assert_eq!(play.answer(request), Err(Failure::MemoryInUse { current: 120, wanted: 100 }));
    assert_eq!(play.disk.parent, Some(tier(150)));
}

#[test]
fn g12_what_fits_is_lowered_at_once() {
    let mut play = Play::new();
    play.running(ONE);
    play.ask(Request::RestoreParent(ONE));
    play.actions();
    play.service.handle_memory(Ok(99));
    assert_eq!(play.actions(), [set(100, false)]);
}

#[test]
fn g13_the_record_is_what_the_files_say_after_a_refusal() {
    let mut play = Play::new();
    let request = play.ask(Request::RaiseParent { incumbent: tier(100), successor: tier(50) });
    play.actions();
    play.service.handle_parent_set(ParentLimits { are: tier(70), refused: Some("memory.max: EBUSY".into()) });
    assert_eq!(play.answer(request), Err(Failure::Limits("memory.max: EBUSY".into())));
    assert_eq!(play.disk.parent, Some(tier(70)));
}
