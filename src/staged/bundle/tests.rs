//! Bundles as engines and people write them, and those who mean no good.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use dunnage_runtime::driver::Driver;
use dunnage_runtime::event_loop::EventLoop;
use dunnage_runtime::generation::{Limit, Tier};
use dunnage_runtime::reaper::Timing;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Gid, Uid, mkdtemp};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::config::{self, Changes};
use super::private::{self, Place, PrivateBundle, Writing};
use super::reading::{Reading, read};
use crate::directory::Directory;
use crate::generations::{Digest, Owner};
use crate::source::Source;
use crate::staged::Staged;

/// A directory of the test's own.
pub(super) struct Temporary(PathBuf);

impl Temporary {
    pub(super) fn new(name: &str) -> Self {
        let template = std::env::temp_dir().join(format!("dunnage-bundle-{name}-XXXXXX"));
        Self(mkdtemp(&template).unwrap().canonicalize().unwrap())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn bundle(&self, config: &Value) -> PathBuf {
        let bundle = self.0.join("v42");
        fs::create_dir_all(bundle.join("rootfs/bin")).unwrap();
        fs::write(bundle.join("config.json"), config.to_string()).unwrap();
        bundle
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn example() -> Value {
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 7, "gid": 8},
            "args": ["/bin/app", "--serve"],
            "env": ["PATH=/bin", "NOTIFY_SOCKET=/run/systemd/notify", "DUNNAGE_BUILD=old", "NOTIFY_SOCKETS=2"],
            "cwd": "/",
        },
        "root": {"path": "rootfs", "readonly": true},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/data", "type": "bind", "source": "data", "options": ["ro"]},
            {"destination": "/etc/x", "source": "../x", "options": ["rbind"]},
            {"destination": "/srv", "type": "bind", "source": "/srv"},
        ],
        "linux": {
            "cgroupsPath": "/machine.slice/old",
            "namespaces": [{"type": "pid"}, {"type": "mount"}],
            "resources": {
                "devices": [{"allow": false}],
                "memory": {"limit": 1000, "swap": 1500, "disableOOMKiller": true},
                "cpu": {"shares": 2, "quota": 5, "period": 6, "cpus": "0-1"},
                "pids": {"limit": 3},
                "unified": {"memory.high": "9", "memory.low": "4"},
            },
        },
        "annotations": {"app": "web"},
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut config = example();
    let (outer, key) = pointer.rsplit_once('/').unwrap();
    config.pointer_mut(outer).unwrap()[key] = value;
    config
}

fn error(config: &Value) -> String {
    config::read(config.to_string().as_bytes()).unwrap_err()
}

fn rewritten(config: &Value, tier: &Tier) -> Value {
    let variables = ["DUNNAGE_GENERATION=7".to_owned(), "NOTIFY_SOCKET=/run/dunnage/app.sock.control".to_owned()];
    let changes = Changes {
        directory: Path::new("/srv/builds/v42"),
        root: Path::new("/srv/builds/v42/rootfs"),
        cgroup: "/services/web/gen-7",
        tier,
        home: Path::new("/run/web/g7"),
        variables: &variables,
        args: None,
    };
    serde_json::from_slice(&config::rewrite(config.to_string().as_bytes(), &changes).unwrap()).unwrap()
}

fn staged(path: &Path) -> Staged {
    Staged { path: path.to_owned(), digest: None }
}

#[test]
fn g3_the_private_config_differs_in_what_is_the_shims_alone() {
    let tier = Tier {
        memory_max: Limit::Value(4096),
        cpu_max: "50000 100000".parse().unwrap(),
        cpu_weight: 7,
        ..Tier::UNLIMITED
    };
    let mut expected = example();
    expected["root"]["path"] = json!("/srv/builds/v42/rootfs");
    expected["process"]["env"] =
        json!(
            ["PATH=/bin", "NOTIFY_SOCKETS=2", "DUNNAGE_GENERATION=7", "NOTIFY_SOCKET=/run/dunnage/app.sock.control",]
        );
    expected["mounts"][1]["source"] = json!("/srv/builds/v42/data");
    expected["mounts"][2]["source"] = json!("/srv/builds/v42/../x");
    expected["mounts"].as_array_mut().unwrap().push(json!({
        "destination": "/run/dunnage", "type": "bind", "source": "/run/web/g7",
        "options": ["bind", "rw", "nosuid", "nodev", "noexec"],
    }));
    expected["linux"]["cgroupsPath"] = json!("/services/web/gen-7");
    expected["linux"]["resources"] = json!({
        "devices": [{"allow": false}],
        "memory": {"disableOOMKiller": true},
        "cpu": {"cpus": "0-1"},
        "unified": {
            "memory.low": "4", "memory.swap.max": "500", "memory.max": "4096", "cpu.max": "50000 100000",
            "cpu.weight": "7",
        },
    });
    assert_eq!(rewritten(&example(), &tier), expected);
}

#[test]
fn g26_a_sidecars_arguments_follow_its_programs_name() {
    let args = ["--sidecar".to_owned()];
    let (root, tier) = (Path::new("/r"), Tier::UNLIMITED);
    let changes =
        Changes { directory: root, root, cgroup: "/c", tier: &tier, home: root, variables: &[], args: Some(&args) };
    let text = config::rewrite(example().to_string().as_bytes(), &changes).unwrap();
    let config: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(config["process"]["args"], json!(["/bin/app", "--sidecar"]));
}

#[test]
fn g3_a_config_without_resources_gets_the_tiers_limits_and_no_others() {
    let bare = json!({"process": {"args": ["x"]}, "root": {"path": "r"}, "mine": [1]});
    let tier = Tier { pids_max: Limit::Value(0), ..Tier::UNLIMITED };
    let config = rewritten(&bare, &tier);
    assert_eq!(config["linux"]["resources"], json!({"unified": {"pids.max": "0"}}));
    assert_eq!((&config["mine"], &config["mounts"][1]), (&json!([1]), &Value::Null));
    // G14: none of all max, which needs no controller.
    assert_eq!(rewritten(&bare, &Tier::UNLIMITED)["linux"], json!({"cgroupsPath": "/services/web/gen-7"}));
}

#[test]
fn g3_swap_stays_what_the_bundle_allows_beside_memory() {
    for (memory, swap) in [
        (json!({"limit": 100, "swap": 100}), json!("0")),
        (json!({"limit": 100, "swap": -1}), json!("max")),
        (json!({"limit": 100}), Value::Null),
        (json!({"limit": -1, "swap": -1}), json!("max")),
        (json!({}), Value::Null),
    ] {
        let config = rewritten(&with("/linux/resources/memory", memory.clone()), &Tier::UNLIMITED);
        let resources = &config["linux"]["resources"];
        assert_eq!((&resources["unified"]["memory.swap.max"], &resources["memory"]), (&swap, &Value::Null), "{memory}");
    }
    let config = rewritten(&with("/linux/resources/unified", json!({"memory.swap.max": "1"})), &Tier::UNLIMITED);
    assert_eq!(config["linux"]["resources"]["unified"]["memory.swap.max"], "1");
}

#[test]
fn g9_a_bundles_tier_is_in_its_annotations() {
    let annotated = |annotations: Value| config::read(with("/annotations", annotations).to_string().as_bytes());
    let tier = annotated(json!({"org.dunnage.tier.memory_max": "1024", "org.dunnage.tier.cpu_weight": "9", "App": "a",
        "app": "b"}));
    assert_eq!(tier.unwrap().tier, Some(Tier { memory_max: Limit::Value(1024), cpu_weight: 9, ..Tier::UNLIMITED }));
    assert_eq!(annotated(json!({"org.dunnage.tiers": "1"})).unwrap().tier, None);
    assert_eq!(config::read(example().to_string().as_bytes()).unwrap().tier, None);
    for (annotations, expected) in [
        (
            json!({"org.dunnage.tier.pids_max": "many"}),
            "\"annotations.org.dunnage.tier.pids_max\" is no limit as the kernel writes it: \"many\"",
        ),
        (json!({"org.dunnage.tier.io_max": "1"}), "\"annotations.org.dunnage.tier.io_max\" is not known"),
    ] {
        assert_eq!(annotated(annotations).unwrap_err(), expected);
    }
}

#[test]
fn g3_what_no_generation_can_be_made_of_is_named() {
    let without = |key: &str| {
        let mut config = example();
        config.as_object_mut().unwrap().remove(key);
        config
    };
    let user = json!([{"type": "user"}]);
    let mut unmapped = with("/linux/namespaces", user.clone());
    unmapped["linux"]["uidMappings"] = json!([{"containerID": 8, "hostID": 1, "size": 5}]);
    let mut beyond = with("/linux/namespaces", user.clone());
    beyond["linux"]["uidMappings"] = json!([{"containerID": 0, "hostID": 4_294_967_290_u32, "size": 100}]);
    for (config, expected) in [
        (without("root"), "\"root.path\" is missing"),
        (with("/root/path", json!("")), "\"root.path\" is no path: \"\""),
        (without("process"), "\"process.args\" is missing"),
        (with("/process/terminal", json!(true)), "\"process.terminal\" is true, and a generation has no terminal"),
        (
            with("/process/user", json!({"uid": -1})),
            "\"process.user.uid\" is wrong: invalid value: integer `-1`, expected u32",
        ),
        (with("/process/ENV", json!([])), "\"process.env\""),
        (with("/linux/namespaces", user), "\"linux.uidMappings\" is missing"),
        (unmapped, "\"linux.uidMappings\" has no id for 7, who the process is to run as"),
        (beyond, "\"linux.uidMappings\" leads to ids that there are not"),
        (with("/mounts", json!([{"options": "ro"}])), "\"mounts.options\" is wrong: invalid type: string"),
        (with("/process/args", json!("/bin/app")), "\"process.args\" is wrong: invalid type: string"),
        (with("/linux/resources/memory", json!({"limit": "1G"})), "\"linux.resources.memory.limit\" is wrong"),
        (with("/hooks", json!({"poststop": [{"args": []}]})), "\"hooks.poststop.path\" is missing"),
        (json!([1]), "it is no JSON object: invalid type: sequence, expected an object at line 1 column 0"),
    ] {
        let error = error(&config);
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(
        error(&with("/root/path", json!(5))),
        "\"root.path\" is wrong: invalid type: integer `5`, expected a string"
    );
}

#[test]
fn g16_the_owner_of_a_bundles_sockets_is_who_it_runs_as_outside() {
    let owner = |config: &Value| config::read(config.to_string().as_bytes()).unwrap().owner;
    assert_eq!(owner(&example()), Owner { user: Uid::from_raw(7), group: Gid::from_raw(8) });
    let mut mapped = with("/linux/namespaces", json!([{"type": "user"}]));
    mapped["linux"]["uidMappings"] = json!([
        {"containerID": 0, "hostID": 1000, "size": 7}, {"containerID": 7, "hostID": 200_000, "size": 1},
    ]);
    mapped["linux"]["gidMappings"] = json!([{"containerID": 5, "hostID": 300_000, "size": 10}]);
    assert_eq!(owner(&mapped), Owner { user: Uid::from_raw(200_000), group: Gid::from_raw(300_003) });
    // Without a user namespace there is nothing to map.
    mapped["linux"]["namespaces"] = json!([]);
    assert_eq!(owner(&mapped), owner(&example()));
}

#[test]
fn g4_the_digest_is_of_the_bytes_that_are_rewritten() {
    let temporary = Temporary::new("digest");
    let path = temporary.bundle(&example());
    let bundle = read(&staged(&path)).unwrap();
    fs::write(path.join("config.json"), "{}").unwrap();
    let tier = Tier::UNLIMITED;
    let place = Place { cgroup: "/web/gen-1".into(), tier, home: "/run/web/g1".into(), variables: Vec::new() };
    let text: Value = serde_json::from_slice(&private::rewrite(&bundle, &place).unwrap()).unwrap();
    assert_eq!(text["root"]["path"], path.join("rootfs").to_str().unwrap());

    fs::write(path.join("config.json"), example().to_string()).unwrap();
    let digest = Digest(Sha256::digest(example().to_string()).into());
    let checked = |digest: Digest| read(&Staged { path: path.clone(), digest: Some(digest) });
    assert_eq!(checked(digest).unwrap(), bundle);
    let error = checked(Digest([0; 32])).unwrap_err();
    let expected = format!("v42/config.json: its digest is {digest}, not {}", Digest([0; 32]));
    assert!(error.ends_with(&expected), "{error}");
}

#[test]
fn g4_no_link_stands_for_a_bundle_or_its_config() {
    let temporary = Temporary::new("links");
    let path = temporary.bundle(&example());
    let error = |path: &Path| read(&staged(path)).unwrap_err();
    symlink("v42", temporary.path().join("live")).unwrap();
    assert!(error(&temporary.path().join("live")).ends_with("live: it is a symlink"));
    assert!(error(&path.join("config.json")).ends_with("config.json: it is not a directory"));
    assert_eq!(error(Path::new("v42")), "v42: it is not an absolute path");
    // A link further up is the caller's own.
    symlink(temporary.path(), temporary.path().join("builds")).unwrap();
    let bundle = read(&staged(&temporary.path().join("builds/v42"))).unwrap();
    assert_eq!((bundle.directory, bundle.root), (path.clone(), path.join("rootfs")));

    fs::rename(path.join("config.json"), path.join("real.json")).unwrap();
    assert!(error(&path).contains("v42/config.json: cannot open it: No such file"), "{}", error(&path));
    symlink("real.json", path.join("config.json")).unwrap();
    assert!(error(&path).ends_with("v42/config.json: it is a symlink"));
    fs::remove_file(path.join("config.json")).unwrap();
    fs::write(path.join("config.json"), " ".repeat(2 << 20)).unwrap();
    assert!(error(&path).ends_with("v42/config.json: it is larger than 1048576 bytes"));
}

#[test]
fn g3_a_relative_root_is_below_the_bundle() {
    let temporary = Temporary::new("root");
    let path = temporary.bundle(&example());
    fs::create_dir(temporary.path().join("other")).unwrap();
    symlink("../other", path.join("out")).unwrap();
    symlink("rootfs", path.join("in")).unwrap();
    let root = |root: &str| {
        temporary.bundle(&with("/root/path", json!(root)));
        read(&staged(&path)).map(|bundle| bundle.root)
    };
    assert_eq!(root("rootfs"), Ok(path.join("rootfs")));
    assert_eq!(root("./in/bin/.."), Ok(path.join("rootfs")));
    let other = temporary.path().join("other");
    assert_eq!(root(other.to_str().unwrap()), Ok(other), "an absolute one is the engine's");
    for out in ["../other", "out", "rootfs/../.."] {
        let error = root(out).unwrap_err();
        assert!(error.ends_with(&format!("\"root.path\" leads out of the bundle: {out}")), "{error}");
    }
    assert!(
        root("missing").unwrap_err().ends_with("\"root.path\" cannot be opened: missing: No such file or directory")
    );
    assert!(root("config.json").unwrap_err().ends_with("config.json: Not a directory"));
}

#[test]
fn g3_nothing_of_the_image_is_a_hook_that_runs_outside() {
    let temporary = Temporary::new("hooks");
    let path = temporary.bundle(&example());
    fs::write(path.join("rootfs/bin/hook"), "").unwrap();
    symlink(path.join("rootfs/bin/hook"), temporary.path().join("link")).unwrap();
    let hooks = |kind: &str, hook: &Path| {
        temporary.bundle(&with("/hooks", json!({ kind: [{"path": "/bin/true"}, {"path": hook}] })));
        read(&staged(&path))
    };
    for kind in ["prestart", "createRuntime", "createContainer", "poststart", "poststop"] {
        for hook in [path.join("rootfs/bin/hook"), temporary.path().join("link")] {
            let error = hooks(kind, &hook).unwrap_err();
            assert!(error.contains("which is in the bundle, and would run outside of its cgroup"), "{error}");
        }
        hooks(kind, Path::new("/bin/sh")).unwrap();
    }
    // It runs in the container, whose path it is.
    hooks("startContainer", Path::new("/bin/hook")).unwrap();
}

#[test]
fn g3_the_private_bundle_is_written_whole_for_its_user_alone() {
    let temporary = Temporary::new("private");
    let run = Directory::open(temporary.path()).unwrap();
    let name = OsStr::new("web.g7.bundle");
    let path = temporary.path().join(name);
    // What an earlier start of the same number has left.
    fs::create_dir(&path).unwrap();
    fs::write(path.join("pid"), "1").unwrap();
    fs::write(path.join(".config.json"), "half").unwrap();
    private::write(&run, name, b"{}").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join("config.json"))), (0o700, 0o600));
    assert_eq!(fs::read(path.join("config.json")).unwrap(), b"{}");
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
    private::remove(&run, name).unwrap();
    assert!(!path.exists());
    private::remove(&run, name).unwrap();
    // A link is removed, and not what it leads to.
    fs::create_dir(temporary.path().join("kept")).unwrap();
    symlink("kept", &path).unwrap();
    private::remove(&run, name).unwrap();
    assert!(temporary.path().join("kept").exists() && path.symlink_metadata().is_err());
}

/// Waits until it is over.
fn finish<T: AsFd, R>(task: &mut T, advance: impl Fn(&mut T) -> Option<Result<R, String>>) -> R {
    loop {
        if let Some(result) = advance(task) {
            return result.unwrap();
        }
        let mut readable = [PollFd::new(task.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut readable, PollTimeout::from(60_000_u16)), Ok(1), "it takes too long");
    }
}

#[test]
fn g3_what_the_tasks_have_read_and_written_arrives_as_it_is() {
    let temporary = Temporary::new("task");
    let path = temporary.bundle(&with("/annotations", json!({"org.dunnage.tier.pids_max": "12", "x\ny": "\n"})));
    let (mut driver, event_loop) = (Driver::new(Timing::default()), EventLoop::<Source>::new().unwrap());
    let mut reading = Reading::start(&mut driver, &event_loop, staged(&path)).unwrap();
    let bundle = finish(&mut reading, Reading::advance);
    assert_eq!(bundle, read(&staged(&path)).unwrap());
    assert_eq!(bundle.tier(), Some(Tier { pids_max: Limit::Value(12), ..Tier::UNLIMITED }));

    let run = Directory::open(temporary.path()).unwrap();
    let place = Place { cgroup: "/web/gen-1".into(), tier: Tier::UNLIMITED, home: "/run/g1".into(), variables: vec![] };
    let mut writing =
        Writing::start(&mut driver, &event_loop, &run, OsStr::new("web.g1.bundle"), &bundle, &place).unwrap();
    finish(&mut writing, Writing::advance);
    let private = PrivateBundle::at(temporary.path(), OsStr::new("web.g1.bundle"));
    let written = fs::read(private.path().join("config.json")).unwrap();
    assert_eq!(written, private::rewrite(&bundle, &place).unwrap());
}
