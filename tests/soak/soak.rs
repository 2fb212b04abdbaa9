//! Many containers and execs through dunnage with runc, so many at a time: does each tell the right exit status, does
//! anything stay behind, and does a monitor grow? `scripts/soak` runs it.

mod container;
mod remains;
mod witness;

use std::collections::BTreeMap;
use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use container::{Kind, Life};
use remains::Remains;
use witness::Witness;

/// How many of each failure are shown.
const SHOWN: usize = 10;

/// How often it is said how far it is.
const SAID_EVERY: usize = 100;

struct Size {
    containers: usize,
    execs: usize,
    at_a_time: usize,
}

/// What was seen so far.
#[derive(Default)]
struct Seen {
    containers: usize,
    execs: BTreeMap<Kind, usize>,
    /// The private memory of each container's monitor at its end, in KiB.
    memory: Vec<usize>,
    failures: Vec<String>,
}

fn main() -> ExitCode {
    let numbers: Option<Vec<usize>> = env::args().skip(1).map(|word| word.parse().ok()).collect();
    let size = match numbers.as_deref() {
        Some([]) => Size { containers: 2000, execs: 5000, at_a_time: 20 },
        Some(&[containers, execs, at_a_time]) if containers > 0 && at_a_time > 0 => {
            Size { containers, execs, at_a_time }
        }
        _ => {
            eprintln!("usage: soak [CONTAINERS EXECS AT_A_TIME]");
            return ExitCode::FAILURE;
        }
    };
    // What failed is shown at the end, once.
    panic::set_hook(Box::new(|_| {}));
    let started = Instant::now();
    let before = Remains::now();
    let seen = Mutex::new(Seen::default());
    let witness = Witness::start();
    let grown = panic::catch_unwind(AssertUnwindSafe(|| {
        live(&size, &witness, &seen);
        witness.end()
    }));
    let mut seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    let grown = grown.unwrap_or_else(|panic| {
        seen.failures.push(format!("the witness: {}", text(&*panic)));
        String::new()
    });
    let left = Remains::now().since(&before);
    report(&size, &seen, &grown, &left, started.elapsed())
}

/// Runs the lives of all containers.
fn live(size: &Size, witness: &Witness, seen: &Mutex<Seen>) {
    let next = AtomicUsize::new(0);
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= size.containers {
                return;
            }
            // Spread evenly, and all of them.
            let first = |number: usize| size.execs * number / size.containers;
            let mut life = Life::new(number, first(number)..first(number + 1));
            let ended = panic::catch_unwind(AssertUnwindSafe(|| {
                life.live();
                witness.look();
            }));
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.containers += 1;
            for kind in &life.ended {
                *seen.execs.entry(*kind).or_default() += 1;
            }
            seen.memory.extend(life.memory);
            if let Err(panic) = ended {
                seen.failures.push(format!("container {number}, {}: {}", life.doing, text(&*panic)));
            }
            if seen.containers.is_multiple_of(SAID_EVERY) {
                eprintln!("{} of {} containers, {} failures", seen.containers, size.containers, seen.failures.len());
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..size.at_a_time.min(size.containers) {
            scope.spawn(worker);
        }
    });
}

fn text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}

/// Prints the table, in the form of `docs/soak.md`.
fn report(size: &Size, seen: &Seen, grown: &str, left: &[String], took: Duration) -> ExitCode {
    println!("{} at a time, {} s\n", size.at_a_time, took.as_secs());
    println!("| what | asked for | done |\n| --- | ---: | ---: |");
    println!("| containers, each with its exit status and output | {} | {} |", size.containers, seen.memory.len());
    let execs: usize = seen.execs.values().sum();
    println!("| execs, each with its exit status and output | {} | {execs} |", size.execs);
    for (kind, count) in &seen.execs {
        println!("| of them {} | | {count} |", kind.name());
    }
    println!("| failures | 0 | {} |", seen.failures.len());
    println!("| processes, files, sockets, mounts, cgroups, descriptors left | 0 | {} |", left.len());
    let mean = |memory: &[usize]| memory.iter().sum::<usize>() / memory.len().max(1);
    let tenth = seen.memory.len().div_ceil(10);
    let (first, last) = (&seen.memory[..tenth], &seen.memory[seen.memory.len() - tenth..]);
    println!(
        "| private memory of a container's monitor at its end, KiB: mean of the first tenth, of the last, the most | | {}, {}, {} |",
        mean(first),
        mean(last),
        seen.memory.iter().max().unwrap_or(&0)
    );
    println!("| {grown} |");
    for failure in seen.failures.iter().take(SHOWN) {
        println!("\nfailed: {failure}");
    }
    for what in left.iter().take(SHOWN) {
        println!("\nleft: {what}");
    }
    let complete = seen.memory.len() == size.containers && execs == size.execs;
    if complete && seen.failures.is_empty() && left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
