//! The binaries.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;
use std::{env, fs};

const CONMON: &str = "/usr/bin/conmon";

/// A monitor to be tested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// What messages call it.
    pub name: &'static str,
    /// Its binary.
    pub path: PathBuf,
}

impl Tool {
    /// The referee.
    pub fn conmon() -> Self {
        assert!(Path::new(CONMON).exists(), "{CONMON} is missing: apt-get install conmon");
        Self { name: "conmon", path: CONMON.into() }
    }

    /// dunnage as cargo built it for this test, or the binary that `DUNNAGE_UNDER_TEST` names.
    pub fn under_test() -> Self {
        let path = env::var_os("DUNNAGE_UNDER_TEST").map_or_else(|| built().join("dunnage"), PathBuf::from);
        assert!(path.exists(), "{} is missing: cargo build", path.display());
        Self { name: "dunnage", path }
    }

    /// Whether it is the referee itself.
    pub fn is_referee(&self) -> bool {
        self.path == Path::new(CONMON)
    }

    /// The fake runtime.
    pub fn fake_runtime() -> PathBuf {
        static PATH: OnceLock<PathBuf> = OnceLock::new();
        PATH.get_or_init(|| example("fake-runtime", "tests/fake_runtime")).clone()
    }

    /// The HTTP server of the worked example.
    pub fn web_server() -> PathBuf {
        static PATH: OnceLock<PathBuf> = OnceLock::new();
        PATH.get_or_init(|| example("web-server", "examples")).clone()
    }

    /// The server that generations run.
    pub fn generation_server() -> PathBuf {
        static PATH: OnceLock<PathBuf> = OnceLock::new();
        PATH.get_or_init(|| example("generation-server", "tests/generations")).clone()
    }
}

/// An example, built first if it is missing or older than its source.
fn example(name: &str, source: &str) -> PathBuf {
    let path = built().join("examples").join(name);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources = [source, "tests/common/src"].map(|dir| newest(&root.join(dir)));
    if modified(&path) < sources.into_iter().max().flatten() {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--example", name]).current_dir(root);
        // TARGET-DIR/TARGET/PROFILE
        let [target, target_dir] = [1, 2].map(|up| built().ancestors().nth(up).map(Path::to_owned));
        cargo.arg("--target").args(target.as_deref().and_then(Path::file_name));
        cargo.arg("--target-dir").args(target_dir);
        if built().ends_with("release") {
            cargo.arg("--release");
        }
        let status = cargo.status().expect("cargo starts");
        assert!(status.success(), "{name} does not build");
    }
    path
}

/// The directory where cargo puts binaries: the one above that of the running test.
pub(crate) fn built() -> PathBuf {
    let test = env::current_exe().expect("a test knows its own path");
    test.ancestors().nth(2).expect("a test is at TARGET-DIR/TARGET/PROFILE/deps/NAME").to_owned()
}

fn newest(dir: &Path) -> Option<SystemTime> {
    fs::read_dir(dir).ok()?.filter_map(|entry| modified(&entry.ok()?.path())).max()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}
