//! The streams between the container and the shim: made, read in turns, kept and given back.

use super::*;

#[test]
fn pipes_can_be_opened_again_by_any_user_and_ours_do_not_block() {
    let (shim, child) = Shim::new(Stdio::PipesWithStdin);
    for fd in [&child.stdin, &child.stdout, &child.stderr] {
        assert_eq!(fstat(fd).expect("fstat").st_mode & 0o777, 0o777);
        let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL).expect("F_GETFL"));
        assert!(!flags.contains(OFlag::O_NONBLOCK), "the container's end is as it expects it");
    }
    for output in shim.relay.outputs.iter() {
        let flags = OFlag::from_bits_retain(fcntl(output.fd(), FcntlArg::F_GETFL).expect("F_GETFL"));
        assert!(flags.contains(OFlag::O_NONBLOCK));
    }
}

#[test]
fn without_stdin_and_with_a_terminal_the_rest_is_dev_null() {
    let null = std::fs::metadata("/dev/null").expect("metadata");
    let is_null = |fd: &OwnedFd| {
        let stat = fstat(fd).expect("fstat");
        stat.st_rdev == std::os::unix::fs::MetadataExt::rdev(&null)
    };
    let (_shim, child) = Shim::new(Stdio::Pipes);
    assert_eq!([&child.stdin, &child.stdout, &child.stderr].map(is_null), [true, false, false]);
    let (_shim, child) = Shim::new(Stdio::Terminal);
    assert_eq!([&child.stdin, &child.stdout, &child.stderr].map(is_null), [true, true, false]);
}

#[test]
fn output_is_logged_by_stream() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    written(&child.stdout, b"out\n");
    written(&child.stderr, b"err\n");
    shim.logged("both lines", 8);
    assert_eq!((&shim.log.stdout[..], &shim.log.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
}

#[test]
fn g05_ten_mebibytes_of_each_stream_are_logged_exactly() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let output = pattern(10 << 20);
    let writers = [write_all(child.stdout, &output), write_all(child.stderr, &output)];
    shim.run_until("the end of both", |shim| shim.relay.output_closed());
    assert_same(&shim.log.stdout, &output);
    assert_same(&shim.log.stderr, &output);
    for writer in writers {
        writer.join().expect("a writer");
    }
}

#[test]
fn output_in_packets_is_read_to_its_last() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    fcntl(&child.stdout, FcntlArg::F_SETFL(OFlag::O_WRONLY | OFlag::O_DIRECT)).expect("F_SETFL");
    for _ in 0..5 {
        written(&child.stdout, b"packet\n");
    }
    shim.logged("five packets", 35);
}

#[test]
fn an_end_that_comes_with_the_last_bytes_is_seen() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    written(&child.stdout, b"last words");
    drop(child);
    shim.run_until("the end", |shim| shim.relay.output_closed());
    assert_eq!(shim.log.stdout, b"last words");
}

#[test]
fn the_end_of_output_is_that_of_every_pipe() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    drop(child.stdout);
    shim.run_until_idle();
    assert!(!shim.relay.output_closed());
    drop(child.stderr);
    shim.run_until("the end", |shim| shim.relay.output_closed());

    let (mut shim, child) = Shim::new(Stdio::Terminal);
    assert!(!shim.relay.output_closed());
    drop(child.stderr);
    shim.run_until("the end", |shim| shim.relay.output_closed());
}

#[test]
fn a_flood_leaves_the_other_stream_its_turn() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    // As much as a pipe can be made to hold, which is four turns.
    fcntl(&child.stdout, FcntlArg::F_SETPIPE_SZ(1 << 20)).expect("F_SETPIPE_SZ");
    written(&child.stdout, &pattern(1 << 20));
    written(&child.stderr, b"a word\n");
    shim.run_until("the word", |shim| !shim.log.stderr.is_empty());
    assert!(shim.log.stdout.len() < 1 << 20, "the flood had it all");
    shim.logged("all of it", (1 << 20) + 7);
    assert_same(&shim.log.stdout, &pattern(1 << 20));
}

#[test]
fn r15_the_end_of_stderr_is_kept_until_it_is_taken() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    written(&child.stdout, b"not this");
    written(&child.stderr, &pattern(10_000));
    shim.logged("both", 10_008);
    assert_same(&shim.relay.take_stderr_tail(), &pattern(10_000)[10_000 - 8192..]);
    written(&child.stderr, b"later");
    shim.logged("more", 10_013);
    assert_eq!(shim.relay.take_stderr_tail(), b"");
}

#[test]
fn large_buffers_are_given_back_when_idle() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let client = shim.attach();
    written(&child.stdout, b"little");
    shim.logged("little", 6);
    assert_eq!(shim.relay.next_timeout(), None, "one page is kept");

    written(&child.stdout, &pattern(60_000));
    client.send(&pattern(30_000));
    shim.logged("much", 60_006);
    shim.run_until("the input", |_| sys::unread_bytes(&child.stdin).expect("FIONREAD") == 30_000);
    let when = shim.relay.next_timeout().expect("a time to give memory back");
    assert!(shim.relay.buffer[..60_000].iter().any(|&byte| byte != 0));
    shim.relay.handle_timeout(&shim.event_loop, &shim.log, when);
    assert!(shim.relay.buffer.iter().all(|&byte| byte == 0));
    assert_eq!(shim.relay.next_timeout(), None);

    shim.log.grown = true;
    written(&child.stdout, b"many short lines");
    shim.logged("short lines", 60_022);
    assert!(shim.relay.next_timeout().is_some(), "there is a time for the log to give memory back");
}

#[test]
fn a_container_that_does_not_read_wakes_nobody() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let client = shim.attach();
    for _ in 0..3 {
        client.send(&pattern(32 << 10));
    }
    shim.run_until("a full pipe", |_| sys::unread_bytes(&child.stdin).expect("FIONREAD") == 64 << 10);
    shim.run_until_idle();
    if let Some(when) = shim.relay.next_timeout() {
        shim.relay.handle_timeout(&shim.event_loop, &shim.log, when);
    }
    assert_eq!(shim.relay.next_timeout(), None, "nothing happens until the container reads");
    let mut input = available(&child.stdin);
    shim.run_until("the rest", |_| sys::unread_bytes(&child.stdin).expect("FIONREAD") == 32 << 10);
    input.extend(available(&child.stdin));
    assert_same(&input, &pattern(32 << 10).repeat(3));
    assert!(shim.relay.next_timeout().is_some(), "now there is memory to give back");
}
