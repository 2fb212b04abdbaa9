//! One container's life: created, its execs one after the other, and its end.

use std::ops::Range;

use dunnage_testing::{Bundle, Running, Runtime, Sandbox, Status, tree};

use crate::witness::private_memory;

/// How an exec is called, and how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// As CRI-O's ExecSync.
    Sync,
    /// As `podman exec -d`.
    Detached,
    /// As `podman exec -i`.
    Attached,
    /// As `podman exec -it`.
    Terminal,
    /// Of a command that is not there.
    Missing,
    /// Of one that does not end in its time.
    TimedOut,
}

impl Kind {
    fn of(exec: usize) -> Self {
        match exec % 50 {
            0 => Self::TimedOut,
            1 | 17 | 33 => Self::Missing,
            rest => [Self::Sync, Self::Detached, Self::Attached, Self::Terminal][rest % 4],
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sync => "as CRI-O's ExecSync",
            Self::Detached => "as `podman exec -d`",
            Self::Attached => "as `podman exec -i`",
            Self::Terminal => "as `podman exec -it`",
            Self::Missing => "of a command that is not there",
            Self::TimedOut => "that time out after 1 s",
        }
    }
}

/// A container's life.
pub(crate) struct Life {
    number: usize,
    execs: Range<usize>,
    /// Of its execs, those that ended as they had to.
    pub(crate) ended: Vec<Kind>,
    /// The private memory of its monitor at its end, in KiB, once it has ended as it had to.
    pub(crate) memory: Option<usize>,
    /// What it is at, for messages.
    pub(crate) doing: String,
}

impl Life {
    pub(crate) fn new(number: usize, execs: Range<usize>) -> Self {
        Self { number, execs, ended: Vec::new(), memory: None, doing: String::from("the start") }
    }

    /// Lives. Panics at the first thing that is not as it has to be.
    pub(crate) fn live(&mut self) {
        let code = self.number % 256;
        let script = format!("echo {}; read line; echo $line >&2; exit {code}", self.number);
        let bundle = Bundle::new(Runtime::Runc, &script);
        let mut monitor = bundle.monitor().flag("-i").start();
        monitor.pid();
        assert_eq!(monitor.status(), Status::Exited(0));
        bundle.start();
        monitor.log_has("stdout F");
        for exec in self.execs.clone() {
            let kind = Kind::of(exec);
            self.doing = format!("exec {exec}, {}", kind.name());
            run(kind, exec, &bundle);
            self.ended.push(kind);
        }
        "the end".clone_into(&mut self.doing);
        let memory = private_memory(monitor.long());
        // One in five is killed, the others end by themselves.
        let (code, last) = if self.number.is_multiple_of(5) {
            bundle.kill("KILL");
            (String::from("137"), "")
        } else {
            let client = monitor.attach();
            client.send(b"bye\n");
            client.receive_all();
            (code.to_string(), "bye\n")
        };
        assert_eq!(monitor.exit_code(), code);
        monitor.end();
        let log = monitor.log();
        assert!(log.is(format!("{}\n", self.number).as_bytes(), last.as_bytes()), "{log:?}");
        bundle.delete();
        let files = ["config.json", "ctl", "winsz"];
        nothing_else_is_left(bundle.sandbox(), &files);
        self.memory = Some(memory);
    }
}

/// One exec, to its end.
fn run(kind: Kind, exec: usize, bundle: &Bundle) {
    let sandbox = Sandbox::new();
    let code = exec % 200;
    let script = format!("echo {exec}; exit {code}");
    let shell = ["sh", "-c", &script];
    let echo = format!("cat; exit {code}");
    match kind {
        Kind::Sync => {
            let mut monitor = bundle.exec(&sandbox, &shell).exec_sync().start();
            assert_eq!(monitor.stdout() + &monitor.stderr(), "");
            ended(&mut monitor, "exit_code", 1, code);
            assert_eq!(monitor.status(), Status::Exited(i32::try_from(code).expect("a small number")));
            assert!(monitor.log().is(format!("{exec}\n").as_bytes(), b""), "{:?}", monitor.log());
            nothing_else_is_left(&sandbox, &[]);
        }
        Kind::Detached => {
            let mut monitor = bundle.exec(&sandbox, &shell).exec().start();
            ended(&mut monitor, "data", 2, code);
            assert_eq!(monitor.exit_code(), code.to_string());
            over(&mut monitor);
            assert!(monitor.log().is(format!("{exec}\n").as_bytes(), b""), "{:?}", monitor.log());
            nothing_else_is_left(&sandbox, &[]);
        }
        Kind::Attached | Kind::Terminal => {
            let terminal = kind == Kind::Terminal;
            let command = ["sh", "-c", if terminal { &script } else { &echo }];
            let monitor =
                if terminal { bundle.exec_on_terminal(&sandbox, &command) } else { bundle.exec(&sandbox, &command) };
            let mut monitor = monitor.exec_attach().flag("-i").start();
            assert_eq!(monitor.attach_message(), Some(serde_json::json!({"data": 0})));
            let client = monitor.attach();
            monitor.go();
            let line = if terminal { format!("{exec}\r\n") } else { format!("{exec}\n") };
            if !terminal {
                client.send(line.as_bytes());
                client.half_close();
            }
            assert_eq!(String::from_utf8_lossy(&client.receive_all().stdout), line);
            ended(&mut monitor, "data", 2, code);
            assert_eq!(monitor.exit_code(), code.to_string());
            over(&mut monitor);
            nothing_else_is_left(&sandbox, &["ctl", "winsz"]);
        }
        Kind::Missing => {
            let mut monitor = bundle.exec(&sandbox, &["/no/such/program"]).exec().start();
            let messages = monitor.messages();
            assert!(messages.len() == 1 && messages[0]["data"] == -1, "{messages:?}");
            assert!(
                messages[0]["message"].as_str().is_some_and(|text| text.contains("/no/such/program")),
                "{messages:?}"
            );
            over(&mut monitor);
            assert!(!sandbox.exit_file().exists());
            nothing_else_is_left(&sandbox, &[]);
        }
        Kind::TimedOut => {
            let command = ["sh", "-c", "setsid sleep 1000 & sleep 1000"];
            let mut monitor = bundle.exec(&sandbox, &command).exec().option("--timeout", "1").start();
            monitor.pid();
            let messages = monitor.messages();
            assert_eq!(messages, [serde_json::json!({"data": -1, "message": "command timed out"})]);
            assert_eq!(monitor.exit_code(), "-1");
            over(&mut monitor);
            nothing_else_is_left(&sandbox, &[]);
        }
    }
}

/// The last of so many messages is the code.
fn ended(monitor: &mut Running<'_>, key: &str, count: usize, code: usize) {
    let messages = monitor.messages();
    assert_eq!(messages.len(), count, "{messages:?}");
    let last = messages.last().expect("a message");
    assert!(last[key] == code && last.get("message").is_none(), "{code} is not {messages:?}");
}

fn over(monitor: &mut Running<'_>) {
    assert_eq!(monitor.status(), Status::Exited(0));
    monitor.end();
}

/// Of its files there are those that its caller removes, and these in the bundle. No socket, no link, no other fifo.
fn nothing_else_is_left(sandbox: &Sandbox, in_bundle: &[&str]) {
    let expected = |path: &str| {
        let inside = path.strip_prefix("bundle/").is_some_and(|name| {
            in_bundle.contains(&name) || name == "fake.json" || name == "rootfs" || name.starts_with("rootfs/")
        });
        inside
            || ["bundle", "exits", "persist", "sockets", "tmp", "state"].contains(&path)
            || ["ctr.log", "pidfile", "conmon.pid", "persist/exit"].contains(&path)
            || path.strip_prefix("exits/") == Some(sandbox.id())
    };
    let mut found = tree(sandbox.root()).expect("the sandbox");
    found.retain(|path, _| !expected(path));
    assert!(found.is_empty(), "files are left: {found:?}");
    let processes: Vec<_> = sandbox.processes().iter().map(dunnage_testing::Process::pid).collect();
    assert!(processes.is_empty(), "processes are left: {processes:?}");
}
