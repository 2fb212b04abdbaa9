//! A flood of zombies that nobody waits for.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dunnage_testing::Client;
use nix::sys::socket::{MsgFlags, recv};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

use crate::bench::{BOUND, Bench, Shim};
use crate::figure::{Figure, Goal, Pair, Who};

const ORPHANS: usize = 10_000;
const ROUNDS: usize = 3;

pub(crate) fn orphans(bench: &Bench) -> Vec<Figure> {
    let (mut sweep, mut stall) = (Pair::default(), Pair::default());
    for _ in 0..ROUNDS {
        for who in Who::BOTH {
            let shim = bench.monitor(who, &format!("orphans {ORPHANS};tick")).log("/dev/null").start();
            let client = shim.attach();
            bench.wait_done();
            let stop = Arc::new(AtomicBool::new(false));
            let watch = {
                let stop = Arc::clone(&stop);
                thread::spawn(move || longest_delay(&client, &stop))
            };
            bench.go();
            let swept = swept(&shim);
            stop.store(true, Ordering::Relaxed);
            sweep.push(who, swept.as_secs_f64());
            stall.push(who, watch.join().expect("a client").as_secs_f64() * 1e3);
            shim.kill();
        }
    }
    vec![
        sweep.figure("10,000 orphans: first to last reaped", "s", Goal::AtMost(1.0)),
        stall.figure("  longest delay of output meanwhile", "ms", Goal::AtMost(50.0)),
    ]
}

/// From the first orphan reaped to the last: dunnage leaves them to possible owners for a second before.
fn swept(shim: &Shim<'_>) -> Duration {
    let begin = Instant::now();
    let mut most = 0;
    let mut first = None;
    loop {
        let left = shim.long.children().len();
        if left < most && first.is_none() {
            first = Some(Instant::now());
        }
        // The container itself, and perhaps the parent that left them.
        if most > ORPHANS && left <= 2 {
            return first.map(|first| first.elapsed()).unwrap_or_default();
        }
        most = most.max(left);
        // A monitor that reaps as they come is never seen with all of them.
        if most <= ORPHANS && left <= 2 && begin.elapsed() > Duration::from_secs(2) {
            return first.map(|first| first.elapsed()).unwrap_or_default();
        }
        assert!(begin.elapsed() < BOUND, "{left} orphans are left");
        // Rarely: the list takes the kernel long while there are many.
        thread::sleep(Duration::from_millis(20));
    }
}

/// The longest time that a line of the payload's took to arrive.
fn longest_delay(client: &Client, stop: &AtomicBool) -> Duration {
    let clock = || clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock").num_nanoseconds();
    // What was written before lay here unread.
    let begin = clock();
    let mut packet = [0; 8193];
    let mut longest = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(length @ 1..) = recv(client.as_fd().as_raw_fd(), &mut packet, MsgFlags::empty()) else { break };
        let now = clock();
        let lines = String::from_utf8_lossy(&packet[1..length]);
        let written = lines.lines().filter_map(|line| line.parse::<i64>().ok()).find(|written| *written > begin);
        longest = longest.max(written.map_or(0, |written| now - written));
    }
    Duration::from_nanos(longest.unsigned_abs())
}
