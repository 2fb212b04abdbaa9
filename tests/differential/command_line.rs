//! Options, and what is wrong with them.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use dunnage_testing::{Script, Status, Step, Tool};

use crate::compare::{Change, compare};

fn refuses(test: &str, change: Change) {
    compare(test, |sandbox, tool, findings| {
        sandbox.script(&Script::new([]));
        fs::write(sandbox.root().join("plain"), "").expect("a file");
        let mut monitor = change(sandbox.monitor(tool)).start();
        let status = monitor.status();
        findings.note("status", status);
        // conmon says some of it on stdout; how it begins its lines is each monitor's own.
        let said = monitor.stdout() + &monitor.stderr();
        assert!(tool.is_referee() || tool.name == "conmon" || monitor.stdout().is_empty(), "mistakes go to stderr");
        findings.note("lines", said.lines().count());
        let line = said.lines().next().unwrap_or_default();
        let begins = ["conmon: ", "[conmon:e] ", "[conmon:e]: ", "dunnage: error: "];
        let line = begins.iter().fold(line, |line, begin| line.strip_prefix(begin).unwrap_or(line));
        findings.note("says", line.replace(['“', '”'], "?"));
        findings.note("messages", monitor.messages());
        findings.note_tree("left", sandbox);
        if status == Status::Exited(0) {
            monitor.end();
        }
    });
}

#[test]
fn bad_options_are_refused() {
    let cases: [(&str, Change); 23] = [
        ("bad_options_are_refused: none", |monitor| monitor.bare()),
        ("bad_options_are_refused: no id", |monitor| monitor.without("-c")),
        ("bad_options_are_refused: no uuid", |monitor| monitor.without("-u")),
        ("bad_options_are_refused: no runtime", |monitor| monitor.without("-r")),
        ("bad_options_are_refused: no log", |monitor| monitor.without("-l")),
        ("bad_options_are_refused: unknown", |monitor| monitor.flag("--foo")),
        ("bad_options_are_refused: unknown short", |monitor| monitor.flag("-Z")),
        ("bad_options_are_refused: no value", |monitor| monitor.flag("--exit-command")),
        ("bad_options_are_refused: no short value", |monitor| monitor.flag("-b")),
        ("bad_options_are_refused: no number", |monitor| monitor.option("--log-size-max", "abc")),
        ("bad_options_are_refused: no whole number", |monitor| monitor.option("--exit-delay", "1x")),
        ("bad_options_are_refused: huge number", |monitor| monitor.option("--exit-delay", "99999999999999999999")),
        ("bad_options_are_refused: no such runtime", |monitor| monitor.option("-r", "/no/such/runtime")),
        ("bad_options_are_refused: runtime not executable", |monitor| monitor.option("-r", "/etc/passwd")),
        ("bad_options_are_refused: log driver", |monitor| monitor.option("-l", "strange:/x")),
        ("bad_options_are_refused: json-file", |monitor| monitor.option("-l", "json-file:/x")),
        ("bad_options_are_refused: log level", |monitor| monitor.option("--log-level", "loud")),
        ("bad_options_are_refused: empty log", |monitor| monitor.option("-l", "")),
        ("bad_options_are_refused: log without a file", |monitor| monitor.option("-l", "k8s-file:")),
        ("bad_options_are_refused: log directory", |monitor| monitor.option("-l", "k8s-file:/no/such/dir/log")),
        ("bad_options_are_refused: exec without a spec", |monitor| monitor.flag("-e")),
        ("bad_options_are_refused: exec and restore", |monitor| {
            monitor.flag("-e").option("--exec-process-spec", "/dev/null").option("--restore", "/")
        }),
        ("bad_options_are_refused: attach without exec", |monitor| monitor.flag("--exec-attach")),
    ];
    for (test, change) in cases {
        refuses(test, change);
    }
}

#[test]
fn bad_environment_is_refused() {
    refuses("bad_environment_is_refused: sync pipe", |monitor| monitor.through("export _OCI_SYNCPIPE=abc; exec"));
    refuses("bad_environment_is_refused: start pipe", |monitor| monitor.through("export _OCI_STARTPIPE=abc; exec"));
}

/// Words that must be understood, one way or the other.
#[test]
fn options_are_parsed_alike() {
    let cases: [(&str, Change); 12] = [
        ("options_are_parsed_alike: a positional word", |monitor| monitor.flag("1")),
        ("options_are_parsed_alike: equals", |monitor| monitor.flag("--exit-delay=0")),
        ("options_are_parsed_alike: base 16", |monitor| monitor.option("--log-size-max", "0x100000")),
        ("options_are_parsed_alike: a flag with a value", |monitor| monitor.flag("--no-sync-log=yes")),
        ("options_are_parsed_alike: grouped", |monitor| monitor.flag("-is")),
        ("options_are_parsed_alike: grouped with a value", |monitor| monitor.without("-n").flag("-in").flag("name")),
        ("options_are_parsed_alike: a value like an option", |monitor| monitor.also("--runtime-arg", "--debug")),
        ("options_are_parsed_alike: the last one wins", |monitor| monitor.also("-n", "a").also("-n", "b")),
        ("options_are_parsed_alike: end of options", |monitor| monitor.flag("--").flag("--foo")),
        ("options_are_parsed_alike: negative", |monitor| monitor.option("--log-size-max", "-1")),
        ("options_are_parsed_alike: old pid file", |monitor| {
            let pid_file = monitor.argv();
            let at = pid_file.iter().position(|word| word == "-p").expect("-p");
            monitor.without("-p").option("--container-pidfile", pid_file[at + 1].clone())
        }),
        ("options_are_parsed_alike: level in capitals", |monitor| monitor.option("--log-level", "WARNING")),
    ];
    for (test, change) in cases {
        compare(test, |sandbox, tool, findings| {
            sandbox.script(&Script::new([Step::out("hello\n"), Step::Exit(2)]));
            let mut monitor = change(sandbox.monitor(tool)).start();
            findings.note("short side", monitor.status());
            findings.note("exit code", monitor.exit_code());
            monitor.end();
            findings.note("stderr", monitor.stderr());
            findings.note("log", monitor.log().lines());
            findings.note_facts("runtime", &sandbox.report("runtime.json"));
        });
    }
}

/// Callers read the version out of the first line; the second one is dunnage's own.
#[test]
fn version() {
    compare("version", |sandbox, tool, findings| {
        let mut monitor = sandbox.monitor(tool).bare().flag("--version").start();
        findings.note("status", monitor.status());
        findings.note("stderr", monitor.stderr());
        let out = monitor.stdout();
        let words: Vec<&str> = out.split_whitespace().collect();
        findings.note("first words", &words[..2]);
        let numbers: Vec<u32> = words[2].split('.').map(|number| number.parse().expect("a number")).collect();
        findings.note("major", numbers[0]);
        findings.note("numbers", numbers.len());
        findings.note("lines", out.lines().count());
    });
}

#[test]
fn help() {
    compare("help", |sandbox, tool, findings| {
        let mut monitor = sandbox.monitor(tool).bare().flag("--help").start();
        findings.note("status", monitor.status());
        findings.note("stderr", monitor.stderr());
        let out = monitor.stdout();
        // dunnage has more options; all of conmon's are among them.
        let words: BTreeSet<&str> = out.split_whitespace().map(|word| word.trim_end_matches(',')).collect();
        let conmon = Command::new(Tool::conmon().path).arg("--help").output().expect("conmon starts");
        let conmon = String::from_utf8(conmon.stdout).expect("text");
        let missing = conmon.split_whitespace().map(|word| word.trim_end_matches(','));
        let missing: BTreeSet<&str> =
            missing.filter(|word| word.len() > 1 && word.starts_with('-') && !words.contains(word)).collect();
        findings.note("missing", missing);
    });
}
