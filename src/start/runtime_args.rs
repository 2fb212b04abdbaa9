//! The runtime's command line.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::cli::{Config, Job, Runtime};

/// What the runtime is called with.
///
/// ```text
/// [--systemd-cgroup] ARGS... create --bundle B --pid-file P ... OPTS... [--console-socket S] ID
/// [--systemd-cgroup] ARGS... restore --bundle B --pid-file P ... --detach --image-path I --work-path B OPTS... ID
/// ARGS... exec --pid-file P --process SPEC --detach OPTS... [--console-socket S] ID
/// ```
pub(crate) fn runtime_args(config: &Config, console_socket: Option<&Path>) -> Vec<OsString> {
    let runtime = &config.runtime;
    let pid_file = config.container_pid_file.as_path();
    let mut args = Vec::new();
    match &config.job {
        Job::Create { bundle } => push_container(&mut args, runtime, "create", bundle, pid_file),
        Job::Restore { bundle, image } => {
            push_container(&mut args, runtime, "restore", bundle, pid_file);
            args.push("--detach".into());
            push_option(&mut args, "--image-path", image);
            push_option(&mut args, "--work-path", bundle);
        }
        Job::Exec { process_spec, .. } => {
            push_exec(&mut args, runtime, process_spec, pid_file);
        }
    }
    args.extend_from_slice(&runtime.opts);
    push_end(&mut args, console_socket, &config.id);
    args
}

/// What the runtime is called with for an exec in the container that it made. The options for its making are not for
/// this.
pub(crate) fn exec_args(
    config: &Config,
    process_spec: &Path,
    pid_file: &Path,
    console_socket: Option<&Path>,
) -> Vec<OsString> {
    let mut args = Vec::new();
    push_exec(&mut args, &config.runtime, process_spec, pid_file);
    push_end(&mut args, console_socket, &config.id);
    args
}

fn push_exec(args: &mut Vec<OsString>, runtime: &Runtime, process_spec: &Path, pid_file: &Path) {
    args.extend_from_slice(&runtime.args);
    args.push("exec".into());
    push_option(args, "--pid-file", pid_file);
    push_option(args, "--process", process_spec);
    args.push("--detach".into());
}

fn push_end(args: &mut Vec<OsString>, console_socket: Option<&Path>, id: &OsStr) {
    if let Some(socket) = console_socket {
        push_option(args, "--console-socket", socket);
    }
    args.push(id.to_owned());
}

/// What the subcommands that make a container have in common.
fn push_container(args: &mut Vec<OsString>, runtime: &Runtime, subcommand: &str, bundle: &Path, pid_file: &Path) {
    if runtime.systemd_cgroup {
        args.push("--systemd-cgroup".into());
    }
    args.extend_from_slice(&runtime.args);
    args.push(subcommand.into());
    push_option(args, "--bundle", bundle);
    push_option(args, "--pid-file", pid_file);
    if runtime.no_pivot {
        args.push("--no-pivot".into());
    }
    if runtime.no_new_keyring {
        args.push("--no-new-keyring".into());
    }
}

fn push_option(args: &mut Vec<OsString>, option: &str, value: &Path) {
    args.extend([option.into(), value.into()]);
}
