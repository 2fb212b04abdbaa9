//! The command line of a monitor.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::pipe2;

use crate::process::Process;
use crate::running::{Pipes, Running};
use crate::{Sandbox, Step, Tool, Wire};

/// What the sync pipe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPipe {
    /// A pipe, as from Podman.
    Pipe,
    /// A stream socket.
    Stream,
    /// A packet socket.
    Packets,
    /// There is none.
    Absent,
}

/// A monitor that was not started yet. It begins as Podman's `create` would start it; each method changes one thing.
#[derive(Debug)]
pub struct Monitor<'a> {
    sandbox: &'a Sandbox,
    binary: PathBuf,
    /// Name and value, or a name alone.
    options: Vec<(String, Option<OsString>)>,
    env: Vec<(OsString, OsString)>,
    sync_pipe: SyncPipe,
    start_byte: bool,
    prelude: Option<String>,
    extra_fds: Vec<(OwnedFd, i32)>,
}

/// Where the monitor finds its pipes.
const SYNC_FD: i32 = 3;
const START_FD: i32 = 4;

impl<'a> Monitor<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox, tool: &Tool) -> Self {
        let id = sandbox.id();
        Self {
            sandbox,
            binary: tool.path.clone(),
            options: Vec::new(),
            env: sandbox.environment(),
            sync_pipe: SyncPipe::Pipe,
            start_byte: true,
            prelude: None,
            extra_fds: Vec::new(),
        }
        .flag("--api-version")
        .option("-c", id)
        .option("-u", id)
        .option("-r", Tool::fake_runtime())
        .option("-b", sandbox.bundle())
        .option("-p", sandbox.pid_file())
        .option("-n", "container")
        .option("--exit-dir", sandbox.exits())
        .option("--persist-dir", sandbox.persist())
        .flag("--full-attach")
        .option("-l", OsString::from_iter([OsStr::new("k8s-file:"), sandbox.log().as_os_str()]))
        .option("--log-level", "warning")
        .option("--conmon-pidfile", sandbox.monitor_pid_file())
    }

    /// Sets an option's only value.
    #[must_use]
    pub fn option(self, name: &str, value: impl Into<OsString>) -> Self {
        self.without(name).also(name, value)
    }

    /// Gives an option once more.
    #[must_use]
    pub fn also(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.options.push((name.to_owned(), Some(value.into())));
        self
    }

    /// Gives an option without a value, or any other word.
    #[must_use]
    pub fn flag(mut self, name: &str) -> Self {
        self.options.push((name.to_owned(), None));
        self
    }

    /// Takes an option away.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.options.retain(|(option, _)| option != name);
        self
    }

    /// Takes all options away.
    #[must_use]
    pub fn bare(mut self) -> Self {
        self.options.clear();
        self
    }

    /// `--sync` and no `--conmon-pidfile`: the process that is started stays.
    #[must_use]
    pub fn sync(self) -> Self {
        self.without("--conmon-pidfile").flag("--sync")
    }

    /// The legacy dialect on the sync pipe, as for CRI-O.
    #[must_use]
    pub fn legacy(self) -> Self {
        self.without("--api-version")
    }

    /// An attach socket in `--socket-dir-path`, as for CRI-O.
    #[must_use]
    pub fn socket_dir(self) -> Self {
        let dir = self.sandbox.sockets();
        self.without("--full-attach").option("--socket-dir-path", dir)
    }

    /// An exit command that does these steps.
    #[must_use]
    pub fn exit_command(self, steps: &[Step]) -> Self {
        let json = steps.to_vec().to_json().to_string();
        let words: [OsString; 4] = ["steps".into(), self.sandbox.bundle().into(), "".into(), json.into()];
        let command = self.option("--exit-command", Tool::fake_runtime()).without("--exit-command-arg");
        words.into_iter().fold(command, |monitor, word| monitor.also("--exit-command-arg", word))
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Another kind of sync pipe.
    #[must_use]
    pub fn sync_pipe(mut self, kind: SyncPipe) -> Self {
        self.sync_pipe = kind;
        self
    }

    /// The start byte is not sent before [`Running::go`].
    #[must_use]
    pub fn hold(mut self) -> Self {
        self.start_byte = false;
        self
    }

    /// What a shell does before it becomes the monitor: `umask 077; exec`, or `exec env --ignore-signal=USR1`.
    #[must_use]
    pub fn through(mut self, prelude: &str) -> Self {
        self.prelude = Some(prelude.to_owned());
        self
    }

    /// One more descriptor that the monitor inherits.
    #[must_use]
    pub fn fd(mut self, fd: OwnedFd, number: i32) -> Self {
        self.extra_fds.push((fd, number));
        self
    }

    /// The words of the command line.
    pub fn argv(&self) -> Vec<OsString> {
        let mut argv = vec![OsString::from(&self.binary)];
        for (name, value) in &self.options {
            argv.push(name.into());
            argv.extend(value.clone());
        }
        let Some(prelude) = &self.prelude else { return argv };
        let script = format!("{prelude} \"$@\"");
        [OsString::from("/bin/sh"), "-c".into(), script.into(), "sh".into()].into_iter().chain(argv).collect()
    }

    /// Starts it.
    pub fn start(mut self) -> Running<'a> {
        let argv = self.argv();
        let (out, its_out) = pipe();
        let (err, its_err) = pipe();
        let (its_start, start) = pipe();
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        let sync = match self.sync_pipe {
            SyncPipe::Pipe => Some(pipe()),
            SyncPipe::Stream => Some(sockets(SockType::Stream)),
            SyncPipe::Packets => Some(sockets(SockType::SeqPacket)),
            SyncPipe::Absent => None,
        };
        let (sync, its_sync) = sync.unzip();
        let mut fds: Vec<(BorrowedFd<'_>, i32)> = vec![(null.as_fd(), 0), (its_out.as_fd(), 1), (its_err.as_fd(), 2)];
        if let Some(its_sync) = &its_sync {
            self.env.push(("_OCI_SYNCPIPE".into(), SYNC_FD.to_string().into()));
            fds.push((its_sync.as_fd(), SYNC_FD));
        }
        self.env.push(("_OCI_STARTPIPE".into(), START_FD.to_string().into()));
        fds.push((its_start.as_fd(), START_FD));
        fds.extend(self.extra_fds.iter().map(|(fd, number)| (fd.as_fd(), *number)));
        let started = Process::spawn(&argv, &self.env, &fds);
        let mut running = Running::new(self.sandbox, started, Pipes { out, err, sync, start });
        if self.start_byte {
            running.go();
        }
        running
    }
}

/// Read end, write end.
fn pipe() -> (OwnedFd, OwnedFd) {
    pipe2(OFlag::O_CLOEXEC).expect("a pipe")
}

fn sockets(kind: SockType) -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).expect("a pair of sockets")
}
