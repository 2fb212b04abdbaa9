//! The options: each has one row here.

use super::options::{Group, Kind, flag, int, int64, option, seconds, word};

/// All options, in the order of `--help`. A line break in a help text is one in the output.
pub(super) static GROUPS: &[Group] = &[
    Group {
        title: "Container",
        options: &[
            word("cid", "ID", |g, v| g.cid = Some(v), "the container's id, which names its exit file (required)")
                .short(b'c')
                .for_services(),
            word("cuuid", "ID", |g, v| g.cuuid = Some(v), "the name of the link to its attach socket (required)")
                .short(b'u'),
            word("name", "NAME", |g, v| g.name = Some(v), "the container's name, for log drivers that record it")
                .short(b'n')
                .for_services(),
            word("bundle", "DIR", |g, v| g.bundle = Some(v), "the OCI bundle (default: the working directory)")
                .short(b'b'),
            word(
                "container-pidfile",
                "FILE",
                |g, v| g.container_pid_file = Some(v),
                "where the runtime writes the container's pid\n\
                 (default: pidfile-ID in the working directory)",
            )
            .short(b'p'),
            word("pidfile", "FILE", |g, v| g.container_pid_file = Some(v), ""),
            int("timeout", "SECONDS", |g, v| g.timeout = v, "kill the process after so long (default: 0, never)")
                .short(b'T'),
            word("restore", "DIR", |g, v| g.restore = Some(v), "restore the container from this checkpoint"),
            flag("exec", |g| g.exec = true, "run a process in a container that runs already").short(b'e'),
            word("exec-process-spec", "FILE", |g, v| g.exec_process_spec = Some(v), "that process, described in JSON"),
            flag("exec-attach", |g| g.exec_attach = true, "start that process only when a client has attached"),
            flag("enable-healthcheck", |_| (), "run the health checks that the bundle describes").refused(),
        ],
    },
    Group {
        title: "Runtime",
        options: &[
            word("runtime", "PATH", |g, v| g.runtime = Some(v), "the OCI runtime, such as /usr/bin/crun (required)")
                .short(b'r'),
            word(
                "runtime-arg",
                "ARG",
                |g, v| g.runtime_args.push(v),
                "an argument before the runtime's subcommand; repeatable",
            ),
            word(
                "runtime-opt",
                "ARG",
                |g, v| g.runtime_opts.push(v),
                "an argument after the subcommand's own; repeatable",
            ),
            word("restore-arg", "ARG", |g, v| g.runtime_opts.push(v), ""),
            flag("systemd-cgroup", |g| g.systemd_cgroup = true, "have the runtime make cgroups through systemd")
                .short(b's'),
            flag("no-pivot", |g| g.no_pivot = true, "keep the runtime from using pivot_root"),
            flag("no-new-keyring", |g| g.no_new_keyring = true, "keep the runtime from making a session keyring"),
            flag(
                "replace-listen-pid",
                |g| g.replace_listen_pid = true,
                "make LISTEN_PID, where it is set, the runtime's pid",
            ),
            word("seccomp-notify-socket", "PATH", |_, _| (), "where seccomp notifications arrive").refused(),
            word("seccomp-notify-plugins", "LIST", |_, _| (), "plugins that handle seccomp notifications").refused(),
        ],
    },
    Group {
        title: "Streams and attach",
        options: &[
            flag("terminal", |g| g.terminal = true, "give the container a terminal (default: pipes)").short(b't'),
            flag("stdin", |g| g.stdin = true, "give the container a stdin to write to (default: /dev/null)")
                .short(b'i'),
            flag(
                "leave-stdin-open",
                |g| g.leave_stdin_open = true,
                "keep stdin open when an attach client ends its input",
            ),
            word(
                "socket-dir-path",
                "DIR",
                |g, v| g.socket_dir = Some(v),
                "where the link to the bundle is made, through which clients reach\n\
                 the attach socket (default: /var/run/crio)",
            ),
            flag("full-attach", |g| g.full_attach = true, "make no link: clients use the socket in the bundle"),
            seconds(
                "attach-stall-timeout",
                |g, v| g.attach_stall_timeout = Some(v),
                "close a client that holds up the output for so long (default: never)",
            ),
        ],
    },
    Group {
        title: "Log",
        options: &[
            word(
                "log-path",
                "[DRIVER:]PATH",
                |g, v| g.log.paths.push(v),
                "where output is logged: k8s-file:PATH, or just PATH for the same;\n\
                 journald; passthrough to let the container write to the caller's\n\
                 own stdout and stderr; none, off or null for nowhere; repeatable\n(required)",
            )
            .short(b'l')
            .for_services(),
            int64(
                "log-size-max",
                "BYTES",
                |g, v| g.log.size_max = v,
                "replace the log file by a new one before it would grow beyond this\n\
                 (default: 0, without limit)",
            )
            .for_services(),
            int64(
                "log-global-size-max",
                "BYTES",
                |g, v| g.log.global_size_max = v,
                "log no more than this to files in all (default: 0, without limit)",
            )
            .for_services(),
            flag(
                "log-rotate",
                |g| g.log.rotate = true,
                "keep log files that are replaced, as PATH.1, which becomes PATH.2,\n\
                 and so on (default: they are gone)",
            )
            .for_services(),
            int("log-max-files", "N", |g, v| g.log.max_files = Some(v), "how many of them to keep (default: 1)")
                .for_services(),
            word(
                "log-allowlist-dir",
                "DIR",
                |g, v| g.log.allowlist_dirs.push(v),
                "refuse a log file that is not in DIR or below; repeatable\n\
                 (default: it may be anywhere)",
            )
            .for_services(),
            word("log-tag", "TAG", |g, v| g.log.tag = Some(v), "a tag for each entry in the journal").for_services(),
            word(
                "log-label",
                "NAME=VALUE",
                |g, v| g.log.labels.push(v),
                "a field for each entry in the journal; repeatable",
            )
            .for_services(),
            flag(
                "no-container-partial-message",
                |g| g.log.no_partial_message = true,
                "do not mark entries in the journal that are parts of a line",
            )
            .for_services(),
            flag("no-sync-log", |g| g.log.no_sync = true, "do not sync log and exit file to disk at the end")
                .for_services(),
        ],
    },
    Group {
        title: "Exit",
        options: &[
            word("exit-dir", "DIR", |g, v| g.exit_dir = Some(v), "the exit code is written there, to a file named ID"),
            word(
                "persist-dir",
                "DIR",
                |g, v| g.persist_dir = Some(v),
                "the exit code is written there, to a file named exit",
            )
            .short(b'0')
            .for_services(),
            word(
                "exit-command",
                "PATH",
                |g, v| g.exit_command = Some(v),
                "a program to run when the container has ended",
            ),
            word(
                "exit-command-arg",
                "ARG",
                |g, v| g.exit_command_args.push(v),
                "an argument of that program; repeatable",
            ),
            int(
                "exit-delay",
                "SECONDS",
                |g, v| g.exit_delay = v,
                "how long to wait before the exit command (default: 0)",
            ),
        ],
    },
    Group {
        title: "The shim itself",
        options: &[
            flag("sync", |g| g.sync = true, "be the shim, instead of forking it and ending").for_services(),
            word(
                "conmon-pidfile",
                "FILE",
                |g, v| g.conmon_pid_file = Some(v),
                "where the pid of the forked shim is written; unused with --sync",
            )
            .short(b'P')
            .for_services(),
            word(
                "control-socket",
                "PATH",
                |g, v| g.control_socket = Some(v),
                "make a socket (varlink) by which the shim can be asked and told,\n\
                 also to run processes in the container (default: none)",
            )
            .for_services(),
            word(
                "service",
                "FILE",
                |g, v| g.service = Some(v),
                "serve staged generations of the service that FILE describes, and no\n\
                 container; with --cid, --control-socket, --persist-dir, --log-path",
            )
            .for_services(),
            flag("api-version", |g| g.api_version = true, "speak version 1 of the messages to the caller (default: 0)"),
            word(
                "log-level",
                "LEVEL",
                |g, v| g.log_level = Some(v),
                "messages to show: error, warning (default), info, debug, trace",
            )
            .for_services(),
            flag("syslog", |g| g.syslog = true, "show messages in syslog too; once forked, the shim has no stderr")
                .for_services(),
            word(
                "sdnotify-socket",
                "PATH",
                |g, v| g.sdnotify_socket = Some(v),
                "pass the container's sd_notify messages to this socket",
            )
            .for_services(),
            flag("version", |g| g.version = true, "show the versions and end").for_services(),
            option("help", Kind::Help, "show this text and end").short(b'h'),
            option("help-all", Kind::Help, "").short(b'?'),
        ],
    },
    Group {
        title: "Bounds of processes",
        options: &[
            seconds(
                "runtime-timeout",
                |g, v| g.timing.create_runtime_timeout = v,
                "kill a runtime that has not created the container within this time\n\
                 (default: 600)",
            )
            .for_services(),
            seconds(
                "runtime-grace",
                |g, v| g.timing.runtime_grace = v,
                "how long a runtime may take for what follows its exit or failure,\n\
                 such as to hand over the terminal (default: 5)",
            )
            .for_services(),
            seconds(
                "orphan-grace",
                |g, v| g.timing.orphan_grace = v,
                "how long a dead process that nobody waits for stays before it is\n\
                 reaped (default: 1)",
            )
            .for_services(),
            seconds(
                "orphan-max-defer",
                |g, v| g.timing.orphan_max_defer = v,
                "how long it stays at most while a runtime that may own it runs\n\
                 (default: 30)",
            )
            .for_services(),
            seconds(
                "exec-runtime-grace",
                |g, v| g.timing.exec_runtime_grace = v,
                "how long the runtime of an exec may take beyond its --timeout\n\
                 (default: 60)",
            )
            .for_services(),
            seconds(
                "shutdown-timeout",
                |g, v| g.timing.shutdown_timeout = Some(v),
                "after SIGTERM, kill what is left and end within this time\n\
                 (default: wait for the container)",
            )
            .for_services(),
            seconds(
                "stop-budget",
                |g, v| g.timing.stop_budget = v,
                "how long before that all is killed at the latest (default: 2)",
            )
            .for_services(),
            seconds(
                "in-flight-wait",
                |g, v| g.timing.in_flight_wait = v,
                "how long a shutdown waits for a running runtime to end by itself\n\
                 (default: 5)",
            )
            .for_services(),
            seconds(
                "stopped-exit-wait",
                |g, v| g.timing.stopped_exit_wait = v,
                "how long it then waits for the killed runtime (default: 0.5)",
            )
            .for_services(),
            seconds(
                "stopped-output-wait",
                |g, v| g.timing.stopped_output_wait = v,
                "and after that for its output (default: 0.2)",
            )
            .for_services(),
        ],
    },
];

#[cfg(test)]
mod tests {
    use dunnage_runtime::reaper::Timing;

    use super::super::options::Opt;

    #[test]
    fn no_name_stands_for_two_options() {
        for option in Opt::all() {
            assert_eq!(Opt::all().filter(|other| other.name == option.name).count(), 1, "--{}", option.name);
            if let Some(short) = option.short {
                assert_eq!(
                    Opt::all().filter(|other| other.short == Some(short)).count(),
                    1,
                    "-{}",
                    short.escape_ascii()
                );
            }
        }
    }

    #[test]
    fn names_are_what_the_parser_can_find() {
        for option in Opt::all() {
            assert!(!option.name.is_empty() && !option.name.contains('='), "--{}", option.name);
            assert!(option.short.is_none_or(|short| short.is_ascii_graphic() && short != b'-'), "--{}", option.name);
        }
    }

    #[test]
    fn the_help_tells_the_reapers_defaults() {
        let timing = Timing::default();
        for (name, default) in [
            ("runtime-timeout", timing.create_runtime_timeout),
            ("runtime-grace", timing.runtime_grace),
            ("orphan-grace", timing.orphan_grace),
            ("orphan-max-defer", timing.orphan_max_defer),
            ("exec-runtime-grace", timing.exec_runtime_grace),
            ("stop-budget", timing.stop_budget),
            ("in-flight-wait", timing.in_flight_wait),
            ("stopped-exit-wait", timing.stopped_exit_wait),
            ("stopped-output-wait", timing.stopped_output_wait),
        ] {
            let help = Opt::long_named(name.as_bytes()).unwrap().help;
            assert!(help.contains(&format!("(default: {})", default.as_secs_f64())), "--{name}: {help}");
        }
    }
}
