//! The command line of a monitor.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::pipe2;

use crate::process::Process;
use crate::running::{Pipes, Running};
use crate::{Sandbox, Step, Tool, Wire, script};

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
    attach_pipe: bool,
    /// The number of the first of the monitor's pipes.
    first_pipe: i32,
    prelude: Option<String>,
    extra_fds: Vec<(OwnedFd, i32)>,
}

/// `SD_LISTEN_FDS_START`.
const LISTEN_FDS_START: i32 = 3;

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
            attach_pipe: false,
            first_pipe: LISTEN_FDS_START,
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

    /// A process in the container, without a bundle: `--exec`, whose process spec is the bundle's script.
    #[must_use]
    pub fn exec(self) -> Self {
        let spec = self.sandbox.bundle().join(script::FILE);
        self.without("-b").flag("--exec").option("--exec-process-spec", spec)
    }

    /// The same as CRI-O's ExecSync calls it.
    #[must_use]
    pub fn exec_sync(self) -> Self {
        self.exec()
            .legacy()
            .sync()
            .without("-u")
            .without("--full-attach")
            .without("--exit-dir")
            .without("--persist-dir")
    }

    /// The same as Podman calls it: with a bundle of its own, and started only at a second start byte, once the caller
    /// was told on the attach pipe that clients can attach.
    #[must_use]
    pub fn exec_attach(mut self) -> Self {
        let bundle = self.sandbox.bundle();
        self.attach_pipe = true;
        self.exec().option("-b", bundle).flag("--exec-attach")
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

    /// A control socket named by the container's id in the sandbox's directory for them, which need not be there yet.
    #[must_use]
    pub fn control_dir(self) -> Self {
        let dir = self.sandbox.control_dir();
        self.env("DUNNAGE_CONTROL_DIR", dir)
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

    /// One listening socket, where systemd puts it: the pipes are at other numbers.
    #[must_use]
    pub fn listening(mut self, socket: OwnedFd) -> Self {
        self.first_pipe = LISTEN_FDS_START + 1;
        self.fd(socket, LISTEN_FDS_START)
    }

    /// Where it is to be started.
    pub fn sandbox(&self) -> &'a Sandbox {
        self.sandbox
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
        let [sync_fd, start_fd, attach_fd] = [0, 1, 2].map(|pipe| self.first_pipe + pipe);
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
            self.env.push(("_OCI_SYNCPIPE".into(), sync_fd.to_string().into()));
            fds.push((its_sync.as_fd(), sync_fd));
        }
        self.env.push(("_OCI_STARTPIPE".into(), start_fd.to_string().into()));
        fds.push((its_start.as_fd(), start_fd));
        let (attach, its_attach) = self.attach_pipe.then(pipe).unzip();
        if let Some(its_attach) = &its_attach {
            self.env.push(("_OCI_ATTACHPIPE".into(), attach_fd.to_string().into()));
            fds.push((its_attach.as_fd(), attach_fd));
        }
        fds.extend(self.extra_fds.iter().map(|(fd, number)| (fd.as_fd(), *number)));
        let started = Process::spawn(&argv, &self.env, &fds);
        let mut running = Running::new(self.sandbox, started, Pipes { out, err, sync, attach, start });
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
