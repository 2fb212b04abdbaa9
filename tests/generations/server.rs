//! What generations run in tests: a server that does what its arguments and its clients tell it.
//!
//! It listens on DUNNAGE_SOCKET, notifies READY=1, and answers each line of a client with a line that begins with its
//! generation's number. On SIGTERM it takes no more clients, answers those that it has until they leave, and exits with
//! status 0. Arguments, each of which may come several times:
//!
//! - `fork`: starts a child in a session of its own that ignores SIGTERM and lives on
//! - `say=TEXT`: writes TEXT to stdout, as it is
//! - `fill=PATH`: writes a file of 32 MiB there
//! - `exit=STATUS`: exits instead of serving
//! - `stubborn`: SIGTERM is ignored
//! - `idle`: no socket, until SIGTERM
//! - `lingers`: what it is as a forked child

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, Stdio};
use std::sync::Mutex;
use std::thread;

use nix::sys::signal::{SigSet, Signal};

/// Those that are connected, and their threads: both are waited for at the end.
static CLIENTS: Mutex<Vec<thread::JoinHandle<()>>> = Mutex::new(Vec::new());

fn main() {
    // Before there is any other thread.
    let signals = SigSet::from_iter([Signal::SIGTERM]);
    signals.thread_block().expect("signals can be blocked");
    let args: Vec<String> = env::args().skip(1).collect();
    let (mut stubborn, mut idle) = (false, false);
    for arg in &args {
        match arg.split_once('=').unwrap_or((arg, "")) {
            ("fork", _) => drop(fork()),
            ("say", text) => say(text),
            ("fill", path) => fs::write(path, vec![1; 32 << 20]).expect("a file"),
            ("exit", status) => process::exit(status.parse().expect("a status")),
            ("stubborn", _) => stubborn = true,
            ("idle", _) => idle = true,
            ("lingers", _) => loop {
                thread::park();
            },
            _ => panic!("unknown argument {arg:?}"),
        }
    }
    if !idle {
        let path = env::var_os("DUNNAGE_SOCKET").expect("DUNNAGE_SOCKET");
        let listener = UnixListener::bind(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        notify("READY=1");
        thread::spawn(move || accept(&listener));
    }
    loop {
        signals.wait().expect("a signal");
        if !stubborn {
            break;
        }
    }
    // Those that come from now on find nobody.
    if let Some(path) = env::var_os("DUNNAGE_SOCKET").filter(|_| !idle) {
        let _ = fs::remove_file(path);
    }
    loop {
        let client = CLIENTS.lock().expect("the list of clients").pop();
        match client {
            Some(client) => drop(client.join()),
            None => process::exit(0),
        }
    }
}

fn accept(listener: &UnixListener) {
    for client in listener.incoming() {
        let client = client.expect("a client");
        CLIENTS.lock().expect("the list of clients").push(thread::spawn(move || serve(&client)));
    }
}

fn generation() -> String {
    env::var("DUNNAGE_GENERATION").unwrap_or_default()
}

/// Answers each line: `who` with PID and build, `env` with the environment, `fork` with the PID of a new child; does what
/// `say TEXT`, `notify TEXT` and `exit STATUS` say; anything else comes back.
fn serve(client: &UnixStream) {
    let mut answers = client;
    for line in BufReader::new(client).lines() {
        let Ok(line) = line else { return };
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match word {
            "who" => format!("{} {}", process::id(), env::var("DUNNAGE_BUILD").unwrap_or_default()),
            "env" => env::vars().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "),
            "fork" => fork().to_string(),
            "say" => {
                say(rest);
                String::new()
            }
            "notify" => {
                notify(rest);
                String::new()
            }
            "exit" => process::exit(rest.parse().expect("a status")),
            _ => line.clone(),
        };
        if writeln!(answers, "{} {answer}", generation()).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

/// Writes text, in which `\n` is a newline, and no more than that.
fn say(text: &str) {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.replace("\\n", "\n").as_bytes()).expect("stdout");
    stdout.flush().expect("stdout");
}

fn notify(text: &str) {
    if let Some(socket) = env::var_os("NOTIFY_SOCKET") {
        // Nobody may be there: the shim was killed.
        let _ = UnixDatagram::unbound().and_then(|own| own.send_to(text.as_bytes(), &socket));
    }
}

/// A process that its parent's end, and SIGTERM, change nothing about: the mask stays blocked.
fn fork() -> u32 {
    let mut command = Command::new("/proc/self/exe");
    command.arg("lingers").stdin(Stdio::null()).process_group(0);
    command.spawn().expect("a child").id()
}
