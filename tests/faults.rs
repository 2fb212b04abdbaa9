//! Every system call of a shim's life, made to fail, one in each run.
//!
//! Once without a fault, strace tells which calls there are; then each of them fails with each error that it may have.
//! Whatever that is: the shim ends in time and by itself, a container that ran has its exit code written, one that did not
//! has its reason told, and nothing is left. `FAULTS=all` plays all of them, and `FAULTS=openat` all of that call.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Console, Sandbox, Script, Status, Step, Tool};
use serde_json::Value;

/// What each call may fail with. Those that are not here do not fail, or end any program: a process that gets no memory
/// for its heap is ended, as is one whose stack or code cannot be read.
const ERRORS: [(&str, &[&str]); 52] = [
    ("openat", &["EMFILE", "ENFILE", "ENOMEM", "EACCES", "EIO", "ENOSPC", "EINTR"]),
    ("open", &["EMFILE", "ENFILE", "ENOMEM", "EACCES", "EIO", "ENOSPC", "EINTR"]),
    ("read", &["EIO", "EINTR", "EAGAIN"]),
    ("pread64", &["EIO", "EINTR"]),
    ("readv", &["EIO", "EINTR", "EAGAIN"]),
    ("write", &["ENOSPC", "EIO", "EINTR", "EAGAIN", "EPIPE"]),
    ("writev", &["ENOSPC", "EIO", "EINTR", "EAGAIN"]),
    ("fsync", &["EIO", "ENOSPC"]),
    ("fdatasync", &["EIO", "ENOSPC"]),
    ("ftruncate", &["EIO"]),
    ("rename", &["EIO", "ENOSPC", "EACCES"]),
    ("renameat", &["EIO", "ENOSPC", "EACCES"]),
    ("renameat2", &["EIO", "ENOSPC", "EACCES"]),
    ("unlink", &["EIO", "EACCES"]),
    ("unlinkat", &["EIO", "EACCES"]),
    ("symlink", &["EIO", "ENOSPC"]),
    ("symlinkat", &["EIO", "ENOSPC"]),
    ("mkdir", &["EIO", "ENOSPC"]),
    ("mknod", &["EIO", "ENOSPC"]),
    ("mknodat", &["EIO", "ENOSPC"]),
    ("readlink", &["EIO", "EACCES"]),
    ("readlinkat", &["EIO", "EACCES"]),
    ("stat", &["EIO", "EACCES"]),
    ("lstat", &["EIO", "EACCES"]),
    ("fstat", &["EIO"]),
    ("newfstatat", &["EIO", "EACCES"]),
    ("statx", &["EIO", "EACCES", "ENOSYS"]),
    ("fstatfs", &["EIO"]),
    ("getdents64", &["EIO", "ENOENT"]),
    ("fchmod", &["EIO", "EPERM"]),
    ("access", &["EIO", "EACCES"]),
    ("faccessat", &["EIO", "EACCES"]),
    ("pipe2", &["EMFILE", "ENFILE"]),
    ("eventfd2", &["EMFILE", "ENFILE", "ENOMEM"]),
    ("signalfd4", &["EMFILE", "ENFILE", "ENOMEM"]),
    ("epoll_create1", &["EMFILE", "ENFILE", "ENOMEM"]),
    ("epoll_ctl", &["ENOMEM", "ENOSPC"]),
    ("epoll_wait", &["EINTR"]),
    ("epoll_pwait", &["EINTR"]),
    ("poll", &["EINTR"]),
    ("socket", &["EMFILE", "ENFILE", "ENOMEM"]),
    ("socketpair", &["EMFILE", "ENFILE", "ENOMEM"]),
    ("bind", &["EACCES", "ENOSPC", "EADDRINUSE"]),
    ("listen", &["EADDRINUSE"]),
    ("fcntl", &["EMFILE"]),
    ("fork", &["EAGAIN", "ENOMEM"]),
    ("clone", &["EAGAIN", "ENOMEM", "EMFILE"]),
    ("pidfd_open", &["EMFILE", "ENFILE", "ENOMEM", "ESRCH"]),
    ("waitid", &["ECHILD", "EINTR"]),
    ("prctl", &["EINVAL", "EPERM"]),
    ("capget", &["EPERM"]),
    ("capset", &["EPERM"]),
];

/// Of all faults, how many are played where nothing else is asked for: every so many'th.
const STRIDE: usize = 7;

#[derive(Clone, Debug)]
struct Fault {
    call: String,
    /// Which call of that name.
    number: usize,
    error: &'static str,
    /// Those after it fail as well.
    lasting: bool,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.lasting { "+" } else { "" };
        write!(f, "{}:error={}:when={}{more}", self.call, self.error, self.number)
    }
}

/// What the shim is there for.
#[derive(Clone, Copy, Debug)]
enum Life {
    /// A container with pipes, that says something and ends with 7.
    Pipes,
    /// The same with a terminal.
    Terminal,
    /// The same with a control socket, a limit for its log, and a link to its attach socket.
    Control,
    /// A process in a container, as CRI-O's probes call it.
    Exec,
}

const LIVES: [Life; 4] = [Life::Pipes, Life::Terminal, Life::Control, Life::Exec];

impl Life {
    /// Lives it under strace. Returns how that ended.
    fn play(self, sandbox: &Sandbox, strace: &str, with_exit_command: bool) -> End {
        let mut payload = vec![Step::out("hello\n"), Step::Exit(7)];
        let mut runtime = Vec::from(Step::usual());
        if let Self::Terminal = self {
            runtime.insert(0, Step::Console(Console::Terminal));
            payload.insert(0, Step::out("on a terminal\n"));
        }
        sandbox.script(&Script::runtime(runtime).payload(payload));
        let ran = sandbox.root().join("ran");
        let command = [Step::run(&["/bin/touch", &ran.to_string_lossy()])];
        let monitor = sandbox.monitor(&Tool::under_test()).sync();
        // Without hope it is tried for ten seconds.
        let monitor = if with_exit_command { monitor.exit_command(&command) } else { monitor };
        let monitor = match self {
            Self::Pipes => monitor,
            Self::Terminal => monitor.flag("-t"),
            Self::Control => monitor
                .option("--control-socket", sandbox.root().join("control"))
                .option("--log-size-max", "100")
                .socket_dir(),
            Self::Exec => monitor.exec_sync(),
        };
        let mut running = monitor.through(&format!("exec strace {strace}")).start();
        let status = running.status();
        let told = running.messages();
        let stderr = running.stderr();
        End { status, told, stderr, ran: ran.exists() }
    }
}

/// How a life ended.
#[derive(Debug)]
struct End {
    status: Status,
    told: Vec<Value>,
    stderr: String,
    /// Whether the exit command ran.
    ran: bool,
}

impl End {
    /// What is wrong with it after a fault that passed, or none.
    fn faults(&self, life: Life, sandbox: &Sandbox) -> Vec<String> {
        let mut wrong = match life {
            Life::Exec => self.of_exec(),
            _ => self.of_container(sandbox),
        };
        wrong.extend(left(sandbox));
        wrong
    }

    /// What is wrong with it after one that stayed: little can be asked for where nothing can be opened any more.
    fn lasting_faults(&self, sandbox: &Sandbox) -> Vec<String> {
        let mut wrong = self.by_itself();
        wrong.extend(left(sandbox).into_iter().filter(|left| left.starts_with("process")));
        wrong
    }

    fn of_container(&self, sandbox: &Sandbox) -> Vec<String> {
        let mut wrong = self.by_itself();
        let exits = [sandbox.exit_file(), sandbox.persist().join("exit")].map(|path| fs::read_to_string(path).ok());
        if exits.iter().flatten().any(|code| code != "7") {
            wrong.push(format!("the exit code is {exits:?}"));
        }
        if exits.iter().all(Option::is_none) {
            if self.told.iter().any(|message| message["data"].as_i64().is_some_and(|data| data > 0)) {
                wrong.push("a container that ran has no exit code".to_owned());
            }
            wrong.extend(self.told_of_failure("data"));
            return wrong;
        }
        if !self.ran {
            wrong.push("the exit command did not run".to_owned());
        }
        let log = fs::read_to_string(sandbox.log()).unwrap_or_default();
        if !log.contains("hello") && !log.contains("not logged") {
            wrong.push(format!("output is missing, and the log does not say so: {log:?}"));
        }
        wrong
    }

    fn of_exec(&self) -> Vec<String> {
        let mut wrong = self.by_itself();
        match self.told.iter().filter_map(|message| message["exit_code"].as_i64()).next_back() {
            Some(7) => {}
            Some(-1) | None => wrong.extend(self.told_of_failure("exit_code")),
            Some(code) => wrong.push(format!("the exit code is {code}")),
        }
        wrong
    }

    fn by_itself(&self) -> Vec<String> {
        let wrong = (!matches!(self.status, Status::Exited(_))).then(|| "it did not end by itself".to_owned());
        wrong.into_iter().collect()
    }

    fn told_of_failure(&self, key: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        let is_reason =
            |message: &Value| message["message"].is_string() && [key, "pid"].iter().any(|key| message[key] == -1);
        if !self.told.iter().any(is_reason) && self.stderr.is_empty() {
            wrong.push("it failed, and nobody was told".to_owned());
        }
        if self.status == Status::Exited(0) {
            wrong.push("it failed, and says that it did not".to_owned());
        }
        wrong
    }
}

/// What should not be there any more.
fn left(sandbox: &Sandbox) -> Vec<String> {
    wait::whether(Deadline::usual(), || sandbox.processes().is_empty());
    let processes = sandbox.processes().into_iter().map(|process| format!("process {} is left", process.pid()));
    let directories = [
        sandbox.exits(),
        sandbox.persist(),
        sandbox.temporary(),
        sandbox.bundle(),
        sandbox.sockets(),
        sandbox.root().into(),
    ];
    let names = directories.iter().flat_map(|directory| names(directory));
    let is_left = |name: &String| {
        name.starts_with('.') || name.starts_with("dunnage") || ["attach", "control"].contains(&name.as_str())
    };
    processes.chain(names.filter(is_left).map(|name| format!("{name} is left"))).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// What no care can mend: what cannot be removed, or told from another's, stays; what cannot be read or waited for is not
/// known; and a caller whose pipe fails is not told.
fn is_excused(fault: &Fault, wrong: &str) -> bool {
    match (fault.call.as_str(), fault.error) {
        ("unlink" | "unlinkat" | "statx" | "lstat" | "newfstatat", _) => wrong.ends_with("is left"),
        // A terminal that has something to read does not say EAGAIN.
        ("read" | "readv", "EIO" | "EAGAIN") => wrong.starts_with("output is missing"),
        ("waitid", "ECHILD") => wrong.starts_with("the exit code is"),
        ("write", "EIO" | "ENOSPC" | "EPIPE") => wrong == "it failed, and nobody was told",
        _ => false,
    }
}

/// How often each system call is made where nothing fails.
fn calls(life: Life) -> BTreeMap<String, usize> {
    let sandbox = Sandbox::new();
    let trace = sandbox.root().join("trace");
    let end = life.play(&sandbox, &format!("-qq -o {}", trace.display()), true);
    let wrong = end.faults(life, &sandbox);
    assert!(wrong.is_empty(), "without a fault: {wrong:#?}; {end:?}");
    let mut calls = BTreeMap::new();
    for line in fs::read_to_string(&trace).expect("a trace").lines() {
        if let Some((name, _)) = line.split_once('(') {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

fn faults(life: Life) -> Vec<Fault> {
    let calls = calls(life);
    let of = |(name, errors): &(&str, &'static [&str])| {
        let (call, errors) = ((*name).to_owned(), *errors);
        let count = calls.get(*name).copied().unwrap_or(0);
        (1..=count).flat_map(move |number| {
            let fault = Fault { call: call.clone(), number, error: errors[0], lasting: false };
            let lasting = Fault { lasting: true, ..fault.clone() };
            let passing = errors.iter().map(|error| Fault { error, ..fault.clone() });
            // A call that is interrupted each time is waited with for ever, and rightly so.
            passing.chain((errors[0] != "EINTR").then_some(lasting)).collect::<Vec<_>>()
        })
    };
    ERRORS.iter().flat_map(of).collect()
}

/// What is wrong when this fails.
fn play(life: Life, fault: &Fault) -> Vec<String> {
    let strace = format!("-qq -o /dev/null -e trace={} -e inject={fault}", fault.call);
    let sandbox = Sandbox::new();
    let played = catch_unwind(AssertUnwindSafe(|| {
        let end = life.play(&sandbox, &strace, !fault.lasting);
        let mut wrong = if fault.lasting { end.lasting_faults(&sandbox) } else { end.faults(life, &sandbox) };
        wrong.retain(|wrong| !is_excused(fault, wrong));
        if !wrong.is_empty() {
            wrong.push(format!("{end:?}"));
        }
        wrong
    }));
    played.unwrap_or_else(|_| vec!["it did not end in time".to_owned()])
}

#[test]
fn whatever_system_call_fails_the_shim_ends_well() {
    let wanted = std::env::var("FAULTS").ok();
    let all: Vec<(Life, Fault)> =
        LIVES.iter().flat_map(|&life| faults(life).into_iter().map(move |fault| (life, fault))).collect();
    assert!(all.len() > 1200, "strace shows but {} calls that may fail", all.len());
    let mut chosen: Vec<_> = match wanted.as_deref() {
        None => all.into_iter().step_by(STRIDE).collect(),
        Some("all") => all,
        Some(call) => all.into_iter().filter(|(_, fault)| fault.to_string().contains(call)).collect(),
    };
    let count = chosen.len();
    // The first ones first.
    chosen.reverse();
    let chosen = Mutex::new(chosen);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some((life, fault)) = chosen.lock().expect("no panic holds it").pop() else { return };
                    let wrong = play(life, &fault);
                    if !wrong.is_empty() {
                        let failure = format!("{life:?} {fault}: {}", wrong.join("; "));
                        failures.lock().expect("no panic holds it").push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panic holds it");
    assert!(failures.is_empty(), "{} of {count} faults:\n{}", failures.len(), failures.join("\n"));
}
