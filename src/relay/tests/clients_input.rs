//! What clients send: in turns, to the last byte, and no further than the container takes it.

use super::*;

#[test]
fn e10_ten_mebibytes_each_way_at_once_are_exact() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let client = shim.attach();
    let input = pattern(10 << 20);
    let output: Vec<u8> = input.iter().map(|byte| !byte).collect();
    let sending = client.0.try_clone().expect("a clone");
    let sent = input.clone();
    let sender = thread::spawn(move || {
        for packet in sent.chunks(32 << 10) {
            assert_eq!(send(sending.as_raw_fd(), packet, MsgFlags::empty()), Ok(packet.len()));
        }
        shutdown(sending.as_raw_fd(), Shutdown::Write).expect("shutdown");
    });
    let container = read_all(child.stdin);
    let writer = write_all(child.stdout, &output);
    let reader = client.read_to_end();
    shim.run_until("both ends", |shim| {
        shim.relay.outputs.stdout.is_none() && shim.relay.flushed() && container.is_finished()
    });
    shim.close();
    assert_same(&container.join().expect("the container"), &input);
    assert_same(&reader.join().expect("a client").stdout, &output);
    sender.join().expect("a sender");
    writer.join().expect("a writer");
}

#[test]
fn e10_a_container_that_waits_for_its_reader_makes_the_sender_wait_and_nothing_is_lost() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let client = shim.attach();
    // The container echoes, and the client does not read.
    let echo = thread::spawn(move || {
        let (mut from, mut to) = (File::from(child.stdin), File::from(child.stdout));
        std::io::copy(&mut from, &mut to).expect("an echo");
    });
    let input = pattern(16 << 20);
    let mut packets = input.chunks(32 << 10);
    let mut next = packets.next();
    let mut offer = |client: &Client| {
        let Some(packet) = next else { return false };
        if send(client.raw(), packet, MsgFlags::MSG_DONTWAIT).is_ok() {
            next = packets.next();
        }
        true
    };
    shim.run_until("a pause", |shim| {
        offer(&client);
        shim.relay.outputs.iter().any(Output::is_paused)
    });
    for _ in 0..20 {
        offer(&client);
        shim.run_until_idle();
    }
    assert!(offer(&client), "all was taken, wherever it may be");
    let mut received = Recording::default();
    shim.run_until("all to come back", |_| {
        offer(&client);
        client.take(&mut received);
        received.stdout.len() == input.len()
    });
    assert_same(&received.stdout, &input);
    // It takes the loop to tell the container.
    client.end_input();
    shim.run_until("the container's end", |_| echo.is_finished());
    echo.join().expect("the container");
}

#[test]
fn e11_a_container_that_does_not_read_makes_its_clients_wait_without_a_spin() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let clients = [shim.attach(), shim.attach()];
    let mut sent = [0_usize; 2];
    // Lines of 200 bytes that say whose they are.
    let lines = [[b'0'; 200], [b'1'; 200]];
    let offer = |sent: &mut [usize; 2]| {
        for (number, client) in clients.iter().enumerate() {
            while sent[number] < 2000 && send(client.raw(), &lines[number], MsgFlags::MSG_DONTWAIT).is_ok() {
                sent[number] += 1;
            }
        }
    };
    offer(&mut sent);
    shim.run_until_idle();
    shim.turns = 0;
    assert!(!shim.relay.input.flush(&shim.event_loop), "nothing waits for the container");
    for _ in 0..10 {
        shim.turn(Instant::now() + Duration::from_millis(5));
    }
    assert_eq!(shim.turns, 0, "events while the container does not read");

    let mut input = Vec::new();
    shim.run_until("all lines", |_| {
        input.extend_from_slice(&available(&child.stdin));
        offer(&mut sent);
        input.len() == 2 * 2000 * 200
    });
    assert!(input.chunks(200).all(|line| line == lines[0] || line == lines[1]), "a line is torn");
    assert_eq!(input.chunks(200).filter(|line| *line == lines[0]).count(), 2000);
}

#[test]
fn clients_take_turns() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let clients = [shim.attach(), shim.attach(), shim.attach()];
    // The pipe is full, and each has packets ready.
    clients[0].send(&vec![b'-'; 32 << 10]);
    clients[0].send(&vec![b'-'; 32 << 10]);
    shim.run_until("a full pipe", |_| sys::unread_bytes(&child.stdin).expect("FIONREAD") == 64 << 10);
    for _ in 0..4 {
        for (client, name) in clients.iter().zip(*b"abc") {
            client.send(&vec![name; 32 << 10]);
        }
    }
    shim.run_until_idle();
    let mut input = Vec::new();
    shim.run_until("all of it", |_| {
        input.extend_from_slice(&available(&child.stdin));
        input.len() == 14 * (32 << 10)
    });
    let order: Vec<u8> = input.chunks(32 << 10).skip(2).map(|packet| packet[0]).collect();
    // The first that came found nobody waiting, and was back in the line before the others.
    for round in order[1..10].chunks(3) {
        let mut round = round.to_vec();
        round.sort_unstable();
        assert_eq!(round, b"abc", "{}", order.escape_ascii());
    }
}

#[test]
fn e13_the_end_of_a_clients_input_is_the_containers_and_output_goes_on() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let client = shim.attach();
    client.send(b"hi");
    client.end_input();
    let container = read_all(child.stdin);
    shim.run_until("the container's end of input", |_| container.is_finished());
    assert_eq!(container.join().expect("the container"), b"hi");
    written(&child.stdout, b"hi");
    shim.logged("the echo", 2);
    assert_eq!(client.packets(), [b"\x02hi"]);
    assert!(client.packet().is_none(), "the output has ended");
}

#[test]
fn e13_input_that_waits_for_the_container_comes_before_its_end() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let client = shim.attach();
    let input = pattern(5 * (32 << 10));
    for packet in input.chunks(32 << 10) {
        client.send(packet);
    }
    // It is gone altogether before the container reads.
    drop(client);
    shim.run_until_idle();
    let container = read_all(child.stdin);
    shim.run_until("the container's end of input", |_| container.is_finished());
    assert_same(&container.join().expect("the container"), &input);
    assert_eq!(shim.relay.clients.count(), 0);
}

#[test]
fn input_of_a_client_that_left_its_output_unread_is_not_lost() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let client = shim.attach();
    written(&child.stdout, b"a prompt");
    shim.logged("a prompt", 8);
    client.send(b"an answer");
    // This makes the next read of ours fail with ECONNRESET.
    drop(client);
    let container = read_all(child.stdin);
    shim.run_until("the container's end of input", |_| container.is_finished());
    assert_eq!(container.join().expect("the container"), b"an answer");
    assert_eq!(shim.relay.clients.count(), 0);
}

#[test]
fn e14_stdin_that_is_to_stay_open_takes_a_second_clients_input() {
    let (mut shim, child) = Shim::with(Stdio::PipesWithStdin, true, None);
    let first = shim.attach();
    first.send(b"one ");
    first.end_input();
    shim.run_until_idle();
    let second = shim.attach();
    second.send(b"two");
    shim.run_until("both", |_| sys::unread_bytes(&child.stdin).expect("FIONREAD") == 7);
    assert_eq!(available(&child.stdin), b"one two");
    let error = nix::unistd::read(&child.stdin, &mut [0]).expect_err("no end");
    assert_eq!(error, Errno::EAGAIN);
}

#[test]
fn the_first_end_is_for_all_and_later_input_is_dropped() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let (first, second) = (shim.attach(), shim.attach());
    first.end_input();
    shim.run_until_idle();
    assert_eq!(nix::unistd::read(&child.stdin, &mut [0]), Ok(0));
    for _ in 0..100 {
        second.send(&vec![b'x'; 32 << 10]);
        shim.run_until_idle();
    }
    written(&child.stdout, b"alive");
    shim.logged("a word", 5);
    assert_eq!(second.packets(), [b"\x02alive"]);
}

#[test]
fn without_stdin_input_is_read_and_dropped() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let client = shim.attach();
    for _ in 0..100 {
        client.send(&vec![b'x'; 32 << 10]);
        shim.run_until_idle();
    }
    client.end_input();
    shim.run_until_idle();
    written(&child.stdout, b"alive");
    shim.logged("a word", 5);
    assert_eq!(client.packets(), [b"\x02alive"]);
}

#[test]
fn input_for_a_container_that_closed_its_stdin_is_dropped() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let client = shim.attach();
    drop(child.stdin);
    for _ in 0..100 {
        client.send(&vec![b'x'; 32 << 10]);
        shim.run_until_idle();
    }
    written(&child.stdout, b"alive");
    shim.logged("a word", 5);
    assert_eq!(client.packets(), [b"\x02alive"]);
}

#[test]
fn e22_clients_that_come_and_go_leave_nothing_behind() {
    let (mut shim, child) = Shim::with(Stdio::PipesWithStdin, true, None);
    for round in 0..100 {
        let client = shim.attach();
        if round % 2 == 0 {
            client.send(b"x");
        }
        if round % 3 == 0 {
            client.end_input();
            shim.run_until_idle();
        }
        if round % 5 == 0 {
            written(&child.stdout, b"unread");
        }
        drop(client);
    }
    shim.run_until("everybody to be gone", |shim| shim.relay.clients.count() == 0);
    shim.run_until_idle();
    assert_eq!(available(&child.stdin), [b'x'; 50]);
    assert!(shim.relay.waiting.is_empty());
}

/// A client that fills the container's stdin, which nobody reads: two packets are in the pipe, one is pending.
fn blocking_client(shim: &mut Shim) -> Client {
    let client = shim.attach();
    for _ in 0..3 {
        client.send(&pattern(32 << 10));
    }
    shim.run_until_idle();
    client
}

#[test]
fn e22_clients_come_and_go_while_the_container_does_not_read() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let _blocking = blocking_client(&mut shim);
    for _ in 0..3 {
        drop(shim.attach());
    }
    shim.run_until("those who left to be gone", |shim| shim.relay.clients.count() == 1);

    let mut input = Vec::new();
    let mut ended = false;
    shim.run_until("the input and its end", |_| {
        let mut piece = [0; 4096];
        set_nonblocking(&child.stdin).expect("O_NONBLOCK");
        while let Ok(len) = nix::unistd::read(&child.stdin, &mut piece) {
            input.extend_from_slice(&piece[..len]);
            ended |= len == 0;
            if ended {
                break;
            }
        }
        ended
    });
    assert_same(&input, &pattern(32 << 10).repeat(3));
}

#[test]
fn e22_input_of_those_who_are_gone_keeps_nobody_out() {
    let (mut shim, child) = Shim::with(Stdio::PipesWithStdin, true, None);
    let _blocking = blocking_client(&mut shim);
    for _ in 0..2 * MAX_CLIENTS {
        shim.attach().send(b"x");
    }
    shim.run_until_idle();
    assert!(shim.relay.waiting.len() <= MAX_CLIENTS, "{} wait", shim.relay.waiting.len());
    let client = shim.attach();
    written(&child.stdout, b"hi");
    shim.logged("a word", 2);
    assert_eq!(client.packets(), [b"\x02hi"]);
}
