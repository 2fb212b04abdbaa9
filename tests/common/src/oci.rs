//! Real runtimes, and a bundle for them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::cgroups::Cgroups;
use crate::program::{Finished, Program, words};
use crate::{Monitor, Sandbox, Tool};

/// An OCI runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// runc.
    Runc,
    /// crun. On a machine with hybrid cgroups only within [`crate::without_hybrid_cgroups`].
    Crun,
}

impl Runtime {
    /// Its binary.
    pub fn path(self) -> &'static str {
        match self {
            Self::Runc => "/usr/sbin/runc",
            Self::Crun => "/usr/bin/crun",
        }
    }

    /// Runs a test where this runtime works.
    pub fn run<T: Send>(self, test: impl FnOnce() -> T + Send) -> T {
        match self {
            Self::Runc => test(),
            Self::Crun => crate::without_hybrid_cgroups(test),
        }
    }
}

/// A sandbox whose bundle has busybox in it, and a container for a real runtime.
#[derive(Debug)]
pub struct Bundle {
    runtime: Runtime,
    config: Value,
    cgroups: Cgroups,
    // The last to go.
    sandbox: Sandbox,
}

impl Bundle {
    /// A container of a shell script, in the PID namespace that runtimes make by default.
    pub fn new(runtime: Runtime, script: &str) -> Self {
        let sandbox = Sandbox::new();
        root_filesystem(&sandbox.bundle().join("rootfs"));
        let spec = Command::new(Runtime::Runc.path()).arg("spec").current_dir(sandbox.bundle()).status();
        assert!(spec.expect("runc starts").success(), "runc makes no specification");
        let text = fs::read(sandbox.bundle().join("config.json")).expect("runc made a specification");
        let config = serde_json::from_slice(&text).expect("a specification is JSON");
        let mut bundle = Self { runtime, config, cgroups: Cgroups::named(&sandbox.name()), sandbox };
        let cgroup = bundle.cgroups.path();
        bundle.change(|config| {
            config["process"]["terminal"] = false.into();
            config["process"]["args"] = json!(["sh", "-c", script]);
            config["process"]["env"] = json!(["PATH=/bin"]);
            config["linux"]["cgroupsPath"] = cgroup.into();
            config["root"]["readonly"] = false.into();
        });
        bundle
    }

    /// With a terminal.
    #[must_use]
    pub fn terminal(mut self) -> Self {
        self.change(|config| config["process"]["terminal"] = true.into());
        self
    }

    /// Without a PID namespace: what the main process leaves behind lives on.
    #[must_use]
    pub fn host_pids(mut self) -> Self {
        self.change(|config| {
            let namespaces = config["linux"]["namespaces"].as_array_mut().expect("namespaces");
            namespaces.retain(|namespace| namespace["type"] != "pid");
        });
        self
    }

    /// Changes the container's configuration.
    pub fn change(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.config);
        fs::write(self.sandbox.bundle().join("config.json"), self.config.to_string()).expect("a specification");
    }

    /// Where it is.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The monitor under test with this runtime.
    pub fn monitor(&self) -> Monitor<'_> {
        let monitor = self.sandbox.monitor(&Tool::under_test()).option("-r", self.runtime.path());
        self.global_args().into_iter().fold(monitor, |monitor, arg| monitor.also("--runtime-arg", arg))
    }

    /// Runs the runtime to its end.
    pub fn runtime(&self, args: &[&str]) -> Finished {
        let command_line = [words([self.runtime.path()]), self.global_args(), words(args)].concat();
        Program::start(&command_line, &self.sandbox.environment()).finish()
    }

    /// Lets the created container run.
    pub fn start(&self) {
        self.runtime(&["start", self.sandbox.id()]).ok();
    }

    /// Sends it a signal by its name, through the runtime.
    pub fn kill(&self, signal: &str) {
        self.runtime(&["kill", self.sandbox.id(), signal]).ok();
    }

    /// Removes the container that has ended, and checks that it leaves nothing.
    pub fn delete(&self) {
        self.runtime(&["delete", self.sandbox.id()]).ok();
        assert_eq!(self.cgroups.dirs(), Vec::<PathBuf>::new(), "cgroups are left");
    }

    fn global_args(&self) -> Vec<OsString> {
        vec!["--root".into(), self.sandbox.root().join("state").into()]
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        // It may never have been, or be deleted already.
        self.runtime(&["delete", "--force", self.sandbox.id()]);
    }
}

/// Fills a directory with busybox and links for its applets.
pub(crate) fn root_filesystem(root: &Path) {
    let bin = root.join("bin");
    fs::create_dir_all(&bin).expect("a root filesystem");
    fs::copy("/bin/busybox", bin.join("busybox")).expect("busybox-static is installed");
    let list = Command::new("/bin/busybox").arg("--list").output().expect("busybox starts");
    for applet in String::from_utf8_lossy(&list.stdout).lines().filter(|applet| *applet != "busybox") {
        symlink("busybox", bin.join(applet)).expect("a link for an applet");
    }
}
