//! A terminal in the place of pipes.

use super::*;

#[test]
fn k02_the_latest_size_that_came_before_the_terminal_is_its_size() {
    let (mut shim, _child) = Shim::new(Stdio::Terminal);
    shim.relay.resize(24, 80);
    shim.relay.resize(40, 120);
    let pty = raw_terminal();
    shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
    assert_eq!(size_of(&pty.slave), (40, 120));
    shim.relay.resize(50, 132);
    assert_eq!(size_of(&pty.slave), (50, 132));
}

#[test]
fn k04_without_a_terminal_a_size_means_nothing() {
    let (mut shim, child) = Shim::new(Stdio::Pipes);
    shim.relay.resize(24, 80);
    written(&child.stdout, b"fine");
    shim.logged("a word", 4);
}

#[test]
fn k06_what_is_no_terminal_is_refused() {
    let (mut shim, _child) = Shim::new(Stdio::Terminal);
    let null = File::options().read(true).write(true).open("/dev/null").expect("/dev/null").into();
    assert!(shim.relay.connect_terminal(&shim.event_loop, null).is_err());
    assert!(shim.relay.outputs.stdout.is_none());
}

#[test]
fn newlines_become_carriage_return_and_newline() {
    let (mut shim, _child) = Shim::new(Stdio::Terminal);
    let pty = openpty(None, None).expect("openpty");
    let mut attributes = tcgetattr(&pty.slave).expect("tcgetattr");
    attributes.output_flags.remove(OutputFlags::ONLCR);
    tcsetattr(&pty.slave, SetArg::TCSANOW, &attributes).expect("tcsetattr");
    shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
    let client = shim.attach();
    written(&pty.slave, b"a\nb\n");
    shim.logged("two lines", 6);
    assert_eq!(client.packets().concat(), b"\x02a\r\nb\r\n");
}

#[test]
fn input_that_came_before_the_terminal_is_kept_for_it() {
    let (mut shim, _child) = Shim::new(Stdio::Terminal);
    let client = shim.attach();
    for word in [b"one ", b"two "] {
        client.send(word);
        shim.run_until_idle();
    }
    client.end_input();
    shim.run_until_idle();
    let pty = raw_terminal();
    shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
    let mut input = Vec::new();
    shim.run_until("the input", |_| {
        input.extend_from_slice(&available(&pty.slave));
        input.len() == 8
    });
    assert_eq!(input, b"one two ");
}

#[test]
fn the_end_of_a_clients_input_ends_neither_output_nor_others_input() {
    let (mut shim, _child) = Shim::new(Stdio::Terminal);
    let pty = raw_terminal();
    shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
    let (first, second) = (shim.attach(), shim.attach());
    first.end_input();
    shim.run_until_idle();
    second.send(b"typed");
    shim.run_until_idle();
    // No ^D came either.
    assert_eq!(available(&pty.slave), b"typed");
    written(&pty.slave, b"shown");
    shim.logged("a word", 5);
    assert_eq!(first.packets(), [b"\x02shown"]);
}

#[test]
fn a_mebibyte_each_way_at_once_is_exact() {
    let (mut shim, _child) = Shim::new(Stdio::Terminal);
    let pty = raw_terminal();
    shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
    let client = shim.attach();
    let bytes = pattern(1 << 20);
    let container = {
        let (mut from, expected) = (File::from(pty.slave.try_clone().expect("a clone")), bytes.clone());
        thread::spawn(move || {
            let mut input = vec![0; expected.len()];
            from.read_exact(&mut input).expect("the container's input");
            assert_same(&input, &expected);
        })
    };
    let writer = write_all(pty.slave, &bytes);
    let mut packets = bytes.chunks(32 << 10).peekable();
    let mut received = Recording::default();
    shim.run_until("both directions", |_| {
        if packets.peek().is_some_and(|packet| send(client.raw(), packet, MsgFlags::MSG_DONTWAIT).is_ok()) {
            packets.next();
        }
        client.take(&mut received);
        received.stdout.len() == bytes.len() && container.is_finished()
    });
    assert_same(&received.stdout, &bytes);
    assert_same(&shim.log.stdout, &bytes);
    container.join().expect("the container");
    writer.join().expect("a writer");
}

#[test]
fn a_terminal_that_its_last_user_left_comes_to_life_again() {
    alone("terminal::a_terminal_that_its_last_user_left_comes_to_life_again", || {
        let (mut shim, _child) = Shim::new(Stdio::Terminal);
        let OpenptyResult { master, slave } = raw_terminal();
        let path = terminal_path(&slave);
        let master_too = master.try_clone().expect("a clone");
        shim.relay.connect_terminal(&shim.event_loop, master).expect("connect_terminal");
        let client = shim.attach();
        let mut user = Some(slave);
        for round in 1..=3 {
            written(&user.take().unwrap_or_else(|| open_terminal(&path)), b"hello");
            shim.logged("a word of each user", 5 * round);
            shim.run_until_idle();
            let error = nix::unistd::read(&master_too, &mut [0]).expect_err("nobody has it open");
            assert_eq!(error, Errno::EIO);
            shim.turns = 0;
            for _ in 0..5 {
                shim.turn(Instant::now() + Duration::from_millis(5));
            }
            assert_eq!(shim.turns, 0, "events while nobody has the terminal open");
        }
        assert_eq!(client.packets(), [b"\x02hello"; 3]);
    });
}

#[test]
fn input_for_a_terminal_that_nobody_has_open_waits_for_the_next_user() {
    alone("terminal::input_for_a_terminal_that_nobody_has_open_waits_for_the_next_user", || {
        let (mut shim, _child) = Shim::new(Stdio::Terminal);
        let OpenptyResult { master, slave } = raw_terminal();
        let path = terminal_path(&slave);
        shim.relay.connect_terminal(&shim.event_loop, master).expect("connect_terminal");
        drop(slave);
        let client = shim.attach();
        shim.run_until_idle();
        client.send(b"for ");
        shim.run_until_idle();
        let user = open_terminal(&path);
        client.send(b"you");
        let mut input = Vec::new();
        shim.run_until("the input", |_| {
            input.extend_from_slice(&available(&user));
            input.len() == 7
        });
        assert_eq!(input, b"for you");
    });
}

#[test]
fn e17_at_the_end_a_terminal_is_read_to_its_last_byte() {
    for _ in 0..100 {
        let (mut shim, _child) = Shim::new(Stdio::Terminal);
        let pty = raw_terminal();
        shim.relay.connect_terminal(&shim.event_loop, pty.master).expect("connect_terminal");
        let output = pattern(3000);
        written(&pty.slave, &output);
        drop(pty.slave);
        shim.end();
        assert_same(&shim.log.stdout, &output);
    }
}

fn size_of(terminal: &OwnedFd) -> (u16, u16) {
    let output = std::process::Command::new("stty").arg("size").stdin(terminal.try_clone().expect("a clone")).output();
    let text = String::from_utf8(output.expect("stty").stdout).expect("numbers");
    let (height, width) = text.trim().split_once(' ').expect("two numbers");
    (height.parse().expect("a number"), width.parse().expect("a number"))
}

fn open_terminal(path: &Path) -> OwnedFd {
    use std::os::unix::fs::OpenOptionsExt;
    let options = OFlag::O_NOCTTY.bits();
    File::options().read(true).write(true).custom_flags(options).open(path).expect("the terminal").into()
}
