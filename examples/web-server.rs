//! A service as generations want it: a small HTTP server on its own unix socket, which says when it is ready, and ends on
//! SIGTERM without losing a request. docs/generations.md, "A worked example", and the tests run it.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

/// How long nobody must have come, before it closes: who found this socket before the switch may connect to it just now.
const QUIET: Duration = Duration::from_millis(100);

/// A client that says nothing in this time gets nothing.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> io::Result<()> {
    // Blocked before there is another thread, so that it only ever comes through the descriptor.
    let signals = SigSet::from(Signal::SIGTERM);
    signals.thread_block()?;
    let signals = SignalFd::new(&signals)?;
    let socket = env::var_os("DUNNAGE_SOCKET").ok_or_else(|| io::Error::other("DUNNAGE_SOCKET is not set"))?;
    let listener = UnixListener::bind(socket)?;
    listener.set_nonblocking(true)?;
    println!("{}", who());
    notify("STATUS=waiting for requests\nREADY=1");
    let mut requests = Vec::new();
    while !wait(&[&signals, &listener], None)?[0] {
        accept(&listener, &mut requests)?;
    }
    // No new client finds this socket any more. Those that did are served first.
    notify("STATUS=finishing\nSTOPPING=1");
    while wait(&[&listener], Some(QUIET))?[0] {
        accept(&listener, &mut requests)?;
    }
    drop(listener);
    for request in requests {
        // One that panicked has said so.
        let _ = request.join();
    }
    Ok(())
}

/// Waits for one of these to be readable: which are. None at the end of the time.
fn wait(fds: &[&dyn AsFd], time: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut fds: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)).collect();
    let timeout = time.map_or(PollTimeout::NONE, |time| PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX));
    match poll(&mut fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(fds.iter().map(|fd| fd.any().unwrap_or(false)).collect()),
        Err(error) => Err(error.into()),
    }
}

/// Takes all clients that wait.
fn accept(listener: &UnixListener, requests: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
    requests.retain(|request| !request.is_finished());
    loop {
        match listener.accept() {
            Ok((client, _)) => requests.push(thread::spawn(move || {
                if let Err(error) = answer(&client) {
                    eprintln!("a client went away: {error}");
                }
            })),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Answers one request, whatever it asks for, with who answers.
fn answer(client: &UnixStream) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(client).lines();
    // To the empty line after the headers.
    while !lines.next().transpose()?.unwrap_or_default().is_empty() {}
    let body = who() + "\n";
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let mut client = client;
    client.write_all((head + &body).as_bytes())
}

/// Which generation this is.
fn who() -> String {
    let variable = |name| env::var(name).unwrap_or_else(|_| "?".to_owned());
    let (generation, build) = (variable("DUNNAGE_GENERATION"), variable("DUNNAGE_BUILD"));
    format!("generation {generation} of {build}, process {}", process::id())
}

/// Tells the monitor, as sd_notify(3) does. While there is none, the service goes on all the same.
fn notify(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = UnixDatagram::unbound().and_then(|own| own.send_to(state.as_bytes(), &socket)) {
        eprintln!("{} takes no {state:?}: {error}", socket.display());
    }
}
