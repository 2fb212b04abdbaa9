//! Runs a script under both monitors and compares what it found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write as _};
use std::path::Path;

use dunnage_testing::{Facts, Monitor, Sandbox, Tool};

use crate::intended;

/// What a case changes in the usual command line.
pub(crate) type Change = fn(Monitor<'_>) -> Monitor<'_>;

/// What a script found under one monitor.
pub(crate) struct Findings {
    found: BTreeMap<String, String>,
    hidden: Vec<(String, String)>,
}

impl Findings {
    fn new(sandbox: &Sandbox, tool: &Tool) -> Self {
        let path = |path: &Path| path.display().to_string();
        let hidden = vec![
            (path(sandbox.root()), "DIR".to_owned()),
            (path(&Tool::fake_runtime()), "RUNTIME".to_owned()),
            (path(&tool.path), "MONITOR".to_owned()),
        ];
        Self { found: BTreeMap::new(), hidden }
    }

    /// From here on this text is replaced by the name: it differs from run to run.
    pub(crate) fn hide(&mut self, text: &impl ToString, name: &str) {
        self.hidden.push((text.to_string(), name.to_owned()));
    }

    /// Notes something under a name.
    pub(crate) fn note(&mut self, name: impl Into<String>, value: impl Debug) {
        let mut value = format!("{value:?}");
        for (text, name) in &self.hidden {
            value = replace_word(&value, text, name);
        }
        let name = name.into();
        let before = self.found.insert(name.clone(), value);
        assert!(before.is_none(), "{name} is noted twice");
    }

    /// Notes what a process was started with.
    pub(crate) fn note_facts(&mut self, who: &str, facts: &Facts) {
        // The socket's path is the monitor's own affair.
        let mut argv = facts.argv.clone();
        if let Some(option) = argv.iter().position(|word| word == "--console-socket") {
            "SOCKET".clone_into(&mut argv[option + 1]);
        }
        self.note(format!("{who}: argv"), argv);
        self.note(format!("{who}: env"), &facts.env);
        self.note(format!("{who}: cwd"), &facts.cwd);
        let status = |name: &str| facts.status.get(name).cloned().unwrap_or_default();
        for name in ["Umask", "NoNewPrivs", "CapEff"] {
            self.note(format!("{who}: {name}"), status(name));
        }
        for name in ["SigBlk", "SigIgn", "SigCgt"] {
            self.note(format!("{who}: {name}"), facts.signals(name));
        }
        self.note(format!("{who}: oom_score_adj"), facts.oom_score_adj);
        for (number, fd) in &facts.fds {
            // The number of a pipe or socket is its own.
            let target = fd.target.split_once(":[").map_or(fd.target.as_str(), |(kind, _)| kind);
            let target = if target.starts_with("/dev/pts/") { "/dev/pts" } else { target };
            self.note(format!("{who}: descriptor {number}"), format!("{target}, {}, flags {}", fd.mode, fd.flags));
        }
        self.note(format!("{who}: leads its group"), facts.pgid == facts.pid);
        self.note(format!("{who}: leads its session"), facts.sid == facts.pid);
    }

    /// Notes what a process saw in the sandbox's directory.
    pub(crate) fn note_paths(&mut self, name: &str, tree: BTreeMap<String, String>) {
        for (path, what) in tree {
            self.note(format!("{name}: {path}"), what);
        }
    }

    /// Notes what is in the sandbox's directory.
    pub(crate) fn note_tree(&mut self, name: &str, sandbox: &Sandbox) {
        self.note_paths(name, dunnage_testing::tree(sandbox.root()).expect("the sandbox can be listed"));
    }
}

/// Replaces a text where it does not go on as a number: a pid must not be found in a longer one, or in an id.
fn replace_word(value: &str, text: &str, name: &str) -> String {
    let mut replaced = String::new();
    let mut rest = value;
    while let Some(at) = rest.find(text) {
        let (before, after) = (&rest[..at], &rest[at + text.len()..]);
        let longer =
            before.ends_with(|c: char| c.is_alphanumeric()) || after.starts_with(|c: char| c.is_alphanumeric());
        replaced.push_str(before);
        replaced.push_str(if longer && text.parse::<i32>().is_ok() { text } else { name });
        rest = after;
    }
    replaced + rest
}

/// Runs the script under conmon and under dunnage, each in a sandbox of its own, and compares.
pub(crate) fn compare(test: &str, script: impl Fn(&Sandbox, &Tool, &mut Findings)) {
    let run = |tool: &Tool| {
        let sandbox = Sandbox::new();
        let mut findings = Findings::new(&sandbox, tool);
        script(&sandbox, tool, &mut findings);
        println!("{test}: {}", tool.path.display());
        findings.found.iter().for_each(|(name, value)| println!("  {name}: {value}"));
        findings.found
    };
    let tool = Tool::under_test();
    let conmon = run(&Tool::conmon());
    let dunnage = run(&tool);
    let mut report = String::new();
    for name in conmon.keys().chain(dunnage.keys()).collect::<BTreeSet<_>>() {
        let side =
            |findings: &BTreeMap<String, String>| findings.get(name).map_or("nothing", String::as_str).to_owned();
        let (conmon, dunnage) = (side(&conmon), side(&dunnage));
        let row = if tool.is_referee() { None } else { intended::find(test, name, &conmon) };
        if row.map_or(dunnage == conmon, |row| row.is(&dunnage)) {
            continue;
        }
        let _ = writeln!(report, "{name}\n  conmon:  {conmon}\n  dunnage: {dunnage}");
        if let Some(row) = row {
            let _ = writeln!(report, "  intended is {} ({})", row.dunnage, row.what);
        }
    }
    assert!(report.is_empty(), "{test}: conmon and {} differ\n{report}", tool.path.display());
}

#[test]
fn pids_are_hidden_as_words() {
    assert_eq!(replace_word("345 [345] 0123456 345a", "345", "PID"), "PID [PID] 0123456 345a");
    assert_eq!(replace_word("/tmp/x/bundle", "/tmp/x", "DIR"), "DIR/bundle");
}
