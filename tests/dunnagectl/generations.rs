//! Commands for the generations of a service: what is asked, and what is said of the answers.

use std::fs;

use dunnage_testing::Sandbox;
use serde_json::{Value, json};

use crate::fake::{Answer, Client, Fake};
use crate::{ctl, json_lines};

/// Asks at both gates, and starts if it may.
fn stage(fake: &Fake, client: &mut Client, parameters: &Value) {
    if parameters["gate"] == true {
        for (count, point) in ["prepared", "recorded"].into_iter().enumerate() {
            let token = format!("t{count}");
            client.reply(&json!({"gate": {"token": token, "point": point, "build": parameters["build"]}}));
            let answer = fake.wait_for("AnswerGate", count + 1);
            assert_eq!(answer["token"], token);
            if answer["proceed"] == false {
                return client.refuse("LaunchRefused", &json!({"reason": answer["reason"]}));
            }
        }
        client.reply(&json!({"recorded": {"n": 7, "build": parameters["build"]}}));
    }
    client.reply(&json!({"started": {
        "target": "gen-7", "n": 7, "build": parameters["build"], "path": parameters["staged_path"], "tier": {},
        "pid": 4711, "socket": "/run/web.g7.sock", "control_socket": "/run/web.g7.sock.control",
    }}));
}

fn event(client: &mut Client, kind: &str, message: &str) {
    client.reply(&json!({"event": {
        "time": "2026-11-30T18:03:37.0Z", "kind": kind, "target": "gen-7", "exit_code": 3,
        "generation": {"n": 7, "message": message},
    }}));
}

const STAGES: &[(&str, Answer)] = &[("Stage", stage)];

#[test]
fn a_staged_generation_is_told_in_a_line() {
    let sandbox = Sandbox::new();
    let fake = Fake::start(&sandbox, STAGES);
    let staged = ctl(&sandbox).run(&["stage", "web", "7", "/srv/v42", "--tier", "memory_max=1M"]);
    assert_eq!(staged.ok(), "gen-7 (v42) runs as process 4711, its socket is /run/web.g7.sock\n");
    let asked = &fake.calls("Stage")[0];
    let wanted = json!({
        "n": 7, "build": "v42", "staged_path": "/srv/v42", "digest": null, "tier": {"memory_max": "1048576"},
        "gate": false, "gate_timeout_ms": null,
    });
    assert_eq!(*asked, wanted);
    // With --socket the ID is left out.
    let socket = fake.path().to_string_lossy().into_owned();
    let staged = ctl(&sandbox).run(&["--socket", &socket, "stage", "gen-7", "/srv/v42", "--json", "--build", "new"]);
    assert_eq!(json_lines(&staged.ok())[0]["started"]["build"], "new");
    for (args, wanted) in [
        (&["stage", "web", "7"][..], "PATH is missing: dunnagectl stage [OPTIONS] ID N PATH"),
        (&["stage", "web", "seven", "/x"], "\"seven\" is no generation's number: write 7, or gen-7"),
        (&["--socket", &socket, "stage", "web", "7", "/x"], "web and --socket both say which container is meant"),
    ] {
        let text = ctl(&sandbox).fails(args);
        assert!(text.starts_with(wanted), "{text}");
    }
}

#[test]
fn g6_a_gate_command_decides_at_both_gates() {
    let sandbox = Sandbox::new();
    let fake = Fake::start(&sandbox, STAGES);
    let asked = sandbox.bundle().join("asked");
    let command = format!("echo $DUNNAGE_GATE_POINT $DUNNAGE_GATE_BUILD $DUNNAGE_GATE_TOKEN >>{}", asked.display());
    ctl(&sandbox).run(&["stage", "web", "7", "/srv/v42", "--gate-command", &command]).ok();
    assert_eq!(fs::read_to_string(asked).expect("what it was told"), "prepared v42 t0\nrecorded v42 t1\n");
    assert!(fake.calls("AnswerGate").iter().all(|answer| answer["proceed"] == true));
}

#[test]
fn g6_what_a_gate_command_says_is_the_reason() {
    let sandbox = Sandbox::new();
    let fake = Fake::start(&sandbox, STAGES);
    let command = "[ $DUNNAGE_GATE_POINT = prepared ] || { echo the lease is lost >&2; exit 1; }";
    let text = ctl(&sandbox).fails(&["stage", "web", "7", "/srv/v42", "--gate-command", command]);
    assert!(text.ends_with("it was not let start, and nothing runs: the lease is lost"), "{text}");
    assert_eq!(fake.calls("AnswerGate").len(), 2);
}

#[test]
fn g6_a_gate_command_does_not_outlive_the_start() {
    const IMPATIENT: &[(&str, Answer)] = &[("Stage", |fake, client, _| {
        client.reply(&json!({"gate": {"token": "t", "point": "prepared", "build": "b"}}));
        // Once the command runs.
        fake.wait_for("Layout", 1);
        client.refuse("LaunchRefused", &json!({"reason": "the gate was not answered in time"}));
    })];
    let sandbox = Sandbox::new();
    let fake = Fake::start(&sandbox, IMPATIENT);
    let ctl_path = dunnage_testing::dunnagectl::path();
    let pid_file = sandbox.bundle().join("pid");
    let command = format!(
        "echo $$ >{}; {} --socket {} layout; sleep 1000",
        pid_file.display(),
        ctl_path.display(),
        fake.path().display()
    );
    let text = ctl(&sandbox).fails(&["stage", "web", "7", "/srv/v42", "--gate-command", &command]);
    assert!(text.ends_with("nothing runs: the gate was not answered in time"), "{text}");
    let pid: i32 = fs::read_to_string(pid_file).expect("its pid").trim().parse().expect("a number");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{pid} runs still");
}

#[test]
fn g6_a_gate_is_answered_by_hand() {
    let sandbox = Sandbox::new();
    let fake = Fake::start(&sandbox, STAGES);
    let staging = ctl(&sandbox).start(&["stage", "web", "7", "/srv/v42", "--gate"]);
    fake.wait_for("Stage", 1);
    ctl(&sandbox).run(&["gate", "web", "t0", "--proceed"]).ok();
    ctl(&sandbox).run(&["gate", "web", "t1", "--refuse", "not today"]).ok();
    let staged = staging.finish();
    let said = staged.stderr();
    assert!(said.contains("v42 is prepared: dunnagectl gate --socket"), "{said}");
    assert!(said.ends_with("nothing runs: not today\n"), "{said}");
    staged.exited(125);
    ctl(&sandbox).run(&["gate", "web", "t"]).exited(125);
}

#[test]
fn a_generation_that_is_staged_is_waited_for_until_it_is_ready() {
    const READY: &[(&str, Answer)] = &[
        ("Stage", stage),
        ("Events", |fake, client, _| {
            event(client, "subscribed", "");
            fake.wait_for("Stage", 1);
            event(client, "notified", "STATUS=loading");
            event(client, "notified", "READY=1");
        }),
    ];
    const ENDS: &[(&str, Answer)] = &[
        ("Stage", stage),
        ("Events", |fake, client, _| {
            event(client, "subscribed", "");
            fake.wait_for("Stage", 1);
            event(client, "notified", "STATUS=no disk");
            event(client, "exited", "");
        }),
    ];
    const SILENT: &[(&str, Answer)] = &[("Stage", stage), ("Events", |_, client, _| event(client, "subscribed", ""))];
    let args = ["stage", "web", "7", "/srv/v42", "--until-ready"];
    let sandbox = Sandbox::new();
    Fake::start(&sandbox, READY);
    ctl(&sandbox).run(&[&args[..], &["20s"]].concat()).ok();
    let sandbox = Sandbox::new();
    Fake::start(&sandbox, ENDS);
    let text = ctl(&sandbox).fails(&[&args[..], &["20s"]].concat());
    assert!(text.starts_with("gen-7 ended with status 3 before it was ready (it says: no disk)"), "{text}");
    let sandbox = Sandbox::new();
    Fake::start(&sandbox, SILENT);
    let text = ctl(&sandbox).fails(&[&args[..], &["10ms"]].concat());
    assert!(text.starts_with("gen-7 runs, and has not become ready in time"), "{text}");
}

#[test]
fn each_command_asks_for_what_it_is_called_by() {
    const GONE: Answer = |_, client, _| client.reply(&json!({"outcome": "gone"}));
    const ANSWERS: &[(&str, Answer)] = &[
        ("KillGeneration", GONE),
        ("KillHost", GONE),
        ("KillSidecar", GONE),
        ("EmptyHost", GONE),
        ("Empty", |_, client, _| client.reply(&json!({"outcome": "not_ours"}))),
        ("StartSidecar", |_, client, _| client.reply(&json!({"pid": 12}))),
        ("Layout", |_, client, _| {
            client.reply(&json!({"layout": "flat", "canonical_socket": "/run/web.sock", "cgroup": "/sys/web"}));
        }),
        ("Paths", |_, client, _| client.reply(&json!({"socket": "/run/web.g7.sock", "control_socket": null}))),
        ("Status", |_, client, _| {
            let generations = json!([{"n": 6, "tier": {"pids_max": "6"}}, {"n": 7, "tier": {"pids_max": "7"}}]);
            client.reply(&json!({"service": {"generations": generations, "tier": {"pids_max": "5"}}}));
        }),
    ];
    let sandbox = Sandbox::new();
    let fake = Fake::start(&sandbox, ANSWERS);
    let build = sandbox.bundle().join("v8");
    let build = build.to_str().expect("a path");
    fs::write(format!("{build}.manifest.json"), r#"{"tier": {"pids_max": "8"}}"#).expect("a manifest");
    let none = sandbox.bundle().join("v9");
    let none = none.to_str().expect("a path");
    let bundle = sandbox.bundle().join("v10");
    fs::create_dir(&bundle).expect("a bundle");
    let config = r#"{"annotations": {"org.dunnage.tier.pids_max": "10", "other": "1"}}"#;
    fs::write(bundle.join("config.json"), config).expect("its configuration");
    let bundle = bundle.to_str().expect("a path");
    let both = |one: &str, other: &str| json!({"incumbent": {"pids_max": one}, "successor": {"pids_max": other}});
    for (args, method, parameters, said) in [
        (&["ready", "web", "7"][..], "Ready", json!({"n": 7}), ""),
        (&["switch", "web", "gen-7"], "Switch", json!({"n": 7}), ""),
        (&["restore", "web", "7"], "RestoreParent", json!({"n": 7}), ""),
        (
            &["kill", "web", "6", "--timeout", "2s"],
            "KillGeneration",
            json!({"n": 6, "timeout_ms": 2000}),
            "gen-6 is gone: nothing of it is left\n",
        ),
        (
            &["kill", "web", "worker"],
            "KillHost",
            json!({"timeout_ms": 10_000}),
            "worker is gone: nothing of it is left\n",
        ),
        (
            &["kill", "web", "sidecar"],
            "KillSidecar",
            json!({"timeout_ms": 10_000}),
            "sidecar is gone: nothing of it is left\n",
        ),
        (
            &["empty", "web", "6"],
            "Empty",
            json!({"n": 6, "timeout_ms": 10_000}),
            "gen-6 is not the monitor's: a systemd unit owns its processes\n",
        ),
        (
            &["empty", "web", "worker"],
            "EmptyHost",
            json!({"timeout_ms": 10_000}),
            "worker is gone: nothing of it is left\n",
        ),
        (&["sidecar", "web", "7"], "StartSidecar", json!({"n": 7}), "the sidecar runs as process 12\n"),
        (
            &["move", "web", "6", "draining"],
            "Move",
            json!({"child": "gen-6", "cgroup": "draining", "timeout_ms": 10_000}),
            "",
        ),
        (&["hold", "web", "v41", "it leaks"], "Hold", json!({"build": "v41", "reason": "it leaks"}), ""),
        (&["release", "web", "v41"], "Release", json!({"build": "v41"}), ""),
        (&["layout", "web"], "Layout", json!({}), "layout    flat\nsocket    /run/web.sock\ncgroup    /sys/web\n"),
        (&["paths", "web", "7"], "Paths", json!({"n": 7}), "socket    /run/web.g7.sock\n"),
        (&["raise", "web", "6", "pids_max=9"], "RaiseParent", both("6", "9"), ""),
        (&["raise", "web", "7", build], "RaiseParent", both("7", "8"), ""),
        (&["raise", "web", "7", bundle], "RaiseParent", both("7", "10"), ""),
        (&["raise", "web", "7", none], "RaiseParent", both("7", "5"), ""),
    ] {
        let before = fake.calls(method).len();
        assert_eq!(ctl(&sandbox).run(args).ok(), said, "{args:?}");
        assert_eq!(fake.calls(method)[before..], [parameters], "{args:?}");
    }
    for (args, wanted) in [
        (&["empty", "web", "sidecar"][..], "a sidecar is only killed: dunnagectl kill ID sidecar"),
        (&["raise", "web", "5", "none"], "web has no gen-5; dunnagectl status lists those it has"),
        (&["raise", "web", "6", "pids"], "\"pids\" is no limit"),
        (&["kill", "web", "everything"], "\"everything\" is no generation's number"),
    ] {
        let text = ctl(&sandbox).fails(args);
        assert!(text.starts_with(wanted), "{text}");
    }
}
