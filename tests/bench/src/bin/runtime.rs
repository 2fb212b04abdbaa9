//! What a measured monitor starts: an OCI runtime that does next to nothing, and the container it makes.
//!
//! Called as a runtime (`... create ... --pid-file P ...`) it forks a payload that does the steps in `BENCH_STEPS`,
//! writes its pid and ends. `bench-runtime payload STEPS` does the steps itself, and `bench-runtime limit FILE` is the
//! least that logging takes: it reads its stdin, stamps lines and writes them to the file. `bench-runtime monitor ...`,
//! with conmon's options, is the least that a monitor takes, and `bench-runtime relay SOCKET` the least between a client and `cat`.
//!
//! Steps are words divided by semicolons: `wait` for a byte in the fifo `BENCH_GO`; `done`, a byte into `BENCH_DONE`;
//! `lines LENGTH BYTES` of output; `cat`; `read BYTES` of stdin; `orphans COUNT`; `tick`, the time as a line each millisecond;
//! `listen` on `DUNNAGE_SOCKET`; `crowd COUNT`, so many processes that hang; `hang`.

#![no_main]

// The bare loop copies as dunnage does.
#[path = "../../../../records/src/copy.rs"]
mod copy;

#[path = "../bare_monitor.rs"]
mod bare_monitor;
#[path = "../bare_relay.rs"]
mod bare_relay;

use std::env;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use copy::copy;
use memchr::memchr;
use nix::fcntl::OFlag;
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{ForkResult, dup2_stdin, dup2_stdout, fork, pause, pipe2};

/// How much is read and written at once: what a pipe holds.
const BLOCK: usize = 64 << 10;

/// The standard library's own `main` would cost each start a dozen system calls, which are not the monitor's.
///
/// # Safety
///
/// The C library calls it, with `count` strings.
// SAFETY: the only symbol of this name; it has the C signature.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    // Musl tells the standard library nothing of the command line.
    let args = (1..usize::try_from(count).unwrap_or(0)).map(|place| {
        // SAFETY: there are `count` C strings, which live as long as the process.
        OsStr::from_bytes(unsafe { CStr::from_ptr(*words.add(place)) }.to_bytes())
    });
    match run(&args.collect::<Vec<_>>()) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("bench-runtime: {error}");
            1
        }
    }
}

fn run(args: &[&OsStr]) -> io::Result<()> {
    match *args {
        [mode, steps] if mode == "payload" => payload(&steps.to_string_lossy()),
        [mode, socket] if mode == "relay" => relay(Path::new(socket)),
        [mode, file] if mode == "limit" => limit(&File::create(file)?),
        [mode, ref options @ ..] if mode == "monitor" => bare_monitor::run(options),
        _ => create(args.iter().skip_while(|arg| **arg != "--pid-file").nth(1).copied()),
    }
}

fn create(pid_file: Option<&OsStr>) -> io::Result<()> {
    let pid_file = pid_file.ok_or_else(|| io::Error::other("no --pid-file"))?;
    // SAFETY: there is one thread.
    match unsafe { fork()? } {
        ForkResult::Child => payload(&env::var("BENCH_STEPS").unwrap_or_default()),
        ForkResult::Parent { child } => fs::write(pid_file, child.to_string()),
    }
}

/// A relay, with a `cat` of its own.
fn relay(socket: &Path) -> io::Result<()> {
    let ((its_stdin, stdin), (stdout, its_stdout)) = (pipe2(OFlag::O_CLOEXEC)?, pipe2(OFlag::O_CLOEXEC)?);
    // SAFETY: there is one thread.
    if let ForkResult::Child = unsafe { fork()? } {
        dup2_stdin(its_stdin)?;
        dup2_stdout(its_stdout)?;
        drop((stdin, stdout));
        return cat();
    }
    drop((its_stdin, its_stdout));
    bare_relay::run(socket, &stdin, &stdout)
}

fn payload(steps: &str) -> io::Result<()> {
    for step in steps.split(';') {
        let words: Vec<&str> = step.split(' ').collect();
        match words.as_slice() {
            ["wait"] => signal_fifo("BENCH_GO", OpenOptions::new().read(true))?.read_exact(&mut [0])?,
            ["done"] => signal_fifo("BENCH_DONE", OpenOptions::new().write(true))?.write_all(b"x")?,
            ["lines", length, bytes] => lines(number(length)?, number(bytes)?)?,
            ["cat"] => cat()?,
            ["read", bytes] => read(number(bytes)?)?,
            ["orphans", count] => orphans(number(count)?)?,
            ["tick"] => tick()?,
            // Open until the end.
            ["listen"] => drop(UnixListener::bind(env::var_os("DUNNAGE_SOCKET").unwrap_or_default())?.into_raw_fd()),
            ["crowd", count] => crowd(number(count)?)?,
            ["hang"] => loop {
                pause();
            },
            _ => return Err(io::Error::other(format!("this is no step: {step}"))),
        }
    }
    Ok(())
}

fn number(word: &str) -> io::Result<usize> {
    word.parse().map_err(io::Error::other)
}

fn signal_fifo(variable: &str, options: &OpenOptions) -> io::Result<File> {
    options.open(env::var_os(variable).unwrap_or_default())
}

/// Writes `bytes` of lines of `length` bytes each, newline and all, in blocks of whole lines.
fn lines(length: usize, bytes: usize) -> io::Result<()> {
    let mut line = vec![b'x'; length - 1];
    line.push(b'\n');
    let block = line.repeat((BLOCK / length).max(1));
    let mut left = bytes;
    while left > 0 {
        let now = left.min(block.len());
        raw_stdout().write_all(&block[..now])?;
        left -= now;
    }
    Ok(())
}

fn cat() -> io::Result<()> {
    let mut buffer = vec![0; BLOCK];
    loop {
        match raw_stdin().read(&mut buffer)? {
            0 => return Ok(()),
            length => raw_stdout().write_all(&buffer[..length])?,
        }
    }
}

fn read(bytes: usize) -> io::Result<()> {
    let mut buffer = vec![0; BLOCK];
    let mut left = bytes;
    while left > 0 {
        match raw_stdin().read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => left = left.saturating_sub(length),
        }
    }
    Ok(())
}

/// Leaves so many zombies to whoever adopts orphans, once it is told to.
fn orphans(count: usize) -> io::Result<()> {
    // SAFETY: there is one thread.
    if let ForkResult::Parent { .. } = unsafe { fork()? } {
        return Ok(());
    }
    for _ in 0..count {
        // SAFETY: there is one thread.
        if let ForkResult::Child = unsafe { fork()? } {
            std::process::exit(0);
        }
    }
    payload("done;wait")?;
    std::process::exit(0);
}

/// So many processes that do nothing.
fn crowd(count: usize) -> io::Result<()> {
    for _ in 0..count {
        // SAFETY: there is one thread.
        if let ForkResult::Child = unsafe { fork()? } {
            loop {
                pause();
            }
        }
    }
    Ok(())
}

/// Writes the time again and again, for whoever reads it to see how old it is.
fn tick() -> io::Result<()> {
    loop {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?.num_nanoseconds();
        raw_stdout().write_all(format!("{now}\n").as_bytes())?;
        thread::sleep(Duration::from_millis(1));
    }
}

/// The bare loop that a logger is held against.
fn limit(mut file: &File) -> io::Result<()> {
    const STAMP: &[u8] = b"2026-11-30T13:02:15.123456789+00:00 stdout F ";
    let mut input = vec![0; BLOCK];
    let mut output = vec![0; 2 * BLOCK];
    loop {
        let length = raw_stdin().read(&mut input)?;
        if length == 0 {
            return Ok(());
        }
        let mut stamp = STAMP.to_vec();
        let nanos = clock_gettime(ClockId::CLOCK_REALTIME)?.tv_nsec();
        write!(&mut stamp[20..29], "{nanos:09}")?;
        let mut rest = &input[..length];
        let mut used = 0;
        while !rest.is_empty() {
            let line = memchr(b'\n', rest).map_or(rest.len(), |newline| newline + 1);
            if used + stamp.len() + line > output.len() {
                file.write_all(&output[..used])?;
                used = 0;
            }
            copy(&stamp, &mut output[used..]);
            used += stamp.len();
            copy(&rest[..line], &mut output[used..]);
            used += line;
            rest = &rest[line..];
        }
        file.write_all(&output[..used])?;
    }
}

/// Without the standard library's buffers and locks.
fn raw_stdin() -> impl Read {
    RawFd(io::stdin())
}

fn raw_stdout() -> impl Write {
    RawFd(io::stdout())
}

struct RawFd<T>(T);

impl<T: std::os::fd::AsFd> Read for RawFd<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(&self.0, buffer)?)
    }
}

impl<T: std::os::fd::AsFd> Write for RawFd<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(nix::unistd::write(&self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
