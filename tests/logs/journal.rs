//! The journald driver: a journal of the tests' own, and systemd's.

use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::{fs, process};

use dunnage_testing::journal::in_own_run;
use dunnage_testing::{Journal, JournalEntry, Out, Sandbox, Script, Step, Tool, script};
use serde_json::Value;

fn text(entries: &[JournalEntry], priority: &[u8]) -> Vec<u8> {
    let entries = entries.iter().filter(|entry| entry.field("PRIORITY") == priority);
    entries.flat_map(|entry| entry.field("MESSAGE").to_vec()).collect()
}

#[test]
fn e06_bulk_output_arrives_whole_in_the_journal_and_at_the_client() {
    const SIZE: usize = 8_000_000;
    let sandbox = Sandbox::new();
    let go = sandbox.event("go");
    let payload = [Step::wait("go"), Step::Noise(Out::Stdout, SIZE, 1), Step::Lines(Out::Stderr, 20_000, 12)];
    sandbox.script(&Script::new(payload));
    let journal = Journal::listen(&sandbox);
    let mut monitor = journal.reached_by(sandbox.monitor(&Tool::under_test()).option("-l", "journald")).start();
    monitor.pid();
    let client = monitor.attach();
    go.fire();
    let received = client.receive_all();
    assert_eq!(monitor.exit_code(), "0");
    monitor.end();
    let entries = journal.entries();
    assert!(received.stdout == script::noise(SIZE, 1) && received.stderr == script::lines(20_000, 12));
    assert!(text(&entries, b"3") == script::lines(20_000, 12));
    // Noise has a `<N>` at the start of some lines.
    let found: usize = entries.iter().map(|entry| entry.field("MESSAGE").len()).sum();
    let prefixes = entries.iter().filter(|entry| !matches!(entry.field("PRIORITY"), b"3" | b"6")).count();
    assert!((SIZE + 240_000 - 3 * (prefixes + 2)..=SIZE + 240_000).contains(&found), "{found}");
}

#[test]
fn priorities_and_labels() {
    let sandbox = Sandbox::new();
    sandbox.script(&Script::new([Step::out("<4>warning\nplain\n<9>no\n"), Step::err("<7>debug")]));
    let journal = Journal::listen(&sandbox);
    let monitor = sandbox.monitor(&Tool::under_test()).option("-l", "journald:");
    let monitor =
        monitor.also("--log-label", "UNIT=a").also("--log-label", "B_2=c d").flag("--no-container-partial-message");
    let monitor = journal.reached_by(monitor).start();
    assert_eq!(monitor.exit_code(), "0");
    monitor.end();
    let entries = journal.entries();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in &entries {
        let as_text = |name| String::from_utf8(entry.field(name).to_vec()).expect("text");
        found.entry(as_text("PRIORITY")).or_default().push(as_text("MESSAGE"));
        assert_eq!((as_text("UNIT"), as_text("B_2")), ("a".to_owned(), "c d".to_owned()));
        assert!(!entry.0.contains_key("CONTAINER_PARTIAL_MESSAGE"));
    }
    let expected = [("4", vec!["warning\n"]), ("6", vec!["plain\n", "<9>no\n"]), ("7", vec!["debug"])];
    let expected =
        expected.map(|(priority, texts)| (priority.to_owned(), texts.iter().map(ToString::to_string).collect()));
    assert_eq!(found, BTreeMap::from(expected));
}

#[test]
fn c04_a_journal_that_reads_nothing_delays_no_exit() {
    let sandbox = Sandbox::new();
    let dir = sandbox.root().join("journal");
    fs::create_dir(&dir).expect("a directory");
    let _journal = UnixDatagram::bind(dir.join("socket")).expect("a socket");
    sandbox.script(&Script::new([Step::fire("started"), Step::Lines(Out::Stdout, 100_000, 100)]));
    let started = sandbox.event("started");
    let monitor = sandbox.monitor(&Tool::under_test()).option("-l", "journald");
    let mut monitor = monitor.through(&in_own_run("/run/systemd/journal", &dir)).start();
    let payload = monitor.payload();
    started.wait();
    payload.signal(9);
    assert_eq!(monitor.exit_code_within(std::time::Duration::from_secs(3)), "137");
    monitor.end();
}

/// `journald` of systemd, with a `/run` and a `/var/log` of its own, in a mount namespace that others can enter.
struct Journald {
    keeper: process::Child,
}

impl Journald {
    const PROGRAM: &str = "/lib/systemd/systemd-journald";

    fn start() -> Self {
        assert!(Path::new(Self::PROGRAM).exists(), "{} is missing: apt-get install systemd", Self::PROGRAM);
        let script = "mount -t tmpfs none /run; mkdir -p /run/systemd/journal /run/log/journal; \
             exec /lib/systemd/systemd-journald";
        let mut keeper = Command::new("unshare");
        keeper.args(["--mount", "--propagation", "private", "sh", "-ec", script]);
        let keeper = keeper.spawn().expect("journald starts");
        let journald = Self { keeper };
        let socket = format!("/proc/{}/root/run/systemd/journal/socket", journald.keeper.id());
        let deadline = dunnage_testing::wait::Deadline::usual();
        dunnage_testing::wait::eventually(deadline, "journald's socket", || Path::new(&socket).exists());
        journald
    }

    /// A prelude that enters its namespace.
    fn enter(&self) -> String {
        format!("exec nsenter --mount=/proc/{}/ns/mnt --wdns=\"$PWD\"", self.keeper.id())
    }

    fn read(&self, id: &str) -> Vec<Value> {
        let mut reader = Command::new("nsenter");
        reader.arg(format!("--mount=/proc/{}/ns/mnt", self.keeper.id()));
        reader.args(["journalctl", "--quiet", "--output=json", "--all"]).arg(format!("CONTAINER_ID_FULL={id}"));
        let output = reader.output().expect("journalctl runs");
        let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).expect("an entry")).collect()
    }
}

impl Drop for Journald {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

#[test]
fn systemds_journal_has_every_line() {
    let sandbox = Sandbox::new();
    let journald = Journald::start();
    sandbox.script(&Script::new([
        Step::Lines(Out::Stdout, 3000, 40),
        Step::err("<4>careful\n"),
        Step::out("unfinished"),
    ]));
    let monitor = sandbox.monitor(&Tool::under_test()).option("-l", "journald").option("--log-tag", "the tag");
    let mut monitor = monitor.through(&journald.enter()).start();
    monitor.pid();
    assert_eq!(monitor.exit_code(), "0");
    monitor.end();
    let mut entries = Vec::new();
    dunnage_testing::wait::eventually(dunnage_testing::wait::Deadline::usual(), "all entries", || {
        entries = journald.read(sandbox.id());
        entries.len() >= 3002
    });
    let field = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let text: String =
        entries.iter().filter(|entry| field(entry, "PRIORITY") == "6").map(|entry| field(entry, "MESSAGE")).collect();
    assert!(text.as_bytes() == [script::lines(3000, 40), b"unfinished".to_vec()].concat());
    let warning = entries.iter().find(|entry| field(entry, "PRIORITY") == "4").expect("the warning");
    assert_eq!(field(warning, "MESSAGE"), "careful\n");
    for (name, value) in [
        ("CONTAINER_ID", "0123456789ab"),
        ("CONTAINER_NAME", "container"),
        ("CONTAINER_TAG", "the tag"),
        ("SYSLOG_IDENTIFIER", "the tag"),
        ("_COMM", "dunnage"),
    ] {
        assert!(entries.iter().all(|entry| field(entry, name) == value), "{name}: {}", field(&entries[0], name));
    }
    let marked = entries.iter().filter(|entry| field(entry, "CONTAINER_PARTIAL_MESSAGE") == "true").count();
    assert_eq!((entries.len(), marked), (3002, 1));
}
