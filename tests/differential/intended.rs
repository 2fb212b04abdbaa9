//! Where dunnage differs from conmon on purpose. The reasons are in `docs/differences.md`, under the same words.

use std::collections::BTreeSet;

/// A difference. In each pattern `*` stands for anything.
pub(crate) struct Intended {
    /// What it is: a heading of the page.
    pub(crate) what: &'static str,
    /// In which comparisons.
    test: &'static str,
    /// Which finding.
    finding: &'static str,
    /// What conmon does.
    conmon: &'static str,
    /// What dunnage does.
    pub(crate) dunnage: &'static str,
}

impl Intended {
    /// Whether dunnage does what it is meant to do.
    pub(crate) fn is(&self, dunnage: &str) -> bool {
        matches(self.dunnage, dunnage)
    }
}

/// The row for what conmon did, if dunnage is meant to do something else.
pub(crate) fn find(test: &str, finding: &str, conmon: &str) -> Option<&'static Intended> {
    INTENDED.iter().find(|row| matches(row.test, test) && matches(row.finding, finding) && matches(row.conmon, conmon))
}

const fn row(
    what: &'static str,
    test: &'static str,
    finding: &'static str,
    conmon: &'static str,
    dunnage: &'static str,
) -> Intended {
    Intended { what, test, finding, conmon, dunnage }
}

/// All of them. The first row that fits decides.
pub(crate) const INTENDED: &[Intended] = &[
    row("The umask is 0022", "umask", "runtime: Umask", r#""0077""#, r#""0022""#),
    row("The umask is 0022", "umask", "left: bundle/ctl", r#""fifo 0600""#, r#""fifo 0640""#),
    row("The umask is 0022", "umask", "left: bundle/winsz", r#""fifo 0600""#, r#""fifo 0640""#),
    row("The umask is 0022", "umask", "left: bundle/*", r#""file 0600""#, r#""file 0644""#),
    row("The umask is 0022", "umask", "left: exits/*", r#""file 0600""#, r#""file 0644""#),
    row("The umask is 0022", "umask", "left: persist/*", r#""file 0600""#, r#""file 0644""#),
    row("The umask is 0022", "umask", "left: *pid*", r#""file 0600""#, r#""file 0644""#),
    row("A descriptor that is none is refused", "bad_environment_is_refused*", "left: c*", "*", "nothing"),
    row("A descriptor that is none is refused", "bad_environment_is_refused*", "status", "*", "Exited(1)"),
    row(
        "A descriptor that is none is refused",
        "bad_environment_is_refused*",
        "says",
        r#""unable to parse *""#,
        r#""_OCI_* is no number of a descriptor: abc""#,
    ),
    // Exec and restore.
    row("Nothing is left of a failed create", "exec_*fails*", "*: bundle/attach", r#""socket 0700""#, "nothing"),
    row("Nothing is left of a failed create", "restore_fails", "left: bundle/attach", r#""socket 0700""#, "nothing"),
    row("What a failed runtime said is in the log too", "exec_sync: fails", "log", "[]", "[*]"),
    row("Every failure has a message", "exec_fails*", "messages", "[]", "[*: Number(-1), *message*]"),
    row("Every failure has a message", "exec_cannot_execute*", "messages", "[]", "[*: Number(-1), *message*]"),
    row("Every failure has a message", "exec_with_a_pid_file*", "messages", "[]", "[*: Number(-1), *message*]"),
    row("Signals have their default dispositions", "exec_runs_the_exit_command*", "*: SigBlk", "[10, 17]", "[]"),
    row(
        "LISTEN_PID may name the started process",
        "listening_sockets: *, of the short side",
        "*: env*",
        r#"*"LISTEN_PID": "SHORT-SIDE"*"#,
        r#"*"LISTEN_PID": "RUNTIME-PID"*"#,
    ),
    row(
        "A caller that gave up starts nothing",
        "exec_whose_caller_gives_up*",
        "the runtime was started",
        "true",
        "false",
    ),
    row("A caller that gave up starts nothing", "exec_whose_caller_gives_up*", "an exit file", "true", "false"),
    row("A caller that gave up starts nothing", "exec_whose_caller_gives_up*", "failures", "[]", "[*message*]"),
    row(
        "A caller that gave up starts nothing",
        "exec_whose_caller_gives_up*at once*",
        "short side",
        "Exited(0)",
        "Exited(1)",
    ),
    row(
        "A caller that gave up starts nothing",
        "exec_whose_caller_gives_up*, at once",
        "attach pipe",
        "Some(*)",
        "None",
    ),
    row(
        "The process spec alone asks for an exec's terminal",
        "exec_sees: with a terminal*",
        "runtime: argv",
        r#"*"--detach", "--tty", *"#,
        r#"["RUNTIME", "exec", "--pid-file", "DIR/pidfile", "--process", "DIR/bundle/fake.json", "--detach", "--console-socket", "SOCKET", "0123456789abcdef-container"]"#,
    ),
    row(
        "The process spec alone asks for an exec's terminal",
        "exec_argv: all",
        "runtime: argv",
        r#"*"--detach", "--tty", *"#,
        r#"["RUNTIME", "--root", "/a b", "exec", "--pid-file", "DIR/pidfile", "--process", "DIR/bundle/fake.json", "--detach", "--x", "--y", "--console-socket", "SOCKET", "0123456789abcdef-container"]"#,
    ),
    row("An exec's user sees errors alone", "exec_says_errors_alone: debug", "stderr", "*", r#""""#),
    row("An exec that has a process has not failed", "exec_whose_runtime_fails*", "exit file", "None", r#"Some("7")"#),
    row(
        "An exec that has a process has not failed",
        "exec_whose_runtime_fails*",
        "persistent exit file",
        "None",
        r#"Some("7")"#,
    ),
    row(
        "An exec that has a process has not failed",
        "exec_whose_runtime_fails*",
        "left: *",
        "nothing",
        r#""file 0644""#,
    ),
    row(
        "An exec that has a process has not failed",
        "exec_whose_runtime_fails*",
        "log",
        "[]",
        r#"["Stdout hello\\n", "Stderr so what\\n"]"#,
    ),
    row(
        "An exec that has a process has not failed",
        "exec_whose_runtime_fails*: API 1",
        "messages",
        "*message*",
        r#"[Object {"data": Number(PAYLOAD)}, Object {"data": Number(7)}]"#,
    ),
    row(
        "An exec that has a process has not failed",
        "exec_whose_runtime_fails*: legacy",
        "messages",
        "*message*",
        r#"[Object {"exit_code": Number(7)}]"#,
    ),
    row("Mistakes are found before the fork", "exec_without_an_attach_pipe", "status", "Exited(0)", "Exited(1)"),
    row("Mistakes are found before the fork", "exec_without_an_attach_pipe", "left: c*", "*", "nothing"),
    row("The log file has the mode 0640", "*", "*: *.log", r#""file 0600""#, r#""file 0640""#),
    row("Signals have their default dispositions", "*", "*: SigIgn", "[*13]", "[]"),
    row("Signals have their default dispositions", "exit_command_sees*", "*: SigBlk", "[10, 17]", "[]"),
    row("Signals have their default dispositions", "exit_command_sees*", "*: SigBlk", "[10, 17, 28]", "[28]"),
    row("Signals have their default dispositions", "exit_codes: Raise(13)", "exit code", r#""0""#, r#""141""#),
    row(
        "Signals have their default dispositions",
        "exit_codes: Raise(13)",
        "persistent exit code",
        r#"Some("0")"#,
        r#"Some("141")"#,
    ),
    row("Pipes have the mode 0777", "*", "runtime: descriptor *", r#""pipe, fifo 0600*"#, r#""pipe, fifo 0777*"#),
    row("Pipes have the mode 0777", "*", "payload: descriptor *", r#""pipe fifo 0600""#, r#""pipe fifo 0777""#),
    row("A runtime has a process group of its own", "*", "runtime: leads its group", "false", "true"),
    row("The OOM score is handed back", "*_the_callers_state", "*: oom_score_adj", "0", "300"),
    row("The OOM score is handed back", "*: the caller's state", "exit command: oom_score_adj", "-1000", "300"),
    row("The OOM score is handed back", "*", "exit command: oom_score_adj", "-1000", "0"),
    row(
        "LISTEN_PID may name the started process",
        "runtime_gets_listening_sockets: of the short side",
        "runtime: env",
        r#"*"LISTEN_PID": "SHORT-SIDE"*"#,
        r#"*"LISTEN_PID": "RUNTIME-PID"*"#,
    ),
    row("Nothing is left of a failed create", "console_socket_*: fails", "left", "true", "false"),
    row("Nothing is left of a failed create", "create_*", "left: bundle/attach", "*", "nothing"),
    row("Nothing is left of a failed create", "runtime_cannot_be_executed*", "left: bundle/attach", "*", "nothing"),
    row("The link to the bundle is removed", "*", "left: sockets/*", r#""link to *"#, "nothing"),
    row("A PID that cannot be is a failure", "create_has_a_bad_pid_file*", "left: exits/*", "*", "nothing"),
    row("A PID that cannot be is a failure", "create_has_a_bad_pid_file*", "left: persist/*", "*", "nothing"),
    row("A PID that cannot be is a failure", "create_has_a_bad_pid_file*", "messages", "*", "[*message*]"),
    row("What a failed runtime said is in the log too", "create_fails*", "log", "*", "[*]"),
    row("Every failure has a message", "create_fails*", "messages", "[]", "[*message*]"),
    row("Every failure has a message", "runtime_cannot_be_executed*", "messages", "[]", "[*message*]"),
    row(
        "Errors are said in other words",
        "bad_options_are_refused*",
        "says",
        r#""Runtime path * is not valid *""#,
        r#""Runtime path * is not valid: *""#,
    ),
    row(
        "Errors are said in other words",
        "bad_options_are_refused*",
        "says",
        r#""Failed to open log file *""#,
        r#""cannot open log file *: *""#,
    ),
    row("A caller that gave up starts nothing", "the_caller_hangs_up*", "short side", "Exited(0)", "Exited(1)"),
    row("A caller that gave up starts nothing", "the_caller_hangs_up*", "the runtime was started", "true", "false"),
    row("The exit command decides the status", "exit_command_decides_the_status: 5,*", "status", "*", "Exited(5)"),
];

fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    if rest.is_empty() {
        return true;
    }
    (0..=text.len()).filter(|start| text.is_char_boundary(*start)).any(|start| matches(rest, &text[start..]))
}

#[test]
fn every_intended_difference_has_its_reason() {
    let page = include_str!("../../docs/differences.md");
    let reasons: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let differences: BTreeSet<&str> = INTENDED.iter().map(|row| row.what).collect();
    assert_eq!(differences, reasons);
}

#[test]
fn patterns() {
    assert!(matches("*: ctr.log", "left: ctr.log"));
    assert!(matches("a*c*", "abcd"));
    assert!(!matches("a*c", "abcd"));
}
