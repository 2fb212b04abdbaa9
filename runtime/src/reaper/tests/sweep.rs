//! The sweep: R1, R3 to R5, R7, R8.

use super::*;

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
    let actions = play.actions();
    let Some(&Action::Register(_, child)) = actions.first() else { panic!("{actions:?}") };
    // By name: the watcher's own wait finds it.
    play.advance(100.0);
    assert_eq!(play.zombies(&[PROCESS]), [Action::Collect(child)]);
    play.advance(100.0);
    assert_eq!(play.zombies(&[PROCESS]), [Action::Collect(child)]);
    assert_eq!(play.reaper.next_timeout(), None);
}

#[test]
fn r3_a_zombie_with_the_pid_of_a_child_that_its_parent_reaped_has_its_grace_from_then_on() {
    let mut play = Play::new();
    let child = play.registered();
    assert_eq!(play.zombies(&[PROCESS]), [Action::Collect(child)]);
    play.reaper.handle_child_exit(child, ExitStatus::Unknown);
    assert_eq!(play.actions(), [exited(child, ExitStatus::Unknown), Action::ListZombies]);
    play.zombies(&[PROCESS]);
    play.advance(1.0);
    assert_eq!(play.actions(), [Action::ListZombies]);
    assert_eq!(play.zombies(&[PROCESS]), [Action::ReapOrphan(PROCESS)]);
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
fn r3_a_pid_that_comes_again_after_a_claim_has_its_own_grace() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.zombies(&[PROCESS]);
    play.advance(0.9);
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    let actions = play.actions();
    let Some(&Action::Register(_, child)) = actions.first() else { panic!("{actions:?}") };
    play.child_exits(child, 0);
    // Before the next look another process has the PID, and has ended.
    play.advance(0.2);
    assert!(!play.zombies(&[PROCESS]).contains(&Action::ReapOrphan(PROCESS)));
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
fn r4_deferral_ends_at_the_calls_own_margin() {
    // The runtime of an exec has 60 s; by 40 s before that the zombie is seen.
    let mut play = Play::new();
    let call = play.start(&EXEC);
    play.advance(40.0);
    play.zombies(&[ORPHAN]);
    // 60 s, 5 s, and 1 s: that is before 40 s and 30 s.
    play.advance(20.0);
    assert_eq!(play.actions(), [Action::KillRuntime(call)]);
    play.advance(4.0);
    assert!(play.zombies(&[ORPHAN]).is_empty());
    play.advance(1.0);
    // It does not die; the call looks for what it left, and that may still be this one.
    assert_eq!(play.actions(), [Action::AbandonRuntime(call), Action::ReadPidFile(call)]);
    play.reaper.handle_pid_file(play.now, call, PidFile::Absent);
    // It may claim nothing any more, so nothing is left alone for it.
    assert_eq!(play.actions(), [Action::ListZombies]);
    assert_eq!(play.zombies(&[ORPHAN]), [Action::ReapOrphan(ORPHAN)]);
}

#[test]
fn r4_deferral_is_for_each_call_that_was_in_progress_then() {
    let mut play = Play::new();
    let first = play.start(&PIPES);
    let second = play.reaper.handle_runtime_started(play.now, PROCESS, &PIPES);
    play.zombies(&[ORPHAN]);
    play.reaper.handle_runtime_started(play.now, Pid::from_raw(400), &PIPES);
    for call in [first, second] {
        play.advance(5.0);
        assert!(play.zombies(&[ORPHAN]).is_empty());
        play.reaper.handle_output_closed(call);
        play.runtime_exits(call, 1);
        play.pid_file(call, PidFile::Absent);
        assert!(play.actions().contains(&Action::ListZombies));
    }
    // The third began after it was seen.
    assert_eq!(play.zombies(&[ORPHAN]), [Action::ReapOrphan(ORPHAN)]);
}

#[test]
fn r4_pid_files_are_read_before_the_sweep_reaps() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.zombies(&[PROCESS, ORPHAN]);
    play.advance(30.0);
    play.actions();
    // The runtime wrote the file and hangs.
    assert_eq!(play.zombies_with(&[PROCESS, ORPHAN], &PidFile::Pid(PROCESS)), [Action::ReapOrphan(ORPHAN)]);
    play.advance(300.0);
    assert!(play.zombies(&[PROCESS]).is_empty());
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(PROCESS));
    play.kinship(call, Kinship::Child);
    assert!(matches!(play.actions()[..], [Action::Register(..), ..]));
}

#[test]
fn r4_what_a_half_written_pid_file_claimed_is_let_go() {
    let mut play = Play::new();
    let torn = Pid::from_raw(20);
    play.start(&PIPES);
    play.zombies(&[torn, PROCESS]);
    play.advance(30.0);
    play.actions();
    assert_eq!(play.zombies_with(&[torn, PROCESS], &PidFile::Pid(torn)), [Action::ReapOrphan(PROCESS)]);
    play.zombies(&[torn, ORPHAN]);
    play.advance(30.0);
    play.actions();
    let actions = play.zombies_with(&[torn, ORPHAN], &PidFile::Pid(PROCESS));
    // The sweep reaped that one during the call: it is not claimed.
    assert_eq!(actions, [Action::ReapOrphan(ORPHAN)]);
    play.zombies(&[torn, RUNTIME, Pid::from_raw(21)]);
    play.advance(30.0);
    play.actions();
    let actions = play.zombies_with(&[torn, Pid::from_raw(21)], &PidFile::Pid(Pid::from_raw(21)));
    assert_eq!(actions, [Action::ListZombies]);
}

#[test]
fn r4_a_pid_that_the_sweep_reaped_is_not_accepted_from_a_call_of_that_time() {
    let mut play = Play::new();
    let call = play.start(&EXEC);
    play.zombies(&[PROCESS]);
    play.advance(30.0);
    play.actions();
    assert_eq!(play.zombies(&[PROCESS]), [Action::ReapOrphan(PROCESS)]);
    // A later call may be right about a process that has the PID now.
    let later = play.reaper.handle_runtime_started(play.now, Pid::from_raw(101), &EXEC);
    play.reaper.handle_output_closed(call);
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(PROCESS));
    assert_eq!(play.actions(), failed(call, Failure::Swept(PROCESS)));
    play.runtime_exits(later, 0);
    play.pid_file(later, PidFile::Pid(PROCESS));
    play.kinship(later, Kinship::Child);
    assert!(matches!(play.actions()[..], [Action::Register(..), ..]));
}

#[test]
fn r4_a_swept_pid_is_not_killed_for_a_failed_call_of_that_time() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.zombies(&[PROCESS]);
    play.advance(30.0);
    play.actions();
    assert_eq!(play.zombies(&[PROCESS]), [Action::ReapOrphan(PROCESS)]);
    play.reaper.handle_output_closed(call);
    play.runtime_exits(call, 1);
    play.pid_file(call, PidFile::Pid(PROCESS));
    assert_eq!(play.actions(), failed(call, Failure::Runtime(ExitStatus::Code(1))));
}

#[test]
fn r5_during_a_shutdown_nothing_is_deferred() {
    let mut play = Play::new();
    let call = play.start(&PIPES);
    play.zombies(&[ORPHAN]);
    play.advance(2.0);
    assert!(play.zombies(&[ORPHAN]).is_empty());
    play.reaper.handle_shutdown(play.now, seconds(20.0)).unwrap();
    assert_eq!(play.actions(), [Action::ListZombies]);
    assert_eq!(play.zombies(&[ORPHAN]), [Action::ReapOrphan(ORPHAN)]);
    // It was this call's: it fails, and nobody is signalled.
    play.reaper.handle_output_closed(call);
    play.runtime_exits(call, 0);
    play.pid_file(call, PidFile::Pid(ORPHAN));
    let actions = play.actions();
    assert_eq!(actions[..1], failed(call, Failure::Swept(ORPHAN))[..1]);
    assert!(actions.contains(&Action::Report(Outcome::ShutDown { left: vec![] })), "{actions:?}");
}

#[test]
fn r8_a_flood_is_reaped_in_slices() {
    let mut play = Play::new();
    let flood: Vec<Pid> = (1000..11_000).map(Pid::from_raw).collect();
    assert!(play.zombies(&flood).is_empty());
    play.advance(1.0);
    play.actions();
    let mut reaped = play.zombies(&flood).len();
    let mut slices = 1;
    while reaped < flood.len() {
        // The rest is due after the loop had its turn.
        assert_eq!(play.reaper.next_timeout(), Some(play.now + SLICE_PAUSE));
        play.advance(0.001);
        let slice = play.actions().len();
        assert!((1..=256).contains(&slice), "{slice}");
        reaped += slice;
        slices += 1;
    }
    assert_eq!((reaped, slices), (flood.len(), 40));
    assert_eq!(play.reaper.next_timeout(), None);
}

#[test]
fn r8_what_is_claimed_between_two_slices_is_not_reaped() {
    let mut play = Play::new();
    let flood: Vec<Pid> = (1000..1300).map(Pid::from_raw).collect();
    play.zombies(&flood);
    play.advance(1.0);
    play.actions();
    assert_eq!(play.zombies(&flood).len(), 256);
    let helper = play.reaper.handle_helper_started(flood[0]);
    play.advance(0.001);
    let slice = play.actions();
    assert_eq!(slice.len(), 43);
    assert!(!slice.contains(&Action::ReapOrphan(flood[0])));
    play.child_exits(helper, 0);
}

#[test]
fn a_list_that_cannot_be_read_is_tried_again() {
    let mut play = Play::new();
    play.zombies(&[ORPHAN]);
    play.advance(0.5);
    play.reaper.handle_list_failure(play.now);
    play.advance(0.5);
    assert_eq!(play.actions(), [Action::ListZombies]);
    play.reaper.handle_list_failure(play.now);
    play.advance(1.0);
    assert_eq!(play.actions(), [Action::ListZombies]);
    assert_eq!(play.zombies(&[ORPHAN]), [Action::ReapOrphan(ORPHAN)]);
}
