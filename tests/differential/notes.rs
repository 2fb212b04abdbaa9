//! What the tests of execs, restores and timeouts start, and what they note of it.

use std::fs;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Event, Facts, Monitor, Running, Sandbox, Script, Step, script};

use crate::compare::{Change, Findings, compare};

/// An exec in both dialects.
pub(crate) const DIALECTS: [(&str, Change); 2] =
    [("API 1", |monitor| monitor.exec()), ("legacy", |monitor| monitor.exec().legacy())];

/// What a monitor can be started for.
pub(crate) const JOBS: [(&str, Change); 3] = [
    ("create", |monitor| monitor),
    ("exec", |monitor| monitor.exec()),
    ("restore", |monitor| monitor.option("--restore", "/c")),
];

pub(crate) fn with_bundle(monitor: Monitor<'_>) -> Monitor<'_> {
    let bundle = monitor.sandbox().bundle();
    monitor.option("-b", bundle)
}

/// Reports what it sees, and lives until the event `end`.
pub(crate) fn reporting() -> Script {
    Script::new([Step::report("payload.json"), Step::fire("reported"), Step::wait("end"), Step::Exit(3)])
}

/// Waits for the reports of what was started with [`reporting`]: the runtime's facts and its process's.
pub(crate) fn reports(
    monitor: &mut Running<'_>,
    sandbox: &Sandbox,
    reported: &Event,
    findings: &mut Findings,
) -> (Facts, Facts) {
    let pid = monitor.pid();
    reported.wait();
    let runtime: Facts = sandbox.report(script::RUNTIME_FACTS);
    let payload = sandbox.report("payload.json");
    findings.hide(&pid, "PAYLOAD");
    findings.hide(&runtime.pid, "RUNTIME-PID");
    findings.hide(&monitor.started.pid(), "SHORT-SIDE");
    findings.hide(&monitor.long().pid(), "LONG-SIDE");
    (runtime, payload)
}

/// Starts something and notes what it was started with.
pub(crate) fn sees(test: &str, change: Change) {
    compare(test, |sandbox, tool, findings| {
        let (reported, end) = (sandbox.event("reported"), sandbox.event("end"));
        sandbox.script(&reporting());
        let mut monitor = change(sandbox.monitor(tool)).start();
        let (runtime, payload) = reports(&mut monitor, sandbox, &reported, findings);
        findings.note_facts("runtime", &runtime);
        findings.note("runtime: is the monitor's child", runtime.ppid == monitor.long().pid());
        findings.note("payload: descriptors", payload.fds.keys().collect::<Vec<_>>());
        findings.note("payload: environment", &payload.env);
        findings.note_tree("running", sandbox);
        end.fire();
        note_end(&mut monitor, sandbox, findings);
    });
}

/// The PID that the runtime wrote, once it has, is another one each time.
pub(crate) fn hide_payload(sandbox: &Sandbox, findings: &mut Findings) {
    let pid = wait::file_exists(&sandbox.pid_file(), Deadline::usual());
    findings.hide(&String::from_utf8(pid).expect("a pid"), "PAYLOAD");
}

/// Notes what is on the pipes and in the files once all has ended.
pub(crate) fn note_end(monitor: &mut Running<'_>, sandbox: &Sandbox, findings: &mut Findings) {
    findings.note("messages", monitor.messages());
    findings.note("short side", monitor.status());
    monitor.end();
    findings.note("exit file", fs::read_to_string(sandbox.exit_file()).ok());
    findings.note("persistent exit file", fs::read_to_string(sandbox.persist().join("exit")).ok());
    findings.note("log", monitor.log().lines());
    findings.note("stdout", monitor.stdout());
    findings.note("stderr", monitor.stderr());
    findings.note_tree("left", sandbox);
}

/// Of a failed exec the words may differ, and so does what is left: see the table.
pub(crate) fn note_failure(monitor: &mut Running<'_>, sandbox: &Sandbox, findings: &mut Findings) {
    findings.note("messages", monitor.messages());
    findings.note("short side", monitor.status());
    monitor.end();
    findings.note_tree("left", sandbox);
}

/// Notes all that the caller of an exec with `--sync` gets. It reads these to their ends before anything else.
pub(crate) fn note_sync(monitor: &mut Running<'_>, sandbox: &Sandbox, findings: &mut Findings) {
    findings.note("stdout", monitor.stdout());
    findings.note("stderr", monitor.stderr());
    findings.note("messages", monitor.messages());
    findings.note("status", monitor.status());
    findings.note("log", monitor.log().lines());
    findings.note_tree("left", sandbox);
}
