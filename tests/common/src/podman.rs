//! Podman with the monitor under test, and nothing in common with any other Podman of the machine.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use nix::mount::{MntFlags, umount2};

use crate::cgroups::Cgroups;
use crate::oci::{Runtime, root_filesystem};
use crate::program::{Finished, Program, words};
use crate::wait::{self, Deadline};
use crate::{Dunnagectl, Process, Sandbox, Terminal, Tool, script};

/// The image of all containers: busybox.
const IMAGE: &str = "localhost/bb:latest";

/// A Podman with a store, an image and cgroups of its own. When it goes, its containers are removed, and it is checked
/// that nothing of them is left.
#[derive(Debug)]
pub struct Podman {
    runtime: Runtime,
    monitor: PathBuf,
    cgroups: Cgroups,
    // The last to go.
    sandbox: Sandbox,
}

impl Podman {
    /// Podman with this runtime.
    pub fn new(runtime: Runtime) -> Self {
        Self::with(runtime, |_| Vec::new())
    }

    /// The same whose containers have control sockets, in the sandbox's directory for them.
    pub fn with_control_dir(runtime: Runtime) -> Self {
        Self::with(runtime, |sandbox| vec![("DUNNAGE_CONTROL_DIR".into(), sandbox.control_dir().into())])
    }

    /// The same with more variables for the monitor.
    fn with(runtime: Runtime, more: impl FnOnce(&Sandbox) -> Vec<(OsString, OsString)>) -> Self {
        let sandbox = Sandbox::new();
        // The monitor gets these variables alone. Locks are in files of its own, not those that all Podmans share.
        let variables: Vec<_> = [sandbox.environment(), more(&sandbox)]
            .concat()
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        let config = format!("[engine]\nlock_type = \"file\"\nconmon_env_vars = {variables:?}\n");
        fs::write(sandbox.root().join("containers.conf"), config).expect("a configuration");
        let monitor = Tool::under_test().path;
        let podman = Self { runtime, monitor, cgroups: Cgroups::named(&sandbox.name()), sandbox };
        let mut import = podman.start(&["import", "--change", "ENV PATH=/bin", "-", IMAGE]);
        import.send(image());
        import.finish().ok();
        // Instead of a monitor that does not work, Podman silently takes another.
        let taken = podman.ok(&["info", "--format", "{{.Host.Conmon.Path}}"]);
        assert_eq!(Path::new(taken.trim_end()), podman.monitor, "the monitor that Podman takes");
        podman
    }

    /// Starts `podman` with these words.
    pub fn start(&self, args: &[&str]) -> Program {
        Program::start(&self.argv(args), &self.environment())
    }

    /// Runs `podman` to its end, without input.
    pub fn command(&self, args: &[&str]) -> Finished {
        self.start(args).finish()
    }

    /// Runs `podman`, which must end with status 0, and gives its stdout.
    pub fn ok(&self, args: &[&str]) -> String {
        self.command(args).ok()
    }

    /// Starts `podman run` (or `create`): options, then what runs in the container.
    pub fn start_container(&self, podman: &[&str], container: &[&str]) -> Program {
        Program::start(&self.container_argv(podman, container), &self.environment())
    }

    /// The same to its end, without input.
    pub fn run(&self, podman: &[&str], container: &[&str]) -> Finished {
        self.start_container(podman, container).finish()
    }

    /// The same with variables in Podman's environment.
    pub fn run_with(&self, env: &[(&str, &OsStr)], podman: &[&str], container: &[&str]) -> Finished {
        let env = env.iter().map(|&(name, value)| (name.into(), value.to_owned()));
        let env: Vec<_> = self.environment().into_iter().chain(env).collect();
        Program::start(&self.container_argv(podman, container), &env).finish()
    }

    /// The same with descriptors from 3 on.
    pub fn run_with_fds(&self, fds: &[BorrowedFd<'_>], podman: &[&str], container: &[&str]) -> Finished {
        Program::start_with(&self.container_argv(podman, container), &self.environment(), fds).finish()
    }

    /// The same as systemd starts the service of these sockets.
    pub fn start_activated(&self, sockets: &[BorrowedFd<'_>], podman: &[&str], container: &[&str]) -> Program {
        // LISTEN_PID is that of Podman itself, which only the started process knows.
        let script = "export LISTEN_PID=$$; exec \"$@\"";
        let shell = words(["/bin/sh", "-c", script, "sh"]);
        let argv = [shell, self.container_argv(podman, container)].concat();
        let mut env = self.environment();
        env.push(("LISTEN_FDS".into(), sockets.len().to_string().into()));
        Program::start_with(&argv, &env, sockets)
    }

    /// Runs `podman` to its end with descriptors from 3 on.
    pub fn command_with(&self, fds: &[BorrowedFd<'_>], args: &[&str]) -> Finished {
        Program::start_with(&self.argv(args), &self.environment(), fds).finish()
    }

    /// The same on a terminal.
    pub fn run_on(&self, terminal: &Terminal, podman: &[&str], container: &[&str]) -> Process {
        Program::start_on(terminal, &self.container_argv(podman, container), &self.environment())
    }

    /// Starts `podman` on a terminal.
    pub fn command_on(&self, terminal: &Terminal, args: &[&str]) -> Process {
        Program::start_on(terminal, &self.argv(args), &self.environment())
    }

    /// What `podman inspect` says of a container in this format.
    pub fn inspect(&self, container: &str, format: &str) -> String {
        self.ok(&["inspect", "--type", "container", "--format", format, container]).trim_end().to_owned()
    }

    /// The monitor of a running container.
    pub fn monitor_of(&self, container: &str) -> Process {
        let file = self.inspect(container, "{{.ConmonPidFile}}");
        let pid = fs::read_to_string(file).expect("the monitor's pid file").parse().expect("a pid");
        Process::open(pid).expect("the monitor lives")
    }

    /// Everything that was started by this Podman and still lives, the containers themselves aside.
    pub fn processes(&self) -> Vec<Process> {
        self.sandbox.processes()
    }

    /// The client of its containers' control sockets.
    pub fn dunnagectl(&self) -> Dunnagectl<'_> {
        Dunnagectl::new(&self.sandbox)
    }

    /// Waits until nothing that was started by this Podman lives.
    pub fn all_ended(&self) {
        wait::eventually(Deadline::usual(), "all monitors and what they started to end", || {
            self.processes().is_empty()
        });
    }

    /// Bytes, and the volume that has them in `/data/noise`.
    pub fn volume_with_noise(&self, bytes: usize) -> (Vec<u8>, String) {
        let dir = self.root().join("data");
        let noise = script::noise(bytes, 1);
        fs::create_dir(&dir).and_then(|()| fs::write(dir.join("noise"), &noise)).expect("a volume");
        (noise, format!("{}:/data:ro", dir.display()))
    }

    /// Where it keeps all that it has.
    pub fn root(&self) -> &Path {
        self.sandbox.root()
    }

    fn argv(&self, command: &[&str]) -> Vec<OsString> {
        let mut argv = words(["/usr/bin/podman", "--storage-driver", "overlay", "--runtime", self.runtime.path()]);
        argv.extend(words(["--cgroup-manager", "cgroupfs", "--events-backend", "file"]));
        argv.extend([OsString::from("--conmon"), self.monitor.clone().into()]);
        for option in ["--root", "--runroot", "--tmpdir"] {
            argv.extend([option.into(), self.root().join(option.trim_start_matches('-')).into()]);
        }
        argv.extend(words(command));
        argv
    }

    fn container_argv(&self, podman: &[&str], container: &[&str]) -> Vec<OsString> {
        let (command, options) = podman.split_first().expect("a command of Podman's");
        let mut argv = self.argv(&[command]);
        argv.extend(words(["--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]));
        argv.extend([OsString::from("--cgroup-parent"), self.cgroups.path().into()]);
        argv.extend(words(options));
        argv.push(IMAGE.into());
        argv.extend(words(container));
        argv
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut env = self.sandbox.environment();
        env.push(("CONTAINERS_CONF".into(), self.root().join("containers.conf").into()));
        env.push(("HOME".into(), self.root().into()));
        env
    }

    /// The mounts below its directories, innermost last.
    fn mounts(&self) -> Vec<PathBuf> {
        let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        points.filter(|point| point.starts_with(self.root())).collect()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let removed = self.command(&["rm", "--all", "--force", "--time", "0"]);
        let failing = thread::panicking();
        if !failing {
            removed.ok();
            self.all_ended();
            assert_eq!(self.cgroups.left(), Vec::<PathBuf>::new(), "cgroups are left");
        }
        // Podman makes its store a mount of its own, and leaves that.
        let store = self.root().join("root/overlay");
        let left: Vec<_> = self.mounts().into_iter().filter(|point| *point != store).collect();
        for point in self.mounts().iter().rev() {
            // What is left cannot be removed, and is seen then.
            let _ = umount2(point, MntFlags::MNT_DETACH);
        }
        assert!(failing || left.is_empty(), "mounts are left: {left:?}");
    }
}

/// The image as a tar archive, made once.
fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let sandbox = Sandbox::new();
        root_filesystem(sandbox.root());
        let tar = Command::new("tar").args(["-c", "-C"]).arg(sandbox.root()).arg("bin").output().expect("tar starts");
        assert!(tar.status.success(), "tar makes no archive");
        tar.stdout
    })
}
