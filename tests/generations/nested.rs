//! Nested generations: containers that a real runtime makes of staged bundles. Those need cgroup v2 alone, so that one
//! test boots a small virtual machine and runs the others, which are ignored elsewhere, in it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Process, Runtime, Tool, vm};
use nix::libc;
use serde_json::{Value, json};

use crate::deploy::{deploy, said};
use crate::service::{Client, Service, Shim};

/// Each of these tests with each runtime.
macro_rules! with_runc_and_crun {
    ($($test:ident)+) => {
        mod runc {
            $(#[test] #[ignore = "run by in_a_virtual_machine"] fn $test() { super::$test(super::Runtime::Runc); })+
        }
        mod crun {
            $(#[test] #[ignore = "run by in_a_virtual_machine"] fn $test() { super::$test(super::Runtime::Crun); })+
        }
    };
}

with_runc_and_crun! {
    g3_a_staged_bundle_runs_in_its_cgroup_on_its_socket
    g7_a_bundle_that_cannot_be_created_leaves_nothing
    g26_a_sidecar_is_a_container_of_the_same_bundle
    g29_a_container_outlives_its_shim
    g16_a_container_with_users_of_its_own_owns_its_socket
    g3_a_program_that_ends_at_once_was_started
    g16_a_deploy_replaces_one_container_by_another
}

#[test]
fn in_a_virtual_machine() {
    let own = ["--ignored", "nested::", "--test-threads=2"];
    let stdout = vm::run_own_tests(&[(wait::SLOWNESS, "4")], &own);
    assert!(stdout.contains("test result: ok. 21 passed"), "{stdout}");
}

#[test]
fn g33_nested_is_refused_on_a_hybrid_host() {
    if !Path::new("/sys/fs/cgroup/unified").is_dir() {
        eprintln!("skipped: this is no hybrid host");
        return;
    }
    let service = nested(Runtime::Runc.path());
    let output = service.try_start();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("/sys/fs/cgroup is no cgroup2 file system"), "{stderr}");
}

/// A service whose containers are made by that.
fn nested(runtime: &str) -> Service {
    let service = Service::new();
    let root = service.path("runtime");
    service.configure(&json!({"layout": "nested", "runtime": {"path": runtime, "args": ["--root", root]}}));
    service
}

/// A service whose runtime is a script around runc, which is called with what `$@` is in the end. `$sub` is what is to be
/// done, and `$bundle` where for a creation.
fn wrapped(script: impl FnOnce(&Service) -> String) -> Service {
    let service = nested("/nowhere");
    let script = script(&service);
    let path = service.path("wrapper");
    // --root ROOT --log LOG --log-format json SUBCOMMAND --bundle BUNDLE
    let text = format!("#!/bin/sh\nsub=$7 bundle=$9\n{script}\nexec {} \"$@\"\n", Runtime::Runc.path());
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let args = json!(["--root", service.path("runtime")]);
    service.configure(&json!({"layout": "nested", "runtime": {"path": path, "args": args}}));
    service
}

/// A staged bundle of the tests' server, with these arguments.
fn bundle(service: &Service, name: &str, args: &[&str], change: impl FnOnce(&mut Value)) -> PathBuf {
    let bundle = service.path("builds").join(name);
    fs::create_dir_all(bundle.join("rootfs/bin")).unwrap();
    fs::copy(Tool::generation_server(), bundle.join("rootfs/bin/app")).unwrap();
    let _ = fs::remove_file(bundle.join("config.json"));
    let made = Command::new(Runtime::Runc.path()).arg("spec").current_dir(&bundle).status().unwrap();
    assert!(made.success());
    let mut config: Value = serde_json::from_slice(&fs::read(bundle.join("config.json")).unwrap()).unwrap();
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!([&["/bin/app"], args].concat());
    change(&mut config);
    fs::write(bundle.join("config.json"), config.to_string()).unwrap();
    bundle
}

fn stage(shim: &Shim, number: u64, bundle: &Path) -> Result<Value, (String, Value)> {
    let build = bundle.file_name().unwrap().to_str().unwrap();
    let parameters = json!({"n": number, "build": build, "staged_path": bundle});
    shim.launch("Stage", &parameters).map(|answer| answer["started"].clone())
}

fn socket(service: &Service, number: u64) -> PathBuf {
    service.path("run").join(format!("g{number}/app.sock"))
}

/// The containers that the runtime knows.
fn containers(service: &Service, runtime: &str) -> String {
    let mut list = Command::new(runtime);
    list.arg("--root").arg(service.path("runtime")).args(["list", "-q"]);
    String::from_utf8(list.output().unwrap().stdout).unwrap()
}

/// Waits until nothing is left of any generation.
fn is_clean(service: &Service, runtime: &str) {
    let left = || {
        let mut left = service.names_in_run();
        left.extend(containers(service, runtime).lines().map(str::to_owned));
        let cgroups = ["gen-1", "gen-7", "gen-8", "role-sidecar"].into_iter();
        left.extend(cgroups.filter(|name| service.child(name).exists()).map(str::to_owned));
        left
    };
    assert!(wait::whether(Deadline::usual(), || left().is_empty()), "these are left: {:?}", left());
}

fn g3_a_staged_bundle_runs_in_its_cgroup_on_its_socket(runtime: Runtime) {
    let service = nested(runtime.path());
    let shim = service.start();
    let seven = bundle(&service, "b7", &["say=hello\n"], |config| {
        config["annotations"]["org.dunnage.tier.memory_max"] = json!("67108864");
        config["annotations"]["org.dunnage.tier.memory_high"] = json!("50331648");
        config["annotations"]["org.dunnage.tier.cpu_max"] = json!("50000 100000");
        config["annotations"]["org.dunnage.tier.cpu_weight"] = json!("77");
        config["annotations"]["org.dunnage.tier.pids_max"] = json!("30");
        config["linux"]["resources"]["memory"] = json!({"limit": 1, "swap": 2});
        config["linux"]["cgroupsPath"] = json!("/elsewhere");
    });
    let started = stage(&shim, 7, &seven).unwrap();
    let pid = i32::try_from(started["pid"].as_i64().unwrap()).unwrap();
    assert_eq!(started["socket"], socket(&service, 7).to_str().unwrap());
    let mut client = Client::connect(&socket(&service, 7));
    assert_eq!(client.ask("who"), ("7".to_owned(), "1 b7".to_owned()), "the first of its PID namespace");
    let (_, environment) = client.ask("env");
    for variable in
        ["DUNNAGE_SOCKET=/run/dunnage/app.sock", "NOTIFY_SOCKET=/run/dunnage/app.sock.control", "DUNNAGE_BUILD=b7"]
    {
        assert!(environment.split(' ').any(|own| own == variable), "{environment}");
    }
    assert_eq!(service.pids_in("gen-7"), [pid]);
    for (file, value) in [
        ("memory.max", "67108864"),
        ("memory.high", "50331648"),
        ("cpu.max", "50000 100000"),
        ("cpu.weight", "77"),
        ("pids.max", "30"),
    ] {
        let text = fs::read_to_string(service.child("gen-7").join(file)).unwrap();
        assert_eq!(text.trim(), value, "{file}");
    }
    service.await_log("hello");

    // The container does not know where it is.
    shim.call("Move", &json!({"child": "gen-7", "cgroup": "draining"}));
    assert_eq!((service.pids_in("draining"), service.pids_in("gen-7")), (vec![pid], vec![]));

    // Side by side with the next one, which takes over.
    let eight = bundle(&service, "b8", &["fork"], |_| {});
    stage(&shim, 8, &eight).unwrap();
    Client::connect(&socket(&service, 8)).ask("who");
    shim.call("Switch", &json!({"n": 8}));
    assert_eq!(Client::connect(&service.canonical()).ask("who").0, "8");
    assert_eq!(client.ask("x").0, "7", "connections go on");
    let gone = shim.call("KillGeneration", &json!({"n": 7, "timeout_ms": 60_000}));
    assert_eq!(gone["outcome"], "gone");
    wait::eventually(Deadline::usual(), "only the container of generation 8", || {
        containers(&service, runtime.path()).trim() == "web-g8"
    });
    let names = || service.names_in_run();
    wait::eventually(Deadline::usual(), "the bundle of generation 7 removed", || {
        !names().iter().any(|name| name.contains("g7"))
    });
    assert!(!service.child("gen-7").exists() && !service.child("draining").exists());
    // Also what it forked.
    assert_eq!(service.pids_in("gen-8").len(), 2);
    shim.process.signal(libc::SIGTERM);
    shim.process.wait_end(Deadline::usual(), "the shim");
    is_clean(&service, runtime.path());
    assert!(!service.child("gen-8").exists());
}

fn g16_a_deploy_replaces_one_container_by_another(runtime: Runtime) {
    let service = nested(runtime.path());
    let shim = service.start();
    for number in ["1", "7"] {
        let build = format!("b{number}");
        let output = deploy(&service, &[], &bundle(&service, &build, &[], |_| {}));
        assert!(output.status.success(), "{}", said(&output));
        let (generation, who) = Client::connect(&service.canonical()).ask("who");
        assert_eq!((generation, who), (shim.status()["current"].to_string(), format!("1 {build}")));
    }
    assert_eq!(containers(&service, runtime.path()), "web-g2\n");
    assert!(!service.child("gen-1").exists());
    let output = deploy(&service, &[], &bundle(&service, "dies", &["exit=3"], |_| {}));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("undone: all is as it was, gen-2 serves\n"), "{}", said(&output));
    assert_eq!(Client::connect(&service.canonical()).ask("who").1, "1 b7");
    shim.call("KillGeneration", &json!({"n": 2, "timeout_ms": 10_000}));
    is_clean(&service, runtime.path());
}

fn g7_a_bundle_that_cannot_be_created_leaves_nothing(runtime: Runtime) {
    let service = nested(runtime.path());
    let shim = service.start();
    let path = bundle(&service, "b1", &[], |config| config["process"]["args"] = json!(["/bin/none"]));
    let (error, parameters) = stage(&shim, 1, &path).unwrap_err();
    let reason = parameters["reason"].as_str().unwrap();
    assert_eq!(error, "LaunchFailed", "{reason}");
    assert!(reason.starts_with("cannot create container web-g1: the runtime exited with status"), "{reason}");
    assert!(reason.contains("/bin/none") && !reason.contains('\n'), "the runtime's own words: {reason}");
    is_clean(&service, runtime.path());
    // What is found wrong before that does not use the number up.
    let wrong = bundle(&service, "b7", &[], |config| config["process"]["terminal"] = json!(true));
    let (error, _) = stage(&shim, 7, &wrong).unwrap_err();
    assert_eq!(error, "LaunchRefused");
    symlink("b7", service.path("builds/live")).unwrap();
    let (error, _) = stage(&shim, 7, &service.path("builds/live")).unwrap_err();
    assert_eq!(error, "LaunchRefused");
    stage(&shim, 7, &bundle(&service, "b7", &[], |_| {})).unwrap();
}

fn g26_a_sidecar_is_a_container_of_the_same_bundle(runtime: Runtime) {
    let service = nested(runtime.path());
    service.configure(&json!({"sidecar": {"args": ["idle", "say=sidecar\n"]}}));
    let shim = service.start();
    stage(&shim, 7, &bundle(&service, "b7", &[], |_| {})).unwrap();
    let started = shim.call("StartSidecar", &json!({"n": 7}));
    let pid = i32::try_from(started["pid"].as_i64().unwrap()).unwrap();
    assert_eq!(service.pids_in("role-sidecar"), [pid]);
    service.await_log("sidecar");
    // G27: it comes back, under the same name.
    Process::open(pid).unwrap().signal(libc::SIGKILL);
    wait::eventually(
        Deadline::usual(),
        "another sidecar",
        || matches!(service.pids_in("role-sidecar")[..], [next] if next != pid),
    );
    let gone = shim.call("KillSidecar", &json!({"timeout_ms": 60_000}));
    assert_eq!(gone["outcome"], "gone");
    wait::eventually(Deadline::usual(), "only the generation's container", || {
        containers(&service, runtime.path()).trim() == "web-g7"
    });
    assert!(!service.child("role-sidecar").exists());
    assert_eq!(Client::connect(&socket(&service, 7)).ask("x").0, "7");
}

fn g29_a_container_outlives_its_shim(runtime: Runtime) {
    let service = nested(runtime.path());
    let shim = service.start();
    let started = stage(&shim, 7, &bundle(&service, "b7", &[], |_| {})).unwrap();
    let mut client = Client::connect(&socket(&service, 7));
    shim.kill();
    assert_eq!(client.ask("x").0, "7");
    let shim = service.start();
    let status = shim.generation(7);
    assert_eq!((&status["state"], &status["pid"]), (&json!("running"), &started["pid"]), "{status}");
    client.ask("say after\\n");
    service.await_log("after");
    // One that had no time to have the runtime forget what it knew nothing of any more.
    shim.kill();
    let forgotten = service.path("run/web.g3.bundle");
    fs::create_dir(&forgotten).unwrap();
    let shim = service.start();
    wait::eventually(Deadline::usual(), "the forgotten bundle removed", || !forgotten.exists());
    assert!(service.path("run/web.g7.bundle").exists());
    let gone = shim.call("KillGeneration", &json!({"n": 7, "timeout_ms": 60_000}));
    assert_eq!(gone["outcome"], "gone");
    is_clean(&service, runtime.path());
}

fn g16_a_container_with_users_of_its_own_owns_its_socket(runtime: Runtime) {
    let service = nested(runtime.path());
    // Its root must find the way.
    for directory in [service.path(""), service.path("builds"), service.path("run")] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let shim = service.start();
    let path = bundle(&service, "b7", &[], |config| {
        config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({"type": "user"}));
        let mappings = json!([{"containerID": 0, "hostID": 100_000, "size": 1000}]);
        config["linux"]["uidMappings"] = mappings.clone();
        config["linux"]["gidMappings"] = mappings;
        config["process"]["user"] = json!({"uid": 3, "gid": 4});
    });
    // Mount points are made there, by its own root.
    let owned = Command::new("chown").args(["-R", "100000:100000"]).arg(path.join("rootfs")).status().unwrap();
    assert!(owned.success());
    stage(&shim, 7, &path).unwrap();
    Client::connect(&socket(&service, 7)).ask("who");
    shim.call("Ready", &json!({"n": 7}));
    let socket = fs::metadata(socket(&service, 7)).unwrap();
    assert_eq!((socket.uid(), socket.gid(), socket.mode() & 0o777), (100_003, 100_004, 0o660));
    let gone = shim.call("KillGeneration", &json!({"n": 7, "timeout_ms": 60_000}));
    assert_eq!(gone["outcome"], "gone");
    is_clean(&service, runtime.path());
}

fn g3_a_program_that_ends_at_once_was_started(runtime: Runtime) {
    let service = nested(runtime.path());
    let shim = service.start();
    let mut events = shim.caller();
    events.ask_for_more("Events", &json!({}));
    for number in [1, 7] {
        stage(&shim, number, &bundle(&service, &format!("b{number}"), &["exit=3"], |_| {})).unwrap();
        let exited = events.event_of("exited");
        assert_eq!((&exited["generation"]["n"], &exited["exit_code"]), (&json!(number), &json!(3)), "{exited}");
    }
    is_clean(&service, runtime.path());
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g30_a_cold_start_runs_the_bundle_that_the_link_leads_to() {
    let service = nested(Runtime::Runc.path());
    let live = service.path("live");
    service.configure(&json!({"live_link": live}));
    symlink(bundle(&service, "b7", &[], |_| {}), &live).unwrap();
    let shim = service.start();
    let started = shim.launch("Start", &json!({"n": 7})).unwrap()["started"].clone();
    assert_eq!(started["build"], "b7", "{started}");
    assert_eq!(Client::connect(&socket(&service, 7)).ask("who").1, "1 b7");
    // G26: there is no staged path that a sidecar could be from.
    let (error, parameters) = shim.refusal("StartSidecar", &json!({"n": 7}));
    assert!(["LaunchRefused", "NotFound", "NotSwitchable"].contains(&error.as_str()), "{error} {parameters}");
    assert!(!service.child("role-sidecar").exists());
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g4_the_digest_of_a_bundle_is_that_of_its_config() {
    let service = nested(Runtime::Runc.path());
    let shim = service.start();
    let path = bundle(&service, "b7", &[], |_| {});
    let sum = Command::new("sha256sum").arg(path.join("config.json")).output().unwrap().stdout;
    let digest = format!("sha256:{}", String::from_utf8_lossy(&sum[..64]));
    let staged = |digest: &str| {
        let parameters = json!({"n": 7, "build": "b7", "staged_path": path, "digest": digest});
        shim.launch("Stage", &parameters)
    };
    let (error, parameters) = staged(&format!("sha256:{}", "0".repeat(64))).unwrap_err();
    assert_eq!(error, "LaunchRefused");
    assert!(parameters["reason"].as_str().unwrap().contains(&digest), "{parameters}");
    assert_eq!(staged(&digest).unwrap()["started"]["digest"], digest);
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g3_a_container_in_another_cgroup_is_never_started() {
    let service = wrapped(|_| "[ $sub != create ] || sed -i 's,/gen-1\",/other\",' $bundle/config.json".to_owned());
    let shim = service.start();
    let (error, parameters) = stage(&shim, 1, &bundle(&service, "b1", &["say=ran\n"], |_| {})).unwrap_err();
    let reason = parameters["reason"].as_str().unwrap();
    assert_eq!(error, "LaunchFailed", "{reason}");
    assert!(reason.contains("has put the container into cgroup") && reason.contains("/other, not"), "{reason}");
    is_clean(&service, Runtime::Runc.path());
    assert_eq!(service.log(), "");
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g7_a_runtime_that_does_not_come_back_from_start_leaves_it_uncertain() {
    let service = wrapped(|_| "[ $sub != start ] || exec sleep 1000".to_owned()).option("--runtime-timeout", "10");
    let shim = service.start();
    let (error, parameters) = stage(&shim, 1, &bundle(&service, "b1", &[], |_| {})).unwrap_err();
    let reason = parameters["reason"].as_str().unwrap();
    assert_eq!(error, "StartUncertain", "{reason}");
    assert!(reason.contains("cannot start container web-g1: the runtime did not end within 10s"), "{reason}");
    let gone = shim.call("Empty", &json!({"n": 1, "timeout_ms": 60_000}));
    assert_eq!(gone["outcome"], "gone");
    is_clean(&service, Runtime::Runc.path());
}

/// Exists once there is something in the cgroup.
fn in_it(service: &Service) -> String {
    service.path("in-it").display().to_string()
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g7_what_a_runtime_that_fails_leaves_in_the_cgroup_is_killed_before_the_answer() {
    let service = wrapped(|service| {
        let enter = format!("echo $$ > {}/cgroup.procs && echo > {}", service.child("gen-1").display(), in_it(service));
        let wait = format!("until [ -e {} ]; do sleep 0.1; done", in_it(service));
        format!("[ $sub != create ] || {{ sh -c '{enter}; exec sleep 1000' & {wait}; exit 3; }}")
    });
    let shim = service.start();
    let (error, parameters) = stage(&shim, 1, &bundle(&service, "b1", &[], |_| {})).unwrap_err();
    assert_eq!(error, "LaunchFailed", "{parameters}");
    assert!(service.path("in-it").exists());
    assert_eq!(service.pids_in("gen-1"), [] as [i32; 0]);
    is_clean(&service, Runtime::Runc.path());
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn r12_a_creation_that_hangs_is_killed_at_its_deadline() {
    let runc = Runtime::Runc.path();
    let script = format!("[ $sub != create ] || {{ {runc} \"$@\"; sleep 1000; }}");
    let service = wrapped(|_| script).option("--runtime-timeout", "10");
    let shim = service.start();
    let (error, parameters) = stage(&shim, 1, &bundle(&service, "b1", &["say=ran\n"], |_| {})).unwrap_err();
    let reason = parameters["reason"].as_str().unwrap();
    assert_eq!(error, "LaunchFailed", "{reason}");
    assert!(reason.contains("the runtime did not end within 10s and was killed"), "{reason}");
    is_clean(&service, runc);
    assert_eq!(service.log(), "");
}

#[test]
#[ignore = "run by in_a_virtual_machine"]
fn g32_a_worker_is_a_process_of_the_shims() {
    let service = nested(Runtime::Runc.path());
    let shim = service.start();
    let worker = service.build_with("worker", &json!({"args": ["idle"]}));
    let parameters = json!({"build": "w", "staged_path": worker});
    let started = shim.launch("StartWorker", &parameters).unwrap()["started"].clone();
    let pid = i32::try_from(started["pid"].as_i64().unwrap()).unwrap();
    assert_eq!(service.pids_in("host"), [pid]);
    assert_eq!(containers(&service, Runtime::Runc.path()), "");
}
