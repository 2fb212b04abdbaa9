//! What the command line asks for, validated and typed.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::{self, Path, PathBuf};
use std::time::Duration;

use dunnage_runtime::reaper::Timing;
use log::LevelFilter;
use nix::sys::socket::UnixAddr;

use crate::generations::Service;
use crate::messages::Verbosity;

/// A process to start through the runtime, and to watch.
#[derive(Debug)]
pub(crate) struct Config {
    /// What is to be started.
    pub(crate) job: Job,
    /// `--cid`: the container's id, and the name of its exit file.
    pub(crate) id: OsString,
    /// `--name`.
    pub(crate) name: Option<OsString>,
    /// `--cuuid`: the name of the link in the socket directory.
    pub(crate) uuid: OsString,
    /// Which keys messages on the sync pipe have.
    pub(crate) api: Api,
    /// The OCI runtime and its command line.
    pub(crate) runtime: Runtime,
    /// `--container-pidfile`: where the runtime writes the container's pid.
    pub(crate) container_pid_file: PathBuf,
    /// `--timeout`: when the process is killed, counted from when its PID is known.
    pub(crate) timeout: Option<Duration>,
    /// `--replace-listen-pid`: the runtime's LISTEN_PID is its own, whatever the shim's says.
    pub(crate) replace_listen_pid: bool,
    /// What the container's standard streams are.
    pub(crate) stdio: Stdio,
    /// `--leave-stdin-open`: an attach client that ends its input does not end the container's.
    pub(crate) leave_stdin_open: bool,
    /// The attach socket.
    pub(crate) attach: Attach,
    /// Where the container's output is logged.
    pub(crate) log: Logging,
    /// What is left behind when the container has ended.
    pub(crate) exit: Exit,
    /// `--sdnotify-socket`: where a container's sd_notify messages go; an exec shares those of its container.
    pub(crate) sdnotify_socket: Option<UnixAddr>,
    /// How the shim becomes a process of its own.
    pub(crate) detach: Detach,
    /// `--control-socket`, absolute.
    pub(crate) control_socket: Option<PathBuf>,
    /// `--syslog`: the shim's own messages go to syslog as well.
    pub(crate) syslog: bool,
    /// `--log-level`.
    pub(crate) level: LevelFilter,
    /// The bounds of `reaper.md`.
    pub(crate) timing: Timing,
}

impl Config {
    /// The directory of the attach socket and of the fifos, absolute. Only an exec that nobody can attach to has none.
    pub(crate) fn bundle(&self) -> Option<&Path> {
        match &self.job {
            Job::Create { bundle } | Job::Restore { bundle, .. } => Some(bundle),
            Job::Exec { bundle, .. } => bundle.as_deref(),
        }
    }

    /// Whether it is started only once clients had the time to attach.
    pub(crate) fn waits_for_clients(&self) -> bool {
        matches!(self.job, Job::Exec { attach: true, .. })
    }

    /// What the shim says of itself, and where.
    pub(crate) fn messages(&self) -> Verbosity<'_> {
        // What goes to stderr beside an exec's output ends up in front of its user.
        let stderr = if self.is_exec() { LevelFilter::Error } else { self.level };
        Verbosity { subject: &self.id, level: self.level, stderr, syslog: self.syslog }
    }

    /// Whether it is a process in a container that has its own shim.
    pub(crate) fn is_exec(&self) -> bool {
        matches!(self.job, Job::Exec { .. })
    }
}

/// A service to start generations of.
#[derive(Debug)]
pub(crate) struct ServiceConfig {
    /// `--cid`: the service's name.
    pub(crate) name: String,
    /// `--service`, read.
    pub(crate) service: Service,
    /// `--persist-dir`, absolute: where the record of all generations is.
    pub(crate) persist_dir: PathBuf,
    /// `--control-socket`, absolute.
    pub(crate) control_socket: PathBuf,
    /// Where generations' output is logged.
    pub(crate) log: Logging,
    /// `--sdnotify-socket`: where the current generation's sd_notify messages go.
    pub(crate) sdnotify_socket: Option<UnixAddr>,
    /// How the shim becomes a process of its own.
    pub(crate) detach: Detach,
    /// `--syslog`: the shim's own messages go to syslog as well.
    pub(crate) syslog: bool,
    /// `--log-level`.
    pub(crate) level: LevelFilter,
    /// The bounds of `reaper.md`.
    pub(crate) timing: Timing,
}

impl ServiceConfig {
    /// What the shim says of itself, and where.
    pub(crate) fn messages(&self) -> Verbosity<'_> {
        Verbosity { subject: self.name.as_ref(), level: self.level, stderr: self.level, syslog: self.syslog }
    }
}

/// What the runtime does.
#[derive(Debug)]
pub(crate) enum Job {
    /// Creates a container.
    Create {
        /// `--bundle`, absolute.
        bundle: PathBuf,
    },
    /// `--restore`: creates it from a checkpoint, and it runs.
    Restore {
        /// `--bundle`, absolute.
        bundle: PathBuf,
        /// Where the checkpoint is.
        image: PathBuf,
    },
    /// `--exec`: starts a process in a container.
    Exec {
        /// `--exec-process-spec`.
        process_spec: PathBuf,
        /// `--bundle`, if it was given: clients may attach.
        bundle: Option<PathBuf>,
        /// `--exec-attach`: it is started only once the caller, told that clients may attach, says so.
        attach: bool,
    },
}

/// The dialect of the sync pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    /// `{"pid": N}`, `{"exit_code": N}`: what CRI-O reads.
    Legacy,
    /// `{"data": N}`: `--api-version`, what Podman reads.
    V1,
}

/// The OCI runtime.
#[derive(Debug)]
pub(crate) struct Runtime {
    /// `--runtime`, an executable.
    pub(crate) path: PathBuf,
    /// `--systemd-cgroup`.
    pub(crate) systemd_cgroup: bool,
    /// `--runtime-arg`: before the subcommand.
    pub(crate) args: Vec<OsString>,
    /// `--runtime-opt` and `--restore-arg`: after the subcommand's own options.
    pub(crate) opts: Vec<OsString>,
    /// `--no-pivot`.
    pub(crate) no_pivot: bool,
    /// `--no-new-keyring`.
    pub(crate) no_new_keyring: bool,
}

/// What a container has for standard streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stdio {
    /// `--terminal`.
    Terminal,
    /// Pipes, and stdin from /dev/null.
    Pipes,
    /// Pipes, stdin among them: `--stdin`.
    PipesWithStdin,
    /// The caller's own: `--log-path passthrough`.
    Passthrough,
}

/// Where the attach socket is.
#[derive(Debug)]
pub(crate) struct Attach {
    /// `--socket-dir-path`: the directory of the link to the bundle; none with `--full-attach`.
    pub(crate) link_dir: Option<PathBuf>,
    /// `--attach-stall-timeout`: how long a client may keep everything waiting.
    pub(crate) stall_timeout: Option<Duration>,
}

/// Where output is logged.
#[derive(Debug)]
pub(crate) struct Logging {
    /// The k8s-file: the last one named, if any.
    pub(crate) file: Option<K8sFileOptions>,
    /// The journal, if it was named.
    pub(crate) journald: Option<JournaldOptions>,
    /// `passthrough`: the output is the caller's, and no client is served.
    pub(crate) passthrough: bool,
    /// Whether log and exit file are synced before the end: not with `--no-sync-log`.
    pub(crate) sync: bool,
}

impl Logging {
    /// What was named, as `--log-path` names it; the file by its absolute path.
    pub(crate) fn names(&self) -> Vec<String> {
        let file = self.file.as_ref().map(|file| {
            let path = path::absolute(&file.path).unwrap_or_else(|_| file.path.clone());
            format!("k8s-file:{}", path.display())
        });
        let journald = self.journald.as_ref().map(|_| "journald".to_owned());
        let passthrough = self.passthrough.then(|| "passthrough".to_owned());
        [file, journald, passthrough].into_iter().flatten().collect()
    }
}

/// A k8s-file and its limits.
#[derive(Debug, Default)]
pub(crate) struct K8sFileOptions {
    /// As it was given.
    pub(crate) path: PathBuf,
    /// `--log-size-max` in bytes, where it is above 0.
    pub(crate) size_max: Option<u64>,
    /// `--log-global-size-max` in bytes, where it is above 0.
    pub(crate) total_max: Option<u64>,
    /// `--log-max-files`, with `--log-rotate`: how many full files are kept.
    pub(crate) backups: Option<NonZeroU32>,
    /// `--log-allowlist-dir`, absolute: where the file must be, if any are given.
    pub(crate) allowlist: Vec<PathBuf>,
}

/// What entries of the journal say of the container.
#[derive(Debug)]
pub(crate) struct JournaldOptions {
    /// `--cid`, longer than 12 bytes.
    pub(crate) id: OsString,
    /// `--name`.
    pub(crate) name: Option<OsString>,
    /// `--log-tag`.
    pub(crate) tag: Option<OsString>,
    /// `--log-label`: a field's name, `=` and its value.
    pub(crate) labels: Vec<OsString>,
    /// Whether pieces of lines are marked: not with `--no-container-partial-message`.
    pub(crate) mark_partial: bool,
}

impl JournaldOptions {
    /// How many bytes of the id its short form has.
    pub(crate) const SHORT_ID: usize = 12;
}

/// What the end of the container leaves behind.
#[derive(Debug)]
pub(crate) struct Exit {
    /// `--exit-dir`.
    pub(crate) dir: Option<PathBuf>,
    /// `--persist-dir`.
    pub(crate) persist_dir: Option<PathBuf>,
    /// `--exit-command`.
    pub(crate) command: Option<ExitCommand>,
}

/// What runs at the end.
#[derive(Debug)]
pub(crate) struct ExitCommand {
    /// `--exit-command`.
    pub(crate) path: PathBuf,
    /// `--exit-command-arg`.
    pub(crate) args: Vec<OsString>,
    /// `--exit-delay`.
    pub(crate) delay: Duration,
}

/// Whether the started process stays.
#[derive(Debug)]
pub(crate) enum Detach {
    /// `--sync`: it is the long side itself.
    Sync,
    /// It forks the long side and ends.
    Fork {
        /// `--conmon-pidfile`: where it writes the long side's pid.
        pid_file: Option<PathBuf>,
    },
}
