//! Command lines and what they mean.

use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, fs, process};

use dunnage_runtime::reaper::Timing;
use log::LevelFilter;

use super::*;

/// What every container needs; `/bin/sh` stands for a runtime.
const NEEDED: &str = "-c box -u box --full-attach -r /bin/sh -l none";

fn words(line: &str) -> Vec<OsString> {
    // '' is an empty word.
    line.split_ascii_whitespace().map(|word| if word == "''" { "" } else { word }.into()).collect()
}

fn config(line: &str) -> Config {
    match parse(words(line)) {
        Ok(Command::Run(config)) => *config,
        other => panic!("{line}: {other:?}"),
    }
}

fn config_with(line: &str) -> Config {
    config(&format!("{NEEDED} {line}"))
}

fn error(line: &str) -> String {
    match parse(words(line)) {
        Err(error) => error.to_string(),
        other => panic!("{line}: {other:?}"),
    }
}

/// A directory that is removed with it.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = env::temp_dir().join(format!("dunnage-cli-{}-{number}", process::id()));
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn podman_creates() {
    let dir = TempDir::new();
    let dir = dir.0.display();
    let config = config(&format!(
        "--api-version 1 -c 3f2a -u 3f2a -r /bin/sh -b {dir} -p {dir}/pidfile -n brave_hopper --exit-dir {dir} \
         --full-attach --runtime-arg --root -s -l k8s-file:{dir}/ctr.log --log-level warning --syslog \
         --log-size-max 1048576 --runtime-arg --log-format=json --runtime-arg --log --runtime-arg={dir}/oci-log -t \
         --no-new-keyring --conmon-pidfile {dir}/conmon.pid --no-pivot --exit-command /usr/bin/podman \
         --exit-command-arg --root --exit-command-arg /var/lib/containers/storage --exit-command-arg '' \
         --exit-command-arg container --exit-command-arg cleanup --exit-command-arg 3f2a \
         --runtime-opt --preserve-fds --runtime-opt 2"
    ));
    assert_eq!((&*config.id, &*config.uuid), (OsStr::new("3f2a"), OsStr::new("3f2a")));
    assert_eq!(config.api, Api::V1);
    assert_eq!(config.bundle().unwrap(), Path::new(&dir.to_string()));
    assert_eq!(config.runtime.path, Path::new("/bin/sh"));
    assert_eq!(config.runtime.args, words(&format!("--root --log-format=json --log {dir}/oci-log")));
    assert_eq!(config.runtime.opts, words("--preserve-fds 2"));
    assert!(config.runtime.systemd_cgroup && config.runtime.no_pivot && config.runtime.no_new_keyring);
    assert_eq!(config.container_pid_file, config.bundle().unwrap().join("pidfile"));
    assert_eq!(config.stdio, Stdio::Terminal);
    assert!(!config.leave_stdin_open);
    assert_eq!(config.attach.link_dir, None);
    let file = config.log.file.as_ref().unwrap();
    assert_eq!((&file.path, file.size_max), (&config.bundle().unwrap().join("ctr.log"), Some(1_048_576)));
    assert!(config.log.journald.is_none() && !config.log.passthrough);
    assert!(config.log.sync);
    assert_eq!(config.exit.dir.as_deref(), Some(config.bundle().unwrap()));
    assert_eq!(config.exit.persist_dir, None);
    let command = config.exit.command.as_ref().unwrap();
    assert_eq!(command.path, Path::new("/usr/bin/podman"));
    assert_eq!(command.args, words("--root /var/lib/containers/storage '' container cleanup 3f2a"));
    assert_eq!(command.delay, Duration::ZERO);
    assert!(
        matches!(&config.detach, Detach::Fork { pid_file: Some(file) } if *file == config.bundle().unwrap().join("conmon.pid"))
    );
    assert!(config.syslog);
    assert_eq!(config.level, LevelFilter::Warn);
}

#[test]
fn crio_creates() {
    let dir = TempDir::new();
    let dir = dir.0.display();
    let config = config(&format!(
        "-b {dir} -c 77ab --exit-dir {dir} -l {dir}/0.log --log-level info -n k8s_c_p -P {dir}/conmon-pidfile \
         -p {dir}/pidfile --persist-dir {dir} -r /bin/sh --runtime-arg --root=/run/runc --socket-dir-path {dir} \
         --syslog -u 77ab -s --log-size-max -1 --no-sync-log --leave-stdin-open -i"
    ));
    assert_eq!(config.api, Api::Legacy);
    assert_eq!(config.runtime.args, words("--root=/run/runc"));
    assert_eq!(config.stdio, Stdio::PipesWithStdin);
    assert!(config.leave_stdin_open);
    assert_eq!(config.attach.link_dir.as_deref(), Some(config.bundle().unwrap()));
    let file = config.log.file.as_ref().unwrap();
    assert_eq!((&file.path, file.size_max), (&config.bundle().unwrap().join("0.log"), None));
    assert!(!config.log.sync);
    assert_eq!(config.exit.persist_dir.as_deref(), Some(config.bundle().unwrap()));
    assert_eq!(config.level, LevelFilter::Info);
}

#[test]
fn what_is_not_given_has_a_default() {
    let config = config_with("");
    let here = env::current_dir().unwrap();
    assert_eq!(config.bundle().unwrap(), here);
    assert_eq!(config.container_pid_file, here.join("pidfile-box"));
    assert_eq!(config.api, Api::Legacy);
    assert_eq!(config.stdio, Stdio::Pipes);
    assert!(config.log.file.is_none() && config.log.journald.is_none() && !config.log.passthrough);
    assert!(config.log.sync);
    assert_eq!(config.attach.stall_timeout, None);
    assert!(config.exit.dir.is_none() && config.exit.persist_dir.is_none() && config.exit.command.is_none());
    assert!(matches!(config.detach, Detach::Fork { pid_file: None }));
    assert!(!config.syslog);
    assert_eq!(config.level, LevelFilter::Warn);
    let default = Timing::default();
    assert_eq!(config.timing.orphan_grace, default.orphan_grace);
    assert_eq!(config.timing.runtime_grace, default.runtime_grace);
    assert_eq!(config.timing.create_runtime_timeout, default.create_runtime_timeout);
}

#[test]
fn short_options_are_grouped_as_in_goption() {
    let dir = TempDir::new();
    let path = dir.0.display();
    for line in [
        format!("-ib {path} -s"),
        format!("-bi {path} -s"),
        format!("-sib {path}"),
        format!("-bsi {path}"),
        format!("-si -b{path}"),
        format!("-sib{path}"),
    ] {
        let config = config_with(&line);
        assert_eq!(config.stdio, Stdio::PipesWithStdin, "{line}");
        assert!(config.runtime.systemd_cgroup, "{line}");
        assert_eq!(config.bundle().unwrap(), dir.0, "{line}");
    }
}

#[test]
fn a_value_may_look_like_anything() {
    let args = |line: &str| config_with(line).runtime.args;
    assert_eq!(args("--runtime-arg --runtime-arg"), words("--runtime-arg"));
    assert_eq!(args("--runtime-arg=--root=/x"), words("--root=/x"));
    assert_eq!(args("--runtime-arg= --runtime-arg ''"), words("'' ''"));
    assert_eq!(args("--runtime-arg -- --runtime-arg -h"), words("-- -h"));
    let mut line = words(NEEDED);
    line.extend(["--runtime-arg".into(), OsString::from_vec(vec![0xff, b'=', 0xfe])]);
    let Ok(Command::Run(config)) = parse(line) else { panic!("bytes are refused") };
    assert_eq!(config.runtime.args, [OsStr::from_bytes(b"\xff=\xfe")]);
}

#[test]
fn other_words_are_swallowed() {
    let config = config_with("1 --api-version 1 - '' -t --terminal=no -- --foo -i --sync");
    assert_eq!(config.api, Api::V1);
    assert_eq!(config.stdio, Stdio::Terminal);
    assert!(matches!(config.detach, Detach::Fork { .. }), "what follows -- is no option");
}

#[test]
fn of_several_the_last_wins() {
    let config = config_with("-c a --cid b --container-pidfile p --pidfile q -l none -l k8s-file:x -l y -l off");
    assert_eq!(config.id, "b");
    assert_eq!(config.container_pid_file, Path::new("q"));
    assert_eq!(config.log.file.unwrap().path, Path::new("y"));
}

#[test]
fn numbers_are_read_in_base_0() {
    for (number, value) in [("0x10", Some(16)), ("010", Some(8)), ("0", None), ("-0x10", None)] {
        let file = config_with(&format!("-l x --log-size-max {number}")).log.file.unwrap();
        assert_eq!(file.size_max, value, "{number}");
    }
    let command = config_with("--exit-command /x --exit-delay 0x12c").exit.command;
    assert_eq!(command.unwrap().delay, Duration::from_secs(300));
}

#[test]
fn bounds_may_have_a_fraction() {
    let config = config_with(
        "--attach-stall-timeout 2.5 --orphan-grace 0.001 --runtime-grace=3 --runtime-timeout 604800 --sync",
    );
    assert_eq!(config.attach.stall_timeout, Some(Duration::from_millis(2500)));
    assert_eq!(config.timing.orphan_grace, Duration::from_millis(1));
    assert_eq!(config.timing.runtime_grace, Duration::from_secs(3));
    assert_eq!(config.timing.create_runtime_timeout, Duration::from_secs(604_800));
    assert!(matches!(config.detach, Detach::Sync));
}

#[test]
fn limits_of_0_or_less_are_none() {
    config_with("--timeout 0 -T -1 --log-global-size-max 0 --log-max-files 0");
}

#[test]
fn help_comes_at_once_and_the_version_after_all_words() {
    for line in ["--help", "-h", "-?", "--help-all", "-th", "--version -h", "-h --foo", "-ht", "-bh x"] {
        assert!(matches!(parse(words(line)), Ok(Command::Help)), "{line}");
    }
    for line in ["--version", "--version=1", "-e --version --restore x", "-c x --version"] {
        assert!(matches!(parse(words(line)), Ok(Command::Version)), "{line}");
    }
    assert!(matches!(parse(words("--foo --help")), Err(CliError::Syntax(_))));
    assert!(matches!(parse(words("--version --foo")), Err(CliError::Syntax(_))));
}

#[test]
fn the_version_is_what_podman_and_crio_parse() {
    assert_eq!(VERSION.split_ascii_whitespace().nth(2), Some("2.2.1"));
    let mut lines = VERSION.lines();
    assert_eq!(lines.next(), Some("conmon version 2.2.1"));
    let ours = lines.next().unwrap();
    assert!(ours.starts_with(concat!("dunnage ", env!("CARGO_PKG_VERSION"), " (commit ")), "{ours}");
    assert!(ours.ends_with(')') && !ours.contains("()"), "{ours}");
    assert_eq!(lines.next(), None);
}

#[test]
fn bad_words_get_conmons_line() {
    for (line, text) in [
        ("--foo", "Unknown option --foo"),
        ("--foo=bar", "Unknown option --foo=bar"),
        ("--ver", "Unknown option --ver"),
        ("-Q", "Unknown option -Q"),
        ("-tQ", "Unknown option -tQ"),
        ("-t=5", "Unknown option -t=5"),
        ("-c=5", "Unknown option -c=5"),
        ("-ü", "Unknown option -ü"),
        ("--a\x1b[2J", "Unknown option --a\\u{1b}[2J"),
        ("--cid", "Missing argument for --cid"),
        ("-c", "Missing argument for -c"),
        ("-tT", "Missing argument for -T"),
        ("-ct", "Missing argument for -c"),
        ("--timeout abc", "Cannot parse integer value “abc” for --timeout"),
        ("--timeout=", "Cannot parse integer value “” for --timeout"),
        ("-T 12x", "Cannot parse integer value “12x” for -T"),
        ("-T 2147483648", "Integer value “2147483648” for -T out of range"),
        ("--log-size-max 9223372036854775808", "Integer value “9223372036854775808” for --log-size-max out of range"),
    ] {
        assert_eq!(error(line), format!("conmon: option parsing failed: {text}"), "{line}");
    }
}

#[test]
fn bad_options_get_one_line() {
    for (line, text) in [
        ("", "Container ID not provided. Use --cid"),
        ("-- -c x", "Container ID not provided. Use --cid"),
        ("--log-level foo", "Container ID not provided. Use --cid"),
        ("-c ''", "--cid “” cannot be the name of a file, which it must be"),
        ("-c ../x", "--cid “../x” cannot be the name of a file, which it must be"),
        ("-c x --log-level foo", "No such log level foo"),
        ("-c x", "Container UUID not provided. Use --cuuid"),
        ("-c x --log-level DEBUG", "Container UUID not provided. Use --cuuid"),
        ("-c x -e --restore y", "Cannot use 'exec' and 'restore' at the same time"),
        ("-c x --exec-attach", "Attach can only be specified with exec"),
        ("-c x --exec-attach -e", "Attach can only be specified for a non-legacy exec session"),
        ("-c x -e --api-version", "Container UUID not provided. Use --cuuid"),
        ("-c x -e", "Runtime path not provided. Use --runtime"),
        ("-c x -u ..", "--cuuid “..” cannot be the name of a file, which it must be"),
        ("-c x -u y", "Runtime path not provided. Use --runtime"),
        ("-c x -u y -r /nope", "Runtime path /nope is not valid: No such file or directory. Use --runtime"),
        ("-c x -u y -r /etc/passwd", "Runtime path /etc/passwd is not valid: Permission denied. Use --runtime"),
        ("-c x -u y -r /etc", "Log driver not provided. Use --log-path"),
        ("-c x -u y -r ''", "Runtime path  is not valid: No such file or directory. Use --runtime"),
        ("-c x -e -r /bin/sh", "Exec process spec path not provided. Use --exec-process-spec"),
        ("-c x -u y -r /bin/sh", "Log driver not provided. Use --log-path"),
        (
            "-c x -u y -r /bin/sh -b /nope",
            "--bundle /nope is not valid: No such file or directory. It must be a directory that exists",
        ),
        (
            "-c x -u y -r /bin/sh -b /etc/passwd",
            "--bundle /etc/passwd is not valid: Not a directory. It must be a directory that exists",
        ),
        (
            "-c x -u y -r /bin/sh --exit-delay -5",
            "Delay before invoking exit command must be greater than or equal to 0",
        ),
        ("-c x -u y -r /bin/sh -p ''", "--container-pidfile must not be empty"),
        ("-c x -u y -r /bin/sh -l ''", "log-path must not be empty"),
        ("-c x -u y -r /bin/sh -l none -l k8s-file", "k8s-file requires a filename"),
        ("-c x -u y -r /bin/sh -l foo:bar", "No such log driver foo"),
        ("-c x -u y -r /bin/sh -l a --log-tag t", "k8s-file doesn't support --log-tag"),
        ("-c x -u y -r /bin/sh -l a --log-label A=b", "k8s-file doesn't support --log-label"),
        ("-c x -u y -r /bin/sh -l a --log-max-files -1", "log-max-files must be non-negative"),
        ("-c x -u y -r /bin/sh -l a --log-rotate --log-max-files 1001", "log-max-files cannot exceed 1000"),
        (
            "-c x -u y -r /bin/sh -l a --log-rotate --log-max-files 0",
            "log-max-files must be at least 1 when log-rotate is enabled",
        ),
        ("-c 0123456789ab -u y -r /bin/sh -l journald", "Container ID must be longer than 12 characters"),
        (
            "-c 0123456789abc -u y -r /bin/sh -l journald --log-label a=b",
            "--log-label “a=b” must be NAME=VALUE with a single =, and NAME of upper-case letters, digits and underscores",
        ),
        (
            "-c x -u y -r /bin/sh -l none --socket-dir-path /nope",
            "--socket-dir-path /nope is not valid: No such file or directory. It must be a directory that exists",
        ),
        ("-c x -u y -r /bin/sh -l none --full-attach -P ''", "--conmon-pidfile must not be empty"),
        (
            "-c x -u y -r /bin/sh -l none --full-attach --exit-dir /nope",
            "--exit-dir /nope is not valid: No such file or directory. It must be a directory that exists",
        ),
        (
            "-c x -u y -r /bin/sh -l none --full-attach --persist-dir ''",
            "--persist-dir  is not valid: No such file or directory. It must be a directory that exists",
        ),
        (
            "--orphan-grace 0",
            "--orphan-grace must be a number of seconds from 0.001 to 604800, such as 2 or 0.5, not “0”",
        ),
        (
            "--attach-stall-timeout never",
            "--attach-stall-timeout must be a number of seconds from 0.001 to 604800, such as 2 or 0.5, not “never”",
        ),
    ] {
        assert_eq!(error(line), format!("dunnage: error: {text}"), "{line}");
    }
}

#[test]
fn an_exec_and_a_restore_are_jobs_of_their_own() {
    let job = |line: &str| config_with(line).job;
    assert!(matches!(job("--exec-process-spec x"), Job::Create { .. }));
    match job("-e --exec-process-spec /spec --exec-attach --api-version") {
        Job::Exec { process_spec, attach: true, .. } => assert_eq!(process_spec, Path::new("/spec")),
        other => panic!("{other:?}"),
    }
    match job("--restore /image") {
        Job::Restore { image, .. } => assert_eq!(image, Path::new("/image")),
        other => panic!("{other:?}"),
    }
    assert_eq!(config_with("-T 5").timeout, Some(Duration::from_secs(5)));
    assert_eq!(config_with("-T 0").timeout, None);
    assert!(config_with("--replace-listen-pid").replace_listen_pid);
}

#[test]
fn log_files_have_limits_and_bounds() {
    let file = |line: &str| config_with(&format!("-l x {line}")).log.file.unwrap();
    let backups = |line: &str| file(line).backups.map(NonZeroU32::get);
    assert_eq!(backups(""), None);
    assert_eq!(backups("--log-max-files 3"), None, "without --log-rotate nothing is kept");
    assert_eq!(backups("--log-max-files 0"), None);
    assert_eq!(backups("--log-rotate"), Some(1));
    assert_eq!(backups("--log-rotate --log-max-files 3"), Some(3));
    assert_eq!(file("--log-global-size-max 16777216").total_max, Some(16_777_216));
    assert_eq!(file("--log-global-size-max -1").total_max, None);
    let here = env::current_dir().unwrap();
    assert_eq!(file("--log-allowlist-dir /a/../b --log-allowlist-dir c").allowlist, ["/a/../b".into(), here.join("c")]);
    assert_eq!(file("--log-allowlist-dir ''").allowlist, [PathBuf::new()], "a list that admits nothing");
}

#[test]
fn entries_of_the_journal_say_what_was_given() {
    let line = "-l journald -l none -l x -c 0123456789abc -n box --log-tag t --log-label A_1=b --log-label C=";
    let log = config_with(line).log;
    assert!(log.file.is_some(), "several drivers at once");
    let journald = log.journald.unwrap();
    assert_eq!(journald.id, "0123456789abc");
    assert_eq!(journald.name.as_deref(), Some(OsStr::new("box")));
    assert_eq!(journald.tag.as_deref(), Some(OsStr::new("t")));
    assert_eq!(journald.labels, ["A_1=b", "C="]);
    assert!(journald.mark_partial);
    let line = "-l journald: -c 0123456789abc --no-container-partial-message";
    let journald = config_with(line).log.journald.unwrap();
    assert!(journald.name.is_none() && journald.tag.is_none() && journald.labels.is_empty() && !journald.mark_partial);
    config_with("--log-tag t --log-label nothing");
}

#[test]
fn a_label_is_a_field_of_the_journal() {
    for label in ["=b", "A", "A=b=c", "a=b", "A-B=c", "Ä=b", "''"] {
        let error = error(&format!("-c 0123456789abc -u y -r /bin/sh -l journald --log-label {label}"));
        assert!(error.contains("--log-label"), "{label}: {error}");
    }
}

#[test]
fn the_callers_streams_are_the_containers_with_passthrough() {
    assert_eq!(config_with("-l passthrough").stdio, Stdio::Passthrough);
    assert_eq!(config_with("-l passthrough -i").stdio, Stdio::Passthrough);
    let config = config_with("-l passthrough -t");
    assert_eq!((config.stdio, config.log.passthrough), (Stdio::Terminal, true));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (line, option) in [
        ("--seccomp-notify-socket x", "--seccomp-notify-socket"),
        ("--seccomp-notify-plugins x", "--seccomp-notify-plugins"),
        ("--enable-healthcheck", "--enable-healthcheck"),
    ] {
        assert_eq!(error(&format!("{NEEDED} {line}")), format!("dunnage: error: {option} is not supported"), "{line}");
    }
}

/// xorshift64*: the same words in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap() % bound
    }

    fn bytes(&mut self, longest: usize) -> Vec<u8> {
        let interesting = b"-=:/0x9 \n\xff\0tceh?";
        (0..self.below(longest + 1))
            .map(|_| match self.below(2) {
                0 => interesting[self.below(interesting.len())],
                _ => u8::try_from(self.below(256)).unwrap(),
            })
            .collect()
    }

    /// A word that is often nearly right.
    fn word(&mut self) -> OsString {
        let group = &table::GROUPS[self.below(table::GROUPS.len())];
        let option = &group.options[self.below(group.options.len())];
        let mut word = match self.below(5) {
            0 => format!("--{}", option.name).into_bytes(),
            1 => format!("--{}=", option.name).into_bytes(),
            2 => vec![b'-', option.short.unwrap_or(b'-')],
            3 => b"/bin/sh".to_vec(),
            _ => vec![],
        };
        if self.below(2) == 0 {
            word.extend(self.bytes(8));
        }
        OsString::from_vec(word)
    }
}

#[test]
fn no_words_make_it_panic_or_say_more_than_a_line() {
    let mut random = Random(0x00c0_ffee);
    for _ in 0..20_000 {
        let mut line: Vec<_> = (0..random.below(12)).map(|_| random.word()).collect();
        if random.below(2) == 0 {
            line.splice(0..0, words(NEEDED));
        }
        if let Err(error) = parse(line.clone()) {
            let text = error.to_string();
            assert!(!text.contains(char::is_control), "{line:?}: {text:?}");
        }
    }
}

#[test]
fn a_notify_socket_is_a_path_or_an_abstract_name() {
    let socket = |line: &str| config_with(line).sdnotify_socket;
    let longest = "x".repeat(107);
    assert_eq!(socket(""), None);
    assert_eq!(socket("--sdnotify-socket /a/b").unwrap().path(), Some(Path::new("/a/b")));
    assert_eq!(socket(&format!("--sdnotify-socket={longest}")).unwrap().path(), Some(Path::new(&longest)));
    assert_eq!(socket("--sdnotify-socket @a").unwrap().as_abstract(), Some(b"a".as_slice()));
    // The socket in the bundle is the container's own, and it has a proxy already.
    assert_eq!(socket("--sdnotify-socket /a -e --exec-process-spec x"), None);
    for wrong in ["--sdnotify-socket=".to_owned(), format!("--sdnotify-socket {longest}x")] {
        assert!(error(&format!("{NEEDED} {wrong}")).contains("--sdnotify-socket"), "{wrong}");
    }
}
