//! The runtime's command line.

use std::ffi::OsString;
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
            args.extend_from_slice(&runtime.args);
            args.push("exec".into());
            push_option(&mut args, "--pid-file", pid_file);
            push_option(&mut args, "--process", process_spec);
            args.push("--detach".into());
        }
    }
    args.extend_from_slice(&runtime.opts);
    if let Some(socket) = console_socket {
        push_option(&mut args, "--console-socket", socket);
    }
    args.push(config.id.clone());
    args
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
