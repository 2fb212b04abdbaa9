//! The journald driver, on a socket that keeps what it gets.

use std::collections::BTreeMap;

use dunnage_testing::{Journal, JournalEntry, Out, Script, Step};

use crate::compare::{Change, compare};

/// Runs the payload to its end and notes the entries.
fn entries(test: &str, payload: &[Step], change: Change, note: fn(&[JournalEntry]) -> Vec<String>) {
    compare(test, |sandbox, tool, findings| {
        sandbox.script(&Script::new(payload));
        let journal = Journal::listen(sandbox);
        let monitor = change(sandbox.monitor(tool).option("-l", "journald"));
        let mut monitor = journal.reached_by(monitor).start();
        findings.note("short side", monitor.status());
        findings.note("exit code", monitor.exit_code());
        monitor.end();
        findings.note("stderr", monitor.stderr());
        findings.note("entries", note(&journal.entries()));
        findings.note_tree("left", sandbox);
    });
}

/// Every entry with all its fields. Those of one stream are in order, the two streams are not.
fn whole(entries: &[JournalEntry]) -> Vec<String> {
    let mut streams = BTreeMap::<Vec<u8>, Vec<String>>::new();
    for entry in entries {
        let fields: Vec<_> = entry.0.iter().map(|(name, value)| format!("{name}={}", value.escape_ascii())).collect();
        streams.entry(entry.field("PRIORITY").to_vec()).or_default().push(fields.join(" "));
    }
    streams.into_values().flatten().collect()
}

/// The text of each stream: where long lines are cut is each monitor's own.
fn joined(entries: &[JournalEntry]) -> Vec<String> {
    let mut streams = BTreeMap::<Vec<u8>, Vec<u8>>::new();
    for entry in entries {
        let marked = entry.field("CONTAINER_PARTIAL_MESSAGE") == b"true";
        assert_eq!(marked, !entry.field("MESSAGE").ends_with(b"\n"));
        streams.entry(entry.field("PRIORITY").to_vec()).or_default().extend_from_slice(entry.field("MESSAGE"));
    }
    streams.into_values().map(|text| text.escape_ascii().to_string()).collect()
}

#[test]
fn journal_entries() {
    let cases: [(&str, Vec<Step>); 6] = [
        ("journal_entries: nothing", vec![]),
        ("journal_entries: lines", vec![Step::out("a\nb\n\nc\n")]),
        ("journal_entries: unfinished line", vec![Step::out("a\nb")]),
        ("journal_entries: both streams", vec![Step::out("out\n"), Step::err("err\n"), Step::out("more")]),
        ("journal_entries: no text", vec![Step::out("a\rb\r\n\0c\n\u{fe}\n")]),
        ("journal_entries: many lines", vec![Step::Lines(Out::Stdout, 2000, 9), Step::Lines(Out::Stderr, 2000, 8)]),
    ];
    for (test, payload) in cases {
        entries(test, &payload, |monitor| monitor, whole);
    }
}

#[test]
fn journal_fields() {
    let hello = [Step::out("hello\n"), Step::out("bye")];
    let cases: [(&str, Change); 5] = [
        ("journal_fields: without a name", |monitor| monitor.without("-n")),
        ("journal_fields: a tag", |monitor| monitor.option("--log-tag", "the tag")),
        ("journal_fields: a tag without a name", |monitor| monitor.without("-n").option("--log-tag", "t")),
        ("journal_fields: newlines", |monitor| monitor.option("-n", "a\nb").option("--log-tag", "t\nu")),
        ("journal_fields: empty", |monitor| monitor.option("-n", "").option("--log-tag", "")),
    ];
    for (test, change) in cases {
        entries(test, &hello, change, whole);
    }
}

#[test]
fn journal_of_long_lines() {
    let lines = |width| vec![Step::Lines(Out::Stdout, 3, width), Step::out("end"), Step::Lines(Out::Stderr, 2, width)];
    for width in [8191, 8193, 16_384, 16_385, 50_000] {
        entries(&format!("journal_of_long_lines: {width}"), &lines(width), |monitor| monitor, joined);
    }
}

#[test]
fn journal_beside_a_file() {
    compare("journal_beside_a_file", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::out("a\nb")]));
        let journal = Journal::listen(sandbox);
        let monitor = sandbox.monitor(tool).also("-l", "journald:").also("-l", "none").option("--log-tag", "t");
        let monitor = journal.reached_by(monitor).start();
        findings.note("exit code", monitor.exit_code());
        monitor.end();
        findings.note("log", monitor.log().lines());
        findings.note("entries", whole(&journal.entries()));
    });
}

#[test]
fn journal_that_is_not_there() {
    compare("journal_that_is_not_there", |sandbox, tool, findings| {
        sandbox.script(&Script::new([Step::Lines(Out::Stdout, 1000, 100)]));
        let monitor = sandbox.monitor(tool).option("-l", "journald");
        let mut monitor =
            monitor.through(&dunnage_testing::journal::in_own_run("/run/none", &sandbox.bundle())).start();
        findings.note("short side", monitor.status());
        findings.note("exit code", monitor.exit_code());
        monitor.end();
    });
}
