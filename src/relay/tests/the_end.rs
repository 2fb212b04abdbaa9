//! The container's end: what was written is read, and nobody else is waited for.

use super::*;

#[test]
fn b04_what_the_container_wrote_is_read_and_a_holder_of_its_pipes_not_waited_for() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    written(&child.stdout, &pattern(60_000));
    written(&child.stderr, b"last");
    shim.end();
    assert_same(&shim.log.stdout, &pattern(60_000));
    assert_eq!(shim.log.stderr, b"last");

    // Whoever still has the pipes is neither killed nor heard, not even by an event that was on its way.
    written(&child.stdout, b"a straggler");
    shim.run_until_idle();
    let event = Event { source: RelaySource::Output(Stream::Stdout), readable: true, writable: false };
    shim.relay.handle(&shim.event_loop, &mut shim.log, event, Instant::now());
    assert_eq!(shim.log.stdout.len(), 60_000);
}

#[test]
fn g01_a_writer_that_never_stops_does_not_keep_the_end_from_coming() {
    /// Whenever something is read, there is more.
    struct Refilling(OwnedFd, usize);

    impl Sink for Refilling {
        fn write(&mut self, _: Stream, output: &[u8]) {
            self.1 += output.len();
            assert!(self.1 < 4 << 20, "the end does not come");
            written(&self.0, output);
        }

        fn has_grown(&mut self) -> bool {
            false
        }
    }

    let (mut shim, child) = Shim::new(Stdio::Pipes);
    written(&child.stdout, &pattern(1000));
    let mut log = Refilling(child.stdout, 0);
    shim.relay.drain(&shim.event_loop, &mut log, Instant::now());
    assert_eq!(log.1, 1000);

    let (mut shim, _child) = Shim::new(Stdio::Terminal);
    let pty = raw_terminal();
    shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
    written(&pty.slave, &pattern(1000));
    let mut log = Refilling(pty.slave, 0);
    shim.relay.drain(&shim.event_loop, &mut log, Instant::now());
    assert!(log.1 >= 1000);
}

#[test]
fn e07_clients_get_the_last_byte_before_the_end() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let clients = [shim.attach(), shim.attach()];
    let output = pattern(500_000);
    fcntl(&child.stdout, FcntlArg::F_SETPIPE_SZ(1 << 20)).expect("F_SETPIPE_SZ");
    written(&child.stdout, &output);
    drop(child);
    shim.end();
    assert_same(&shim.log.stdout, &output);
    assert!(!shim.relay.flushed(), "it is more than a socket takes at once");
    let readers = clients.map(Client::read_to_end);
    shim.run_until("all at the clients", |shim| shim.relay.flushed());
    shim.close();
    for reader in readers {
        assert_same(&reader.join().expect("a client").stdout, &output);
    }
}

#[test]
fn e21_the_end_comes_though_a_client_takes_nothing_and_what_it_missed_is_still_there() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let client = shim.attach();
    for pipe in [&child.stdout, &child.stderr] {
        fcntl(pipe, FcntlArg::F_SETPIPE_SZ(1 << 20)).expect("F_SETPIPE_SZ");
    }
    let (output, errors) = (pattern(4 << 20), pattern(1 << 20));
    let container = child.stdout.try_clone().expect("a clone");
    set_nonblocking(&container).expect("nonblocking");
    let mut rest = &output[..];
    let mut fill = |shim: &Shim| {
        while let Ok(len) = nix::unistd::write(&container, rest) {
            rest = &rest[len..];
            if rest.is_empty() {
                break;
            }
        }
        shim.relay.outputs.iter().any(Output::is_paused)
    };
    shim.run_until("a pause", |shim| fill(shim));
    fill(&shim);
    written(&child.stderr, &errors);
    shim.run_until_idle();
    assert_eq!(shim.log.stderr, b"", "stderr waits as well");
    drop((child, container));

    // Two full pipes of the largest size fit into the reserve.
    shim.end();
    assert_same(&shim.log.stderr, &errors);
    let len = shim.log.stdout.len();
    assert_same(&shim.log.stdout, &output[..len]);
    assert_eq!(shim.relay.clients.count(), 1);
    let reader = client.read_to_end();
    shim.run_until("all at the client", |shim| shim.relay.flushed());
    shim.close();
    let received = reader.join().expect("a client");
    assert_same(&received.stdout, &output[..len]);
    assert_same(&received.stderr, &errors);
}

#[test]
fn a_client_for_whose_output_there_is_no_room_is_given_up_and_the_log_is_whole() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    let client = shim.attach();
    let output = pattern(60_000);
    let mut expected = 0;
    // Each of these is an end of its own, which waits for nobody.
    while shim.relay.clients.count() == 1 {
        written(&child.stdout, &output);
        let now = Instant::now();
        while shim.relay.read_once(&shim.event_loop, &mut shim.log, Stream::Stdout, now).is_some() {}
        expected += output.len();
        assert!(expected < 8 << 20, "there is room without end");
    }
    assert_eq!(shim.log.stdout.len(), expected);
    assert!(shim.relay.flushed());
    drop(client);
}

#[test]
fn closing_is_the_end_of_output_to_clients_and_of_input_to_the_container() {
    let (mut shim, child) = Shim::new(Stdio::PipesWithStdin);
    let client = shim.attach();
    shim.close();
    assert_eq!(client.packet().as_deref(), Some(&b""[..]));
    assert_eq!(nix::unistd::read(&child.stdin, &mut [0]), Ok(0));
    let error = nix::unistd::write(&child.stdout, b"x").expect_err("nobody reads");
    assert_eq!(error, Errno::EPIPE);
    shim.run_until_idle();
}
