//! The control socket of a container that a real runtime made.

use std::fs;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Bundle, Running, Runtime};
use serde_json::{Value, json};

use dunnage_testing::{Caller, decode};

/// A shell script of the container's that says in a file of that name when it got SIGUSR1.
fn noter(name: &str) -> String {
    format!("trap \"echo got >>/{name}\" USR1; echo >/{name}.ready; while :; do sleep 0.1; done")
}

/// A process in a container, as runtimes take it.
fn process(args: &[&str]) -> Value {
    json!({"args": args, "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}})
}

/// The container, running, and a client.
fn start(bundle: &Bundle) -> (Running<'_>, Caller) {
    let socket = bundle.sandbox().root().join("control");
    let mut monitor = bundle.monitor().option("--control-socket", &socket).start();
    monitor.pid();
    let caller = Caller::connect(&socket);
    bundle.start();
    (monitor, caller)
}

/// Waits for files of the container's.
fn await_files(bundle: &Bundle, names: &[&str]) {
    let root = bundle.sandbox().bundle().join("rootfs");
    wait::eventually(Deadline::usual(), &names.join(", "), || {
        names.iter().all(|name| fs::read(root.join(name)).is_ok_and(|text| text.ends_with(b"\n")))
    });
}

#[test]
fn k5_status_tells_the_limits_as_the_kernel_writes_them() {
    let mut bundle = Bundle::new(Runtime::Runc, "read line");
    bundle.change(|config| {
        config["linux"]["resources"] = json!({
            "memory": {"limit": 64 << 20},
            "pids": {"limit": 77},
            "cpu": {"quota": 50_000, "period": 100_000},
        });
    });
    let socket = bundle.sandbox().root().join("control");
    let mut monitor = bundle.monitor().flag("-i").option("--control-socket", &socket).start();
    monitor.pid();
    let mut caller = Caller::connect(&socket);
    let limits = caller.call("Status", &json!({}))["limits"].clone();
    let expected = json!({"memory_max": "67108864", "pids_max": "77", "cpu_max": "50000 100000"});
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&limits[name], value, "{limits}");
    }
    bundle.start();
    bundle.kill("KILL");
    monitor.exit_code();
    monitor.end();
    bundle.delete();
}

#[test]
fn k5_without_limits_status_says_max() {
    let mut bundle = Bundle::new(Runtime::Runc, "while :; do sleep 1; done");
    bundle.change(|config| config["linux"]["resources"] = json!({}));
    let (monitor, mut caller) = start(&bundle);
    let limits = caller.call("Status", &json!({}))["limits"].clone();
    for name in ["memory_max", "pids_max"] {
        assert_eq!(limits[name], "max", "{limits}");
    }
    assert_eq!(limits["cpu_max"], "max 100000", "{limits}");
    bundle.kill("KILL");
    monitor.exit_code();
    monitor.end();
    bundle.delete();
}

#[test]
fn r9_a_signal_to_all_reaches_each_process_of_the_container() {
    // A daemon of its own session, which the container's init takes over, and a child.
    let script = format!("sh /child.sh & (setsid sh /daemon.sh &); {}", noter("main"));
    let bundle = Bundle::new(Runtime::Runc, &script);
    for name in ["child", "daemon", "exec", "below"] {
        let path = bundle.sandbox().bundle().join("rootfs").join(format!("{name}.sh"));
        fs::write(path, noter(name)).expect("a script");
    }
    let (monitor, mut caller) = start(&bundle);
    let mut execer = Caller::connect(&bundle.sandbox().root().join("control"));
    execer.ask("ExecSync", &json!({"process": process(&["sh", "-c", "sh /below.sh & . /exec.sh"])}));
    let ready = ["main", "child", "daemon", "exec", "below"].map(|name| format!("{name}.ready"));
    await_files(&bundle, &ready.each_ref().map(String::as_str));
    wait::eventually(Deadline::usual(), "the exec", || {
        caller.call("Status", &json!({}))["processes"].as_array().is_some_and(|processes| processes.len() == 2)
    });

    caller.call("Signal", &json!({"target": "exec-1", "signal": "USR1", "all": true}));
    await_files(&bundle, &["exec", "below"]);
    let root = bundle.sandbox().bundle().join("rootfs");
    for name in ["main", "child", "daemon"] {
        assert!(!root.join(name).exists(), "{name} got the exec's signal");
    }
    caller.call("Signal", &json!({"target": "container", "signal": "USR1", "all": true}));
    await_files(&bundle, &["main", "child", "daemon"]);
    wait::eventually(Deadline::usual(), "the second", || {
        ["exec", "below"].iter().all(|name| fs::read_to_string(root.join(name)).is_ok_and(|text| text == "got\ngot\n"))
    });

    let refused = caller.refusal("Signal", &json!({"target": "exec-9", "signal": "USR1", "all": true}));
    assert_eq!(refused, ("org.dunnage.shim.NotFound".to_owned(), json!({"target": "exec-9"})));
    caller.call("Signal", &json!({"target": "container", "signal": "KILL", "all": true}));
    assert_eq!(execer.answer()["parameters"]["exit_code"], 137);
    assert_eq!(monitor.exit_code(), "137");
    monitor.end();
    bundle.delete();
}

#[test]
fn r9_without_a_pid_namespace_sigkill_to_all_leaves_nothing_of_the_container() {
    let script = format!("(setsid sh -c 'while :; do setsid sleep 1000 & sleep 0.01; done' &); {}", noter("main"));
    let bundle = Bundle::new(Runtime::Runc, &script).host_pids();
    let (monitor, mut caller) = start(&bundle);
    await_files(&bundle, &["main.ready"]);
    let mut alone = caller.call("ExecSync", &json!({"process": process(&["sh", "-c", "cat /proc/self/cgroup"])}));
    let cgroup = decode(&alone["stdout"].take());
    caller.call("Signal", &json!({"target": "container", "signal": "KILL", "all": true}));
    assert_eq!(monitor.exit_code(), "137");
    // All of it was in the cgroup.
    let left = || {
        let processes = fs::read_dir("/proc").expect("/proc").filter_map(|entry| Some(entry.ok()?.path()));
        let inside = processes.filter(|path| fs::read_to_string(path.join("cgroup")).is_ok_and(|text| text == cgroup));
        inside.filter(|path| fs::read(path.join("cmdline")).is_ok_and(|line| !line.is_empty())).count()
    };
    wait::eventually(Deadline::usual(), "the end of all", || left() == 0);
    monitor.end();
    bundle.delete();
}
