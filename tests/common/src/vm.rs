//! A small virtual machine whose only cgroups are of version 2.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Tool;

/// Folders that are empty in it, whatever they hold here.
const EMPTY: [&str; 4] = ["/tmp", "/var/tmp", "/run", "/dev/shm"];

/// Runs the tests of the binary that calls this, with `args` for them, in the machine. What they print, once all have
/// passed.
pub fn run_own_tests(env: &[(&str, &str)], args: &[&str]) -> String {
    let own = own_binary();
    let monitor = Tool::under_test().path;
    // The binaries of a build have a folder in common.
    let build = own.ancestors().find(|folder| monitor.starts_with(folder)).expect("the root at the latest");
    let monitor = monitor.to_string_lossy();
    run(build, &[env, &[("DUNNAGE_UNDER_TEST", &monitor)]].concat(), args)
}

/// The same for tests that need no other binary.
pub fn run_own_tests_alone(env: &[(&str, &str)], args: &[&str]) -> String {
    run(own_binary().parent().expect("a file is in a folder"), env, args)
}

fn own_binary() -> PathBuf {
    std::env::current_exe().expect("a test knows its own path")
}

fn run(build: &Path, env: &[(&str, &str)], args: &[&str]) -> String {
    let mut vm = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/vm/cgv2-vm"));
    // Boot and all, on a machine that has other work.
    vm.args(["--timeout", "600"]);
    for (name, value) in env {
        vm.args(["--env", &format!("{name}={value}")]);
    }
    // Otherwise it would not be there.
    if EMPTY.iter().any(|empty| build.starts_with(empty)) {
        vm.arg("--rw").arg(format!("{0}={0}", build.display()));
    }
    let output = vm.arg("--").arg(own_binary()).args(args).output().expect("the script starts");
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    stdout
}
