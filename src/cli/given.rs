//! What the command line said.

use std::ffi::OsString;
use std::time::Duration;

use dunnage_runtime::reaper::Timing;

/// What the command line said, nothing of it checked but the numbers.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Given {
    pub(super) version: bool,
    pub(super) cid: Option<OsString>,
    pub(super) cuuid: Option<OsString>,
    pub(super) name: Option<OsString>,
    pub(super) api_version: bool,
    pub(super) bundle: Option<OsString>,
    pub(super) container_pid_file: Option<OsString>,
    pub(super) conmon_pid_file: Option<OsString>,
    pub(super) runtime: Option<OsString>,
    pub(super) runtime_args: Vec<OsString>,
    pub(super) runtime_opts: Vec<OsString>,
    pub(super) systemd_cgroup: bool,
    pub(super) no_pivot: bool,
    pub(super) no_new_keyring: bool,
    pub(super) replace_listen_pid: bool,
    pub(super) timeout: i32,
    pub(super) exec: bool,
    pub(super) exec_attach: bool,
    pub(super) exec_process_spec: Option<OsString>,
    pub(super) restore: Option<OsString>,
    pub(super) terminal: bool,
    pub(super) stdin: bool,
    pub(super) leave_stdin_open: bool,
    pub(super) socket_dir: Option<OsString>,
    pub(super) full_attach: bool,
    pub(super) attach_stall_timeout: Option<Duration>,
    pub(super) log: GivenLog,
    pub(super) exit_dir: Option<OsString>,
    pub(super) persist_dir: Option<OsString>,
    pub(super) sdnotify_socket: Option<OsString>,
    pub(super) exit_command: Option<OsString>,
    pub(super) exit_command_args: Vec<OsString>,
    pub(super) exit_delay: i32,
    pub(super) sync: bool,
    pub(super) control_socket: Option<OsString>,
    pub(super) service: Option<OsString>,
    pub(super) syslog: bool,
    pub(super) log_level: Option<OsString>,
    pub(super) timing: Timing,
    /// The first option that is not supported.
    pub(super) refused: Option<&'static str>,
    /// The first option that only a container has.
    pub(super) of_containers: Option<&'static str>,
}

/// What it said about the log.
#[derive(Debug, Default)]
pub(super) struct GivenLog {
    pub(super) paths: Vec<OsString>,
    pub(super) size_max: i64,
    pub(super) global_size_max: i64,
    pub(super) rotate: bool,
    pub(super) max_files: Option<i32>,
    pub(super) allowlist_dirs: Vec<OsString>,
    pub(super) tag: Option<OsString>,
    pub(super) labels: Vec<OsString>,
    pub(super) no_partial_message: bool,
    pub(super) no_sync: bool,
}
