//! What the relay owes to a log: to wait for its room, to tell it of ends.

use super::*;

#[test]
fn a_log_without_room_makes_the_container_wait_and_nothing_is_lost() {
    let (mut shim, child) = Shim::with(Stdio::Pipes, false, Some(Duration::from_millis(1)));
    let client = shim.attach();
    written(&child.stdout, b"first");
    shim.logged("the first output", 5);
    shim.log.full = true;
    written(&child.stderr, b"error");
    let writer = write_all(child.stdout, &pattern(1 << 20));
    shim.run_until_idle();
    assert_eq!((shim.log.stdout.len(), shim.log.stderr.len()), (5, 0));
    assert_eq!(shim.relay.next_timeout(), None, "no client is to blame");
    shim.log.full = false;
    shim.relay.resume(&shim.event_loop, &shim.log);
    let mut received = Recording::default();
    shim.run_until("all output", |shim| {
        client.take(&mut received);
        received.stdout.len() == 5 + (1 << 20) && shim.log.stderr == b"error"
    });
    writer.join().expect("the writer");
    assert_same(&shim.log.stdout[5..], &pattern(1 << 20));
    assert_same(&received.stdout, &shim.log.stdout);
}

#[test]
fn at_the_end_room_is_made_and_the_log_learns_of_it() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    shim.log.full = true;
    written(&child.stdout, b"last words");
    written(&child.stderr, b"and these");
    shim.run_until_idle();
    shim.end();
    assert_eq!((&*shim.log.stdout, &*shim.log.stderr), (&b"last words"[..], &b"and these"[..]));
    assert_eq!(shim.log.ended, [Stream::Stdout, Stream::Stderr]);
}

#[test]
fn the_log_learns_of_a_stream_that_ends_before_the_container() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    drop(child.stderr);
    shim.run_until("the end of stderr", |shim| shim.log.ended == [Stream::Stderr]);
    written(&child.stdout, b"and on");
    shim.logged("stdout", 6);
}
