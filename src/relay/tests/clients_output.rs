//! What clients get: all of it, in order, however slow they and others are.

use super::*;

#[test]
fn a_packet_is_its_stream_and_its_bytes() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let client = shim.attach();
    written(&child.stdout, b"out");
    shim.logged("stdout", 3);
    written(&child.stderr, b"err");
    shim.logged("stderr", 6);
    assert_eq!(client.packets(), [b"\x02out", b"\x03err"]);
}

#[test]
fn packets_hold_at_most_8192_bytes() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let client = shim.attach();
    written(&child.stdout, &pattern(20_000));
    shim.logged("stdout", 20_000);
    let lengths: Vec<usize> = client.packets().iter().map(Vec::len).collect();
    assert_eq!(lengths, [8193, 8193, 20_000 - 2 * 8192 + 1]);
}

#[test]
fn earlier_output_is_not_replayed() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    written(&child.stdout, b"before");
    shim.logged("before", 6);
    let client = shim.attach();
    written(&child.stdout, b"after");
    shim.logged("after", 11);
    assert_eq!(client.packets(), [b"\x02after"]);
}

#[test]
fn what_is_kept_goes_to_the_first_client_alone() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    shim.relay.keep_for_the_first();
    // Whoever is awaited is to find the end, at least.
    assert!(!shim.relay.flushed());
    let output = pattern(300_000);
    let writer = write_all(child.stdout, &output);
    shim.logged("all of it", 300_000);
    assert!(!shim.relay.flushed());
    let first = shim.attach();
    let second = shim.attach();
    let mut received = Recording::default();
    shim.run_until("the first to have all", |shim| {
        first.take(&mut received);
        shim.relay.flushed()
    });
    first.take(&mut received);
    assert_eq!((received.stdout == output, second.packets().len()), (true, 0));
    assert!(!shim.relay.clients.keep_output());
    drop(writer);
}

#[test]
fn what_is_kept_holds_the_process_up_until_nobody_is_awaited() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    shim.relay.keep_for_the_first();
    let writer = write_all(child.stdout, &pattern(10 << 20));
    shim.run_until("a full ring", |shim| shim.relay.is_held_up());
    shim.relay.await_nobody(&shim.event_loop, &shim.log);
    shim.logged("all of it", 10 << 20);
    assert!(shim.relay.flushed() && !shim.relay.clients.have_ring());
    drop(writer);
}

#[test]
fn e04_three_clients_get_all_and_one_that_leaves_disturbs_nobody() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let clients = [shim.attach(), shim.attach(), shim.attach()];
    let leaving = shim.attach();
    let output = pattern(10 << 20);
    let readers = clients.map(Client::read_to_end);
    let writers = [write_all(child.stdout, &output), write_all(child.stderr, &output)];
    // Before it keeps everything waiting.
    shim.run_until("a part of it", |shim| shim.log.stdout.len() + shim.log.stderr.len() > 1 << 20);
    drop(leaving);
    shim.run_until("the end of it", |shim| shim.relay.output_closed() && shim.relay.flushed());
    shim.close();
    for reader in readers {
        let received = reader.join().expect("a client");
        assert_same(&received.stdout, &output);
        assert_same(&received.stderr, &output);
    }
    for writer in writers {
        writer.join().expect("a writer");
    }
}

#[test]
fn e05_a_client_that_is_slow_at_times_gets_all_and_its_memory_is_given_back() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let client = shim.attach();
    let output = pattern(8 << 20);
    let writer = write_all(child.stdout, &output);
    let mut received = Recording::default();
    let mut fell_behind = 0;
    while received.stdout.len() < output.len() {
        shim.run_until("a pause, or the end", |shim| {
            shim.relay.outputs.iter().any(Output::is_paused) || shim.relay.outputs.stdout.is_none()
        });
        fell_behind += usize::from(!shim.relay.flushed());
        let before = received.stdout.len();
        shim.run_until("progress", |_| {
            client.take(&mut received);
            received.stdout.len() >= output.len().min(before + (3 << 20))
        });
    }
    assert_same(&received.stdout, &output);
    assert_same(&shim.log.stdout, &output);
    assert!(fell_behind > 1);
    shim.run_until("all memory to be given back", |shim| !shim.relay.clients.have_ring());
    writer.join().expect("a writer");
}

#[test]
fn memory_is_given_back_also_after_a_client_that_was_behind_for_long() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let client = shim.attach();
    let output = pattern(1 << 20);
    let writer = write_all(child.stdout, &output);
    shim.logged("all of it", output.len());
    shim.run_until("buffers to be given back", |shim| shim.relay.idle.is_none());
    assert!(shim.relay.clients.keep_output());
    let mut received = Recording::default();
    shim.run_until("all at the client", |_| {
        client.take(&mut received);
        received.stdout.len() == output.len()
    });
    shim.run_until("all memory to be given back", |shim| !shim.relay.clients.have_ring());
    writer.join().expect("a writer");
}

#[test]
fn what_a_client_takes_makes_room_though_it_is_still_behind() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let client = shim.attach();
    let output = pattern(16 << 20);
    let writer = write_all(child.stdout, &output);
    let mut received = Recording::default();
    for _ in 0..8 {
        shim.run_until("a pause", |shim| shim.relay.outputs.iter().any(Output::is_paused));
        let (logged, wanted) = (shim.log.stdout.len(), received.stdout.len() + (512 << 10));
        shim.run_until("more at the client", |_| {
            client.take(&mut received);
            received.stdout.len() >= wanted
        });
        assert!(!shim.relay.flushed());
        shim.run_until("more to be read", |shim| shim.log.stdout.len() > logged);
    }
    assert_same(&received.stdout, &output[..received.stdout.len()]);
    shim.close();
    assert!(writer.join().is_err(), "the pipe was closed before the end");
}

#[test]
fn a_slow_client_makes_no_fast_one_wait_until_the_ring_is_full() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let _slow = shim.attach();
    let fast = shim.attach();
    let output = pattern(1 << 20);
    let writer = write_all(child.stdout, &output);
    let mut received = Recording::default();
    shim.run_until("all at the fast client", |_| {
        fast.take(&mut received);
        received.stdout.len() == output.len()
    });
    assert_same(&received.stdout, &output);
    assert!(shim.relay.clients.have_ring());
    writer.join().expect("a writer");
}

#[test]
fn a_client_that_does_not_read_pauses_the_streams_but_not_the_loop() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let stuck = shim.attach();
    let output = pattern(8 << 20);
    let writer = write_all(child.stdout, &output);
    shim.run_until("a pause", |shim| shim.relay.outputs.iter().any(Output::is_paused));
    shim.run_until_idle();
    assert!(shim.log.stdout.len() < 4 << 20, "more was read than the ring holds");
    assert_eq!(shim.relay.next_timeout().filter(|_| shim.relay.idle.is_none()), None, "nothing waits for a time");

    // Input still passes, and new clients come.
    let second = shim.attach();
    second.send(b"typed");
    shim.run_until("the input", |_| sys::unread_bytes(&child.stdin).expect("FIONREAD") == 5);

    // Nothing is lost once it reads, or once it is gone.
    drop(stuck);
    let reader = second.read_to_end();
    shim.run_until("the rest", |shim| shim.log.stdout.len() == output.len());
    shim.run_until("the rest at the second client", |shim| shim.relay.flushed());
    shim.close();
    assert_same(&shim.log.stdout, &output);
    let received = reader.join().expect("a client").stdout;
    assert_same(&received, &output[output.len() - received.len()..]);
    writer.join().expect("a writer");
}

#[test]
fn e21_a_client_that_stalls_everything_is_closed_after_the_timeout() {
    let timeout = Duration::from_millis(300);
    let (mut shim, child) = Shim::with(Stdio::Pipes, false, Some(timeout));
    let stuck = shim.attach();
    let reading = shim.attach();
    let output = pattern(8 << 20);
    let started = Instant::now();
    let writer = write_all(child.stdout, &output);
    let reader = reading.read_to_end();
    shim.run_until("all of it", |shim| shim.log.stdout.len() == output.len());
    assert!(started.elapsed() >= timeout, "it was closed early");
    assert_eq!(shim.relay.clients.count(), 1);
    shim.run_until("the rest at the other client", |shim| shim.relay.flushed());
    shim.close();
    assert_same(&reader.join().expect("a client").stdout, &output);
    // What it had in its socket is a piece without a gap.
    let mut received = Recording::default();
    stuck.take(&mut received);
    assert_same(&received.stdout, &output[..received.stdout.len()]);
    writer.join().expect("a writer");
}

#[test]
fn e21_the_timeout_counts_from_when_the_slowest_client_last_took_something() {
    let timeout = Duration::from_secs(3600);
    let (mut shim, child) = Shim::with(Stdio::Pipes, false, Some(timeout));
    let client = shim.attach();
    let writer = write_all(child.stdout, &pattern(8 << 20));
    shim.run_until("a pause", |shim| shim.relay.outputs.iter().any(Output::is_paused));
    shim.run_until_idle();
    let (_, before) = shim.relay.stall().expect("a time at which the client is closed");
    assert!(before <= Instant::now() + timeout);

    let taken = Instant::now();
    assert!(!client.packets().is_empty());
    shim.run_until_idle();
    let (_, after) = shim.relay.stall().expect("a later time");
    assert!(after >= taken + timeout);
    shim.relay.handle_timeout(&shim.event_loop, &shim.log, before);
    assert_eq!(shim.relay.clients.count(), 1);
    shim.relay.handle_timeout(&shim.event_loop, &shim.log, after);
    assert_eq!(shim.relay.clients.count(), 0);
    shim.run_until("all of it", |shim| shim.log.stdout.len() == 8 << 20);
    writer.join().expect("a writer");
}

#[test]
fn a_client_that_stalls_nobody_is_left_alone() {
    let (mut shim, child) = Shim::with(Stdio::Pipes, false, Some(Duration::ZERO));
    let _slow = shim.attach();
    let writer = write_all(child.stdout, &pattern(1 << 20));
    shim.logged("all of it", 1 << 20);
    shim.run_until_idle();
    assert!(!shim.relay.flushed());
    assert_eq!(shim.relay.clients.count(), 1);
    writer.join().expect("a writer");
}

#[test]
fn without_clients_nothing_is_kept() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let writer = write_all(child.stdout, &pattern(8 << 20));
    shim.logged("all of it", 8 << 20);
    assert!(!shim.relay.clients.have_ring());
    assert!(shim.relay.flushed());
    writer.join().expect("a writer");
}

#[test]
fn of_too_many_clients_the_last_are_closed_at_once() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let mut clients: Vec<Client> = (0..MAX_CLIENTS).map(|_| shim.attach()).collect();
    let refused = Client::connect(shim.directory.path());
    shim.run_until("a refusal", |_| refused.packet().is_some_and(|packet| packet.is_empty()));

    clients.pop();
    shim.run_until("a departure", |shim| shim.relay.clients.count() < MAX_CLIENTS);
    clients.push(shim.attach());
    written(&child.stdout, b"all");
    shim.logged("a word", 3);
    assert!(clients.iter().all(|client| client.packets() == [b"\x02all"]));
}

#[test]
fn e16_the_end_of_one_stream_is_not_that_of_the_other() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let client = shim.attach();
    drop(child.stdout);
    shim.run_until_idle();
    assert!(client.packet().is_none());
    written(&child.stderr, b"still here");
    drop(child.stderr);
    shim.run_until("the end", |shim| shim.relay.output_closed());
    shim.end();
    assert!(shim.relay.flushed());
    shim.close();
    assert_eq!(client.packet().as_deref(), Some(&b"\x03still here"[..]));
    assert_eq!(client.packet().as_deref(), Some(&b""[..]));
}

#[test]
fn e16_unread_input_does_not_turn_the_end_into_an_error() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let client = shim.attach();
    let filling = shim.attach();
    // More than pipe and buffer hold: the rest stays in the socket.
    for _ in 0..6 {
        filling.send(&pattern(32 << 10));
        shim.run_until_idle();
    }
    client.send(b"never read");
    shim.run_until_idle();
    written(&child.stdout, b"last");
    shim.logged("the last", 4);
    shim.end();
    shim.close();
    assert_eq!(client.packet().as_deref(), Some(&b"\x02last"[..]));
    assert_eq!(client.packet().as_deref(), Some(&b""[..]));
}

#[test]
fn clients_leave_descriptors_to_the_containers_end() {
    alone("clients_output::clients_leave_descriptors_to_the_containers_end", || {
        let (mut shim, _child) = Shim::new(Stdio::Pipes);
        let client = Client::connect(shim.directory.path());
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("getrlimit");
        let lowest_free = client.0.try_clone().expect("a clone").as_raw_fd();
        let limit = u64::try_from(lowest_free).expect("a number") + 8;
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard).expect("setrlimit");
        shim.run_until("a refusal", |_| client.packet().is_some_and(|packet| packet.is_empty()));
    });
}

#[test]
fn a_full_descriptor_table_is_waited_out() {
    alone("clients_output::a_full_descriptor_table_is_waited_out", || {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let client = Client::connect(shim.directory.path());
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("getrlimit");
        let lowest_free = client.0.try_clone().expect("a clone").as_raw_fd();
        setrlimit(Resource::RLIMIT_NOFILE, u64::try_from(lowest_free).expect("a number"), hard).expect("setrlimit");
        shim.run_until("a failure to accept", |shim| shim.relay.next_timeout().is_some());
        shim.run_until_idle();
        assert!(shim.turns < 5, "{} events for one client", shim.turns);
        // Others are served meanwhile.
        written(&child.stdout, b"not yet");
        shim.logged("a word", 7);

        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("setrlimit");
        shim.run_until("the client", |shim| shim.relay.clients.count() == 1);
        written(&child.stdout, b"hi");
        shim.logged("another word", 9);
        assert_eq!(client.packets(), [b"\x02hi"]);
    });
}

#[test]
fn g04_memory_does_not_grow_with_output_and_goes_back_after_it() {
    alone("clients_output::g04_memory_does_not_grow_with_output_and_goes_back_after_it", || {
        let (mut shim, child) = Shim::new(Stdio::Pipes);
        let client = shim.attach();
        let piece = pattern(60_000);
        // What the test itself needs is there from the start.
        shim.log.stdout = pattern(1 << 20);
        shim.log.stdout.clear();
        written(&child.stdout, b"little");
        shim.logged("little", 6);
        let before = private_kib();

        // The client takes nothing until everything waits for it.
        shim.run_until("a pause", |shim| {
            shim.log.stdout.clear();
            if sys::unread_bytes(&child.stdout).is_ok_and(|unread| unread == 0) {
                written(&child.stdout, &piece);
            }
            shim.relay.outputs.iter().any(Output::is_paused)
        });
        assert!(private_kib() > before + 1024, "the ring holds nothing");

        shim.run_until("the client to catch up", |shim| {
            while client.packet().is_some() {}
            shim.relay.flushed()
        });
        shim.run_until("idle buffers to be given back", |shim| shim.relay.next_timeout().is_none());
        let after = private_kib();
        assert!(after <= before + 64, "{before} KiB before, {after} KiB after");
    });
}
