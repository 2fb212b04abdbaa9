//! Makes a [`Config`] of what the command line said.
//!
//! The order of the checks and the texts that callers may know are conmon's.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{self, Path, PathBuf};
use std::time::Duration;

use log::LevelFilter;
use nix::errno::Errno;
use nix::sys::socket::UnixAddr;
use nix::unistd::{AccessFlags, access};

use super::given::{Given, GivenLog};
use super::{
    Api, Attach, CliError, Config, Detach, Exit, ExitCommand, Job, JournaldOptions, K8sFileOptions, Logging, Runtime,
    Stdio,
};
use crate::whole_file::NAME_MAX;

/// Where CRI-O's attach clients look, unless told otherwise.
const DEFAULT_SOCKET_DIR: &str = "/var/run/crio";

/// Where each container has a control socket named by its id, unless it is told where with `--control-socket`: for
/// callers that pass on an environment but no options.
const CONTROL_DIR: &str = "DUNNAGE_CONTROL_DIR";

/// Checks `given`, and the files it names.
pub(super) fn validate(mut given: Given) -> Result<Config, CliError> {
    let id = name("--cid", required(given.cid.take(), "Container ID not provided. Use --cid")?)?;
    let level = level(given.log_level.as_deref())?;
    check_exclusions(&given)?;
    let uuid = match given.cuuid.take() {
        // Legacy exec has none.
        None if given.exec && !given.api_version => OsString::new(),
        cuuid => name("--cuuid", required(cuuid, "Container UUID not provided. Use --cuuid")?)?,
    };
    let runtime_path = executable(required(given.runtime.take(), "Runtime path not provided. Use --runtime")?)?;
    if given.exec && given.exec_process_spec.is_none() {
        return invalid("Exec process spec path not provided. Use --exec-process-spec");
    }
    let working_dir =
        env::current_dir().or_else(|error| invalid(format!("Failed to get working directory: {error}")))?;
    let bundle = given.bundle.take().map(|bundle| directory("--bundle", bundle)).transpose()?;
    let Ok(exit_delay) = u64::try_from(given.exit_delay) else {
        return invalid("Delay before invoking exit command must be greater than or equal to 0");
    };
    let container_pid_file = given
        .container_pid_file
        .take()
        .map_or_else(|| Ok(working_dir.join(pid_file_name(&id))), |file| not_empty("--container-pidfile", file))?;
    let log = logging(mem::take(&mut given.log), given.name.clone(), &id)?;
    given.timing.validate().or_else(|error| invalid(format!("{error}. Use --stop-budget or --shutdown-timeout")))?;
    if let Some(option) = given.refused {
        return not_supported(&format!("--{option}"));
    }

    // An exec gets its container's environment; the socket is its container's, too.
    let control_dir = env::var_os(CONTROL_DIR).filter(|_| !given.exec);
    let control_socket = chosen_socket(given.control_socket.take(), control_dir, &id)?;
    let attach = attach(&mut given, bundle.as_deref())?;
    Ok(Config {
        stdio: stdio(&given, &log),
        exit: exit(&mut given, Duration::from_secs(exit_delay))?,
        job: job(&mut given, bundle, working_dir),
        id,
        name: given.name,
        uuid,
        api: if given.api_version { Api::V1 } else { Api::Legacy },
        runtime: Runtime {
            path: runtime_path,
            systemd_cgroup: given.systemd_cgroup,
            args: given.runtime_args,
            opts: given.runtime_opts,
            no_pivot: given.no_pivot,
            no_new_keyring: given.no_new_keyring,
        },
        container_pid_file,
        replace_listen_pid: given.replace_listen_pid,
        timeout: u64::try_from(given.timeout).ok().filter(|&seconds| seconds > 0).map(Duration::from_secs),
        leave_stdin_open: given.leave_stdin_open,
        attach,
        log,
        sdnotify_socket: given.sdnotify_socket.filter(|_| !given.exec).map(notify_address).transpose()?,
        detach: detach(given.sync, given.conmon_pid_file)?,
        control_socket,
        syslog: given.syslog,
        level,
        timing: given.timing,
    })
}

fn job(given: &mut Given, bundle: Option<PathBuf>, working_dir: PathBuf) -> Job {
    match (given.exec_process_spec.take().filter(|_| given.exec), given.restore.take()) {
        (Some(process_spec), _) => Job::Exec { process_spec: process_spec.into(), bundle, attach: given.exec_attach },
        (None, Some(image)) => Job::Restore { bundle: bundle.unwrap_or(working_dir), image: image.into() },
        (None, None) => Job::Create { bundle: bundle.unwrap_or(working_dir) },
    }
}

fn stdio(given: &Given, log: &Logging) -> Stdio {
    match (given.terminal, given.stdin) {
        (true, _) => Stdio::Terminal,
        (false, _) if log.passthrough => Stdio::Passthrough,
        (false, true) => Stdio::PipesWithStdin,
        (false, false) => Stdio::Pipes,
    }
}

fn attach(given: &mut Given, bundle: Option<&Path>) -> Result<Attach, CliError> {
    let link_dir = if given.full_attach || (given.exec && bundle.is_none()) {
        None
    } else {
        let dir = given.socket_dir.take().unwrap_or_else(|| DEFAULT_SOCKET_DIR.into());
        Some(directory("--socket-dir-path", dir)?)
    };
    Ok(Attach { link_dir, stall_timeout: given.attach_stall_timeout })
}

fn exit(given: &mut Given, delay: Duration) -> Result<Exit, CliError> {
    Ok(Exit {
        dir: given.exit_dir.take().map(|dir| directory("--exit-dir", dir)).transpose()?,
        persist_dir: given.persist_dir.take().map(|dir| directory("--persist-dir", dir)).transpose()?,
        command: given.exit_command.take().map(|path| ExitCommand {
            path: path.into(),
            args: mem::take(&mut given.exit_command_args),
            delay,
        }),
    })
}

/// How the shim becomes a process of its own.
pub(super) fn detach(sync: bool, pid_file: Option<OsString>) -> Result<Detach, CliError> {
    if sync {
        return Ok(Detach::Sync);
    }
    Ok(Detach::Fork { pid_file: pid_file.map(|file| not_empty("--conmon-pidfile", file)).transpose()? })
}

pub(super) fn invalid<T>(text: impl Into<String>) -> Result<T, CliError> {
    Err(CliError::Invalid(text.into()))
}

/// For what conmon does and dunnage does not.
fn not_supported<T>(what: &str) -> Result<T, CliError> {
    invalid(format!("{what} is not supported"))
}

pub(super) fn required(value: Option<OsString>, otherwise: &str) -> Result<OsString, CliError> {
    value.ok_or_else(|| CliError::Invalid(otherwise.to_owned()))
}

/// A name for a file of ours in somebody's directory, which it must not lead out of.
pub(super) fn name(option: &str, value: OsString) -> Result<OsString, CliError> {
    match value.as_bytes() {
        b"" | b"." | b".." => {}
        bytes if bytes.contains(&b'/') || bytes.len() > NAME_MAX => {}
        _ => return Ok(value),
    }
    invalid(format!("{option} “{}” cannot be the name of a file, which it must be", value.display()))
}

fn not_empty(option: &str, value: OsString) -> Result<PathBuf, CliError> {
    if value.is_empty() { invalid(format!("{option} must not be empty")) } else { Ok(value.into()) }
}

/// The address of a notify socket: a path, or `@NAME` of one that is no file.
pub(super) fn notify_address(socket: OsString) -> Result<UnixAddr, CliError> {
    let path = not_empty("--sdnotify-socket", socket)?;
    let address = match path.as_os_str().as_bytes() {
        [b'@', name @ ..] => UnixAddr::new_abstract(name),
        name => UnixAddr::new(name),
    };
    address.or_else(|errno| {
        invalid(format!("--sdnotify-socket {} is not the address of a socket: {}", path.display(), errno.desc()))
    })
}

pub(super) fn level(name: Option<&OsStr>) -> Result<LevelFilter, CliError> {
    let Some(name) = name else { return Ok(LevelFilter::Warn) };
    match name.to_ascii_lowercase().as_bytes() {
        b"error" | b"fatal" | b"panic" => Ok(LevelFilter::Error),
        b"warn" | b"warning" => Ok(LevelFilter::Warn),
        b"info" => Ok(LevelFilter::Info),
        b"debug" => Ok(LevelFilter::Debug),
        b"trace" => Ok(LevelFilter::Trace),
        _ => invalid(format!("No such log level {}", name.display())),
    }
}

fn check_exclusions(given: &Given) -> Result<(), CliError> {
    if given.exec && given.restore.is_some() {
        return invalid("Cannot use 'exec' and 'restore' at the same time");
    }
    if given.exec_attach && !given.exec {
        return invalid("Attach can only be specified with exec");
    }
    if given.exec_attach && !given.api_version {
        return invalid("Attach can only be specified for a non-legacy exec session");
    }
    if given.exec && given.control_socket.is_some() {
        return invalid("--control-socket is for a container's own monitor, not for --exec");
    }
    Ok(())
}

/// A path that stays the same wherever the shim is.
pub(super) fn control_socket(path: &OsStr) -> Result<PathBuf, CliError> {
    path::absolute(path).or_else(|error| invalid(format!("--control-socket {} is not valid: {error}", path.display())))
}

/// The socket that was asked for: by its path, or by the directory of all of them.
fn chosen_socket(path: Option<OsString>, directory: Option<OsString>, id: &OsStr) -> Result<Option<PathBuf>, CliError> {
    let directory = directory.filter(|dir| !dir.is_empty());
    let in_directory = || directory.map(|dir| Path::new(&dir).join(id).into_os_string());
    path.or_else(in_directory).map(|path| control_socket(&path)).transpose()
}

fn pid_file_name(id: &OsStr) -> OsString {
    let mut name = OsString::from("pidfile-");
    name.push(id);
    name
}

fn executable(path: OsString) -> Result<PathBuf, CliError> {
    let path = PathBuf::from(path);
    // This finds directories executable, as in conmon, whose own tests pass one for a runtime.
    match access(&path, AccessFlags::X_OK) {
        Ok(()) => Ok(path),
        Err(errno) => invalid(format!("Runtime path {} is not valid: {}. Use --runtime", path.display(), errno.desc())),
    }
}

/// An existing directory, made absolute: what is written there at the end must not be lost for a wrong option.
pub(super) fn directory(option: &str, path: OsString) -> Result<PathBuf, CliError> {
    let path = PathBuf::from(path);
    match look_into(&path) {
        Ok(absolute) => Ok(absolute),
        Err(errno) => invalid(format!(
            "{option} {} is not valid: {}. It must be a directory that exists",
            path.display(),
            errno.desc()
        )),
    }
}

fn look_into(path: &Path) -> Result<PathBuf, Errno> {
    let errno = |error: std::io::Error| error.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw);
    if !fs::metadata(path).map_err(errno)?.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    access(path, AccessFlags::R_OK | AccessFlags::X_OK)?;
    path::absolute(path).map_err(errno)
}

/// Where the output goes.
pub(super) fn logging(given: GivenLog, name: Option<OsString>, id: &OsStr) -> Result<Logging, CliError> {
    if given.paths.is_empty() {
        return invalid("Log driver not provided. Use --log-path");
    }
    let (mut file, mut journald, mut passthrough) = (None, false, false);
    for log_path in &given.paths {
        match driver(log_path)? {
            Driver::None => {}
            Driver::File(path) => file = Some(path),
            Driver::Journald => journald = true,
            Driver::Passthrough => passthrough = true,
        }
    }
    if file.is_some() && !journald {
        if given.tag.is_some() {
            return invalid("k8s-file doesn't support --log-tag");
        }
        if !given.labels.is_empty() {
            return invalid("k8s-file doesn't support --log-label");
        }
    }
    let backups = backups(&given)?;
    Ok(Logging {
        file: file.map(|path| k8s_file(&given, path, backups)),
        passthrough,
        sync: !given.no_sync,
        journald: journald.then(|| journald_options(given, name, id)).transpose()?,
    })
}

fn k8s_file(given: &GivenLog, path: PathBuf, backups: Option<NonZeroU32>) -> K8sFileOptions {
    let limit = |given| u64::try_from(given).ok().filter(|&max| max > 0);
    K8sFileOptions {
        path,
        size_max: limit(given.size_max),
        total_max: limit(given.global_size_max),
        backups,
        // What cannot be made absolute, an empty word, holds nothing.
        allowlist: given.allowlist_dirs.iter().map(|dir| path::absolute(dir).unwrap_or_default()).collect(),
    }
}

fn backups(given: &GivenLog) -> Result<Option<NonZeroU32>, CliError> {
    let Ok(count) = u32::try_from(given.max_files.unwrap_or(1)) else {
        return invalid("log-max-files must be non-negative");
    };
    // Each is renamed when the log is full.
    if count > 1000 {
        return invalid("log-max-files cannot exceed 1000");
    }
    if !given.rotate {
        return Ok(None);
    }
    NonZeroU32::new(count)
        .map_or_else(|| invalid("log-max-files must be at least 1 when log-rotate is enabled"), |count| Ok(Some(count)))
}

fn journald_options(given: GivenLog, name: Option<OsString>, id: &OsStr) -> Result<JournaldOptions, CliError> {
    if id.len() <= JournaldOptions::SHORT_ID {
        return invalid(format!("Container ID must be longer than {} characters", JournaldOptions::SHORT_ID));
    }
    for label in &given.labels {
        check_label(label)?;
    }
    Ok(JournaldOptions {
        id: id.to_owned(),
        name,
        tag: given.tag,
        labels: given.labels,
        mark_partial: !given.no_partial_message,
    })
}

fn check_label(label: &OsStr) -> Result<(), CliError> {
    let mut parts = label.as_bytes().split(|&byte| byte == b'=');
    if let (Some(name), Some(_), None) = (parts.next(), parts.next(), parts.next())
        && !name.is_empty()
        && name.iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'))
    {
        return Ok(());
    }
    invalid(format!(
        "--log-label “{}” must be NAME=VALUE with a single =, and NAME of upper-case letters, digits and underscores",
        label.display()
    ))
}

#[derive(Debug, PartialEq, Eq)]
enum Driver {
    None,
    File(PathBuf),
    Journald,
    Passthrough,
}

/// Reads `DRIVER`, `DRIVER:PATH` or `PATH`.
fn driver(log_path: &OsStr) -> Result<Driver, CliError> {
    let mut parts = log_path.as_bytes().splitn(2, |&byte| byte == b':');
    let name = parts.next().unwrap_or_default();
    let rest = parts.next();
    let path = rest.filter(|path| !path.is_empty()).map(|path| PathBuf::from(OsStr::from_bytes(path)));
    match (name, path) {
        (b"", None) => invalid("log-path must not be empty"),
        (b"none" | b"off" | b"null", _) => Ok(Driver::None),
        (b"journald", _) => Ok(Driver::Journald),
        (b"passthrough", _) => Ok(Driver::Passthrough),
        (b"" | b"k8s-file", Some(path)) => Ok(Driver::File(path)),
        (b"k8s-file", None) => invalid("k8s-file requires a filename"),
        (_, None) if rest.is_none() => Ok(Driver::File(log_path.into())),
        _ => invalid(format!("No such log driver {}", OsStr::from_bytes(name).display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_path_names_its_driver_or_none() {
        let file = |path: &str| Ok(Driver::File(path.into()));
        let error = |text: &str| Err(CliError::Invalid(text.to_owned()));
        for (log_path, expected) in [
            ("/a/b.log", file("/a/b.log")),
            ("b.log", file("b.log")),
            ("k8s-file:/a/b.log", file("/a/b.log")),
            ("k8s-file:/a:b.log", file("/a:b.log")),
            (":x", file("x")),
            (":none", file("none")),
            (":k8s-file:x", file("k8s-file:x")),
            ("none", Ok(Driver::None)),
            ("none:", Ok(Driver::None)),
            ("off", Ok(Driver::None)),
            ("null:x", Ok(Driver::None)),
            ("journald", Ok(Driver::Journald)),
            ("journald:", Ok(Driver::Journald)),
            ("journald:x:y", Ok(Driver::Journald)),
            (":journald", file("journald")),
            ("passthrough", Ok(Driver::Passthrough)),
            ("passthrough:x", Ok(Driver::Passthrough)),
            ("", error("log-path must not be empty")),
            (":", error("log-path must not be empty")),
            ("k8s-file", error("k8s-file requires a filename")),
            ("k8s-file:", error("k8s-file requires a filename")),
            ("syslog:", error("No such log driver syslog")),
            ("/a:b", error("No such log driver /a")),
            ("NONE:x", error("No such log driver NONE")),
        ] {
            assert_eq!(driver(OsStr::new(log_path)), expected, "{log_path:?}");
        }
    }

    #[test]
    fn levels_are_known_in_any_case() {
        for (name, expected) in [
            ("error", LevelFilter::Error),
            ("Fatal", LevelFilter::Error),
            ("PANIC", LevelFilter::Error),
            ("warn", LevelFilter::Warn),
            ("WARNING", LevelFilter::Warn),
            ("info", LevelFilter::Info),
            ("debug", LevelFilter::Debug),
            ("trace", LevelFilter::Trace),
        ] {
            assert_eq!(level(Some(OsStr::new(name))), Ok(expected), "{name}");
        }
        assert_eq!(level(None), Ok(LevelFilter::Warn));
        for name in ["", "warn ", "off", "verbose"] {
            assert_eq!(
                level(Some(OsStr::new(name))),
                Err(CliError::Invalid(format!("No such log level {name}"))),
                "{name:?}"
            );
        }
    }

    #[test]
    fn a_name_cannot_lead_elsewhere() {
        for good in ["a", "...", "-", "a:b", "0123456789abcdef"] {
            assert_eq!(name("--cid", good.into()), Ok(good.into()));
        }
        let long = "n".repeat(NAME_MAX + 1);
        for bad in ["", ".", "..", "/", "a/b", "../a", "a/", &long] {
            assert!(name("--cid", bad.into()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_control_socket_is_named_by_its_path_or_by_the_directory_of_all() {
        let socket = |path: &str, directory: &str| {
            let given = |word: &str| Some(OsString::from(word)).filter(|word| !word.is_empty());
            chosen_socket(given(path), given(directory), OsStr::new("box")).unwrap()
        };
        assert_eq!(socket("/run/path", "/run/dir"), Some("/run/path".into()));
        assert_eq!(socket("", "/run/dir"), Some("/run/dir/box".into()));
        assert_eq!(socket("", "dir"), Some(env::current_dir().unwrap().join("dir/box")));
        assert_eq!(socket("", ""), None);
    }
}
