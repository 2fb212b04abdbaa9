//! The runtime's command line.

use std::ffi::OsString;
use std::path::Path;

use crate::cli::Config;

/// `[--systemd-cgroup] ARGS... create --bundle B --pid-file P ... OPTS... [--console-socket S] ID`
pub(crate) fn create_args(config: &Config, console_socket: Option<&Path>) -> Vec<OsString> {
    let runtime = &config.runtime;
    let mut args: Vec<OsString> = Vec::new();
    if runtime.systemd_cgroup {
        args.push("--systemd-cgroup".into());
    }
    args.extend_from_slice(&runtime.args);
    args.extend(["create".into(), "--bundle".into(), config.bundle.clone().into()]);
    args.extend(["--pid-file".into(), config.container_pid_file.clone().into()]);
    if runtime.no_pivot {
        args.push("--no-pivot".into());
    }
    if runtime.no_new_keyring {
        args.push("--no-new-keyring".into());
    }
    args.extend_from_slice(&runtime.opts);
    if let Some(socket) = console_socket {
        args.extend(["--console-socket".into(), socket.into()]);
    }
    args.push(config.id.clone());
    args
}
