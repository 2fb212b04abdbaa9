//! Bytes a second: into the log, to clients, from a client.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::{Duration, Instant};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Client, Process};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::pipe2;

use crate::bench::Bench;
use crate::figure::{Figure, Goal, Pair, Samples, Who};
use crate::proc;

const ROUNDS: usize = 7;
const LOGGED: usize = 256 << 20;
const ATTACHED: usize = 128 << 20;
const THROUGH: usize = 64 << 20;

/// When a monitor has not run for so long, it is done with what there was.
const QUIET: Duration = Duration::from_millis(20);

#[expect(clippy::cast_precision_loss)]
fn mib_per_second(bytes: usize, took: Duration) -> f64 {
    bytes as f64 / f64::from(1 << 20) / took.as_secs_f64()
}

#[expect(clippy::cast_precision_loss)]
fn seconds_per_gib(bytes: usize, took: Duration) -> f64 {
    took.as_secs_f64() / (bytes as f64 / f64::from(1 << 30))
}

fn steps(length: usize, bytes: usize) -> String {
    format!("wait;lines {length} {bytes};done;wait")
}

/// What logging so many bytes took.
struct Logged {
    /// Until the container had written all, which leaves no more than a pipe holds.
    took: Duration,
    cpu: Duration,
}

pub(crate) fn log(bench: &Bench) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (length, name, goal) in [(100, "100-byte", 2.5), (20, "20-byte", 3.5), (16 << 10, "16 KiB", 2.0)] {
        let (mut rate, mut cpu) = (Pair::default(), Pair::default());
        let (mut limit, mut limit_cpu, mut cat) = (Samples::default(), Samples::default(), Samples::default());
        for _ in 0..ROUNDS {
            for who in Who::BOTH {
                let logged = log_once(bench, who, length);
                rate.push(who, mib_per_second(LOGGED, logged.took));
                cpu.push(who, seconds_per_gib(LOGGED, logged.cpu));
            }
            let log = bench.log();
            let bare = pipe_once(bench, length, &[bench.runtime.as_os_str(), "limit".as_ref(), log.as_os_str()]);
            limit.push(mib_per_second(LOGGED, bare.took));
            limit_cpu.push(seconds_per_gib(LOGGED, bare.cpu));
            cat.push(mib_per_second(LOGGED, pipe_once(bench, length, &["/bin/cat".as_ref()]).took));
        }
        let rates = rate.dunnage.clone();
        figures.push(rate.figure(&format!("log, {name} lines"), "MiB/s", Goal::AtLeastTimes(goal)));
        let beside = ("bare loop", limit);
        figures.push(Figure::beside("  beside a bare loop", "MiB/s", rates.clone(), beside, Goal::AtLeastTimes(0.9)));
        figures.push(Figure::beside("  beside cat > file", "MiB/s", rates, ("cat", cat), Goal::Shown));
        let goal = if length == 100 { Goal::AtMostTimes(0.4) } else { Goal::Shown };
        let cpus = cpu.dunnage.clone();
        figures.push(cpu.figure(&format!("log, {name} lines: processor time"), "s/GiB", goal));
        let beside = ("bare loop", limit_cpu);
        figures.push(Figure::beside("  beside a bare loop", "s/GiB", cpus, beside, Goal::Shown));
    }
    figures
}

fn log_once(bench: &Bench, who: Who, length: usize) -> Logged {
    let shim = bench.monitor(who, &steps(length, LOGGED)).start();
    let logged = run(bench, &shim.long);
    let size = fs::metadata(bench.log()).expect("a log").len();
    assert!(size > LOGGED as u64, "{size} bytes were logged");
    bench.go();
    shim.end();
    fs::remove_file(bench.log()).expect("a log");
    logged
}

/// Lets a payload write, and looks at the process that takes what it writes.
fn run(bench: &Bench, taker: &Process) -> Logged {
    let before = proc::cpu_when_quiet(taker, QUIET);
    let begin = Instant::now();
    bench.go();
    bench.wait_done();
    let took = begin.elapsed();
    let cpu = proc::cpu_when_quiet(taker, QUIET).saturating_sub(before);
    Logged { took, cpu }
}

/// The same with a program that reads a pipe, in place of a monitor.
fn pipe_once(bench: &Bench, length: usize, argv: &[&std::ffi::OsStr]) -> Logged {
    let (read, write) = pipe2(OFlag::O_CLOEXEC).expect("a pipe");
    let log = File::create(bench.log()).expect("a log");
    let argv: Vec<_> = argv.iter().map(Into::into).collect();
    let taker = Process::spawn(&argv, &bench.environment(""), &[(read.as_fd(), 0), (log.as_fd(), 1)]);
    let payload = [bench.runtime.clone().into(), "payload".into(), steps(length, LOGGED).into()];
    let payload = Process::spawn(&payload, &bench.environment(""), &[(write.as_fd(), 1)]);
    drop((read, write));
    let logged = run(bench, &taker);
    bench.go();
    payload.wait_status(Deadline::usual(), "the writer");
    taker.wait_status(Deadline::usual(), "the reader");
    fs::remove_file(bench.log()).expect("a log");
    logged
}

/// What clients got.
struct Attached {
    /// Until the container had written all.
    logged: Duration,
    /// Until the last client had the last byte.
    received: Duration,
    /// The share of the bytes that the client with the fewest got.
    share: f64,
}

pub(crate) fn attach(bench: &Bench) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut alone = Samples::default();
    for _ in 0..ROUNDS {
        alone.push(mib_per_second(ATTACHED, attach_once(bench, Who::Dunnage, 0).logged));
    }
    for (clients, name) in [(1, "one client"), (10, "each of ten clients")] {
        let (mut rate, mut share, mut log) = (Pair::default(), Pair::default(), Samples::default());
        for _ in 0..ROUNDS {
            for who in Who::BOTH {
                let attached = attach_once(bench, who, clients);
                rate.push(who, mib_per_second(ATTACHED, attached.received) * attached.share);
                share.push(who, attached.share * 100.0);
                if who == Who::Dunnage {
                    log.push(mib_per_second(ATTACHED, attached.logged));
                }
            }
        }
        figures.push(rate.figure(&format!("attach: {name}"), "MiB/s", Goal::AtLeastTimes(2.0)));
        figures.push(share.figure("  of the output, received", "%", Goal::Shown));
        let beside = ("no client", alone.clone());
        figures.push(Figure::beside("  log meanwhile", "MiB/s", log, beside, Goal::AtLeastTimes(0.9)));
    }
    figures
}

fn attach_once(bench: &Bench, who: Who, clients: usize) -> Attached {
    let shim = bench.monitor(who, &steps(100, ATTACHED)).start();
    let clients: Vec<Client> = (0..clients).map(|_| shim.attach()).collect();
    proc::cpu_when_quiet(&shim.long, QUIET);
    let begin = Instant::now();
    bench.go();
    let reader = thread::spawn(move || receive(&clients, ATTACHED, begin));
    bench.wait_done();
    let logged = begin.elapsed();
    let (received, share) = reader.join().expect("clients");
    bench.go();
    shim.end();
    fs::remove_file(bench.log()).expect("a log");
    Attached { logged, received, share }
}

/// Receives until each client has all, or nothing more comes. When the last byte came, and the least share.
fn receive(clients: &[Client], wanted: usize, begin: Instant) -> (Duration, f64) {
    let mut got = vec![0; clients.len()];
    let mut open = vec![true; clients.len()];
    let mut last = Duration::ZERO;
    let mut packet = [0; 8193];
    while let Some(_left) = (0..clients.len()).find(|&client| open[client] && got[client] < wanted) {
        let waiting: Vec<usize> = (0..clients.len()).filter(|&client| open[client]).collect();
        let mut fds: Vec<_> =
            waiting.iter().map(|&client| PollFd::new(clients[client].as_fd(), PollFlags::POLLIN)).collect();
        if poll(&mut fds, PollTimeout::from(1000u16)).expect("a poll") == 0 {
            break;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or_default()).collect();
        for (client, _) in waiting.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            loop {
                match recv(clients[client].as_fd().as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) {
                    Ok(length @ 1..) => {
                        got[client] += length - 1;
                        last = begin.elapsed();
                    }
                    Err(nix::Error::EAGAIN) => break,
                    Ok(0) | Err(_) => {
                        open[client] = false;
                        break;
                    }
                }
            }
        }
    }
    let fewest = got.into_iter().min().unwrap_or_default();
    #[expect(clippy::cast_precision_loss)]
    let share = fewest as f64 / wanted as f64;
    (last, share)
}

pub(crate) fn stdin(bench: &Bench) -> Vec<Figure> {
    let (mut back, mut bare, mut one_way) = (Pair::default(), Samples::default(), Pair::default());
    for _ in 0..ROUNDS {
        bare.push(mib_per_second(THROUGH, through_bare_relay(bench)));
        for who in Who::BOTH {
            back.push(who, mib_per_second(THROUGH, through_cat(bench, who)));
            one_way.push(who, mib_per_second(THROUGH, into_stdin(bench, who)));
        }
    }
    let through = back.dunnage.clone();
    vec![
        back.figure("stdin: from a client through cat back to it", "MiB/s", Goal::AtLeastTimes(2.0)),
        Figure::beside("  beside a bare relay", "MiB/s", through, ("bare", bare), Goal::Shown),
        one_way.figure("  from a client, one way", "MiB/s", Goal::Shown),
    ]
}

fn through_cat(bench: &Bench, who: Who) -> Duration {
    let shim = bench.monitor(who, "cat").log("/dev/null").option(&["-i"]).start();
    let client = shim.attach();
    proc::cpu_when_quiet(&shim.long, QUIET);
    let (took, share) = there_and_back(client);
    assert!(share >= 1.0 || who == Who::Conmon, "{share} of the input came back");
    shim.kill();
    took
}

fn through_bare_relay(bench: &Bench) -> Duration {
    let path = bench.dir.join("relay");
    let argv = [bench.runtime.clone().into(), "relay".into(), path.clone().into()];
    let relay = Process::spawn(&argv, &bench.environment(""), &[]);
    let mut client = None;
    wait::eventually(Deadline::usual(), "a relay", || {
        client = Client::connect(&path).ok();
        client.is_some()
    });
    let (took, share) = there_and_back(client.expect("a client"));
    assert!(share >= 1.0, "{share} of the input came back");
    relay.wait_status(Deadline::usual(), "the relay");
    fs::remove_file(path).expect("a socket");
    took
}

/// Sends all and receives it again. How long that took, and what share came.
fn there_and_back(client: Client) -> (Duration, f64) {
    let client = [client];
    let begin = Instant::now();
    thread::scope(|scope| {
        let reader = scope.spawn(|| receive(&client, THROUGH, begin));
        send(&client[0]);
        reader.join().expect("a client")
    })
}

fn into_stdin(bench: &Bench, who: Who) -> Duration {
    let shim = bench.monitor(who, &format!("read {THROUGH};done;hang")).option(&["-i"]).start();
    let client = shim.attach();
    proc::cpu_when_quiet(&shim.long, QUIET);
    let begin = Instant::now();
    send(&client);
    bench.wait_done();
    let took = begin.elapsed();
    shim.kill();
    took
}

fn send(client: &Client) {
    let packet = vec![b'x'; 32 << 10];
    for _ in 0..THROUGH / packet.len() {
        client.send(&packet);
    }
}
