//! A test's own directory.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, process};

use crate::process::Process;
use crate::script::{self, Script};
use crate::wait::{self, Deadline};
use crate::{Facts, Monitor, Tool, Wire};
use nix::sys::stat::Mode;

/// In the environment of everything that is started in a sandbox, so that it can be found at the end.
const MARKER: &str = "DUNNAGE_SANDBOX";

/// A private directory with a bundle, and everything that was started in it. Both end with it.
#[derive(Debug)]
pub struct Sandbox {
    root: PathBuf,
    bundle: PathBuf,
}

impl Sandbox {
    /// An empty bundle.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("dunnage-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = env::temp_dir().join(name);
        let sandbox = Self { bundle: root.join("bundle"), root };
        let dirs = [&sandbox.bundle, &sandbox.exits(), &sandbox.persist(), &sandbox.sockets(), &sandbox.temporary()];
        for dir in [&sandbox.root].into_iter().chain(dirs) {
            DirBuilder::new().mode(0o755).create(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        }
        sandbox
    }

    /// An empty bundle whose path has this many bytes.
    pub fn with_bundle_path_of(length: usize) -> Self {
        let mut sandbox = Self::new();
        while sandbox.bundle.as_os_str().len() < length {
            let left = length - sandbox.bundle.as_os_str().len();
            // A name has at most 255 bytes, and one byte is the slash; no single one may be left over.
            let name = if left > 202 { 200 } else { left - 1 };
            assert!(name > 0, "{length} cannot be reached");
            sandbox.bundle.push("b".repeat(name));
        }
        fs::create_dir_all(&sandbox.bundle).expect("a deep bundle");
        sandbox
    }

    /// A bundle with a script.
    pub fn with(script: &Script) -> Self {
        let sandbox = Self::new();
        sandbox.script(script);
        sandbox
    }

    /// A monitor to be started here.
    pub fn monitor(&self, tool: &Tool) -> Monitor<'_> {
        Monitor::new(self, tool)
    }

    /// Writes the bundle's script.
    pub fn script(&self, script: &Script) {
        fs::write(self.bundle().join(script::FILE), format!("{:#}", script.to_json()))
            .expect("the script can be written");
    }

    /// A new event for the script.
    pub fn event(&self, name: &str) -> Event {
        let path = self.bundle().join(name);
        nix::unistd::mkfifo(&path, Mode::from_bits_truncate(0o600)).expect("a fifo for the event");
        let file = OpenOptions::new().read(true).write(true).custom_flags(nix::libc::O_CLOEXEC).open(&path);
        Event { name: name.to_owned(), file: file.expect("the event's fifo") }
    }

    /// The container's id, name and uuid.
    pub fn id(&self) -> &'static str {
        "0123456789abcdef-container"
    }

    /// The sandbox's own name, for what it has outside of its directory.
    pub(crate) fn name(&self) -> String {
        self.root.file_name().expect("a sandbox has a name").to_string_lossy().into_owned()
    }

    /// Everything is below this.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `--bundle`.
    pub fn bundle(&self) -> PathBuf {
        self.bundle.clone()
    }

    /// `--exit-dir`.
    pub fn exits(&self) -> PathBuf {
        self.root.join("exits")
    }

    /// The exit file in `--exit-dir`.
    pub fn exit_file(&self) -> PathBuf {
        self.exits().join(self.id())
    }

    /// `--persist-dir`.
    pub fn persist(&self) -> PathBuf {
        self.root.join("persist")
    }

    /// `--socket-dir-path`, for those who do not use `--full-attach`.
    pub fn sockets(&self) -> PathBuf {
        self.root.join("sockets")
    }

    /// `TMPDIR`.
    pub fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// Where containers have their control sockets, see [`Monitor::control_dir`].
    pub fn control_dir(&self) -> PathBuf {
        self.root.join("control")
    }

    /// The k8s-file.
    pub fn log(&self) -> PathBuf {
        self.root.join("ctr.log")
    }

    /// `--container-pidfile`.
    pub fn pid_file(&self) -> PathBuf {
        self.root.join("pidfile")
    }

    /// `--conmon-pidfile`.
    pub fn monitor_pid_file(&self) -> PathBuf {
        self.root.join("conmon.pid")
    }

    /// Reads a report out of the bundle, once it is there.
    pub fn report<T: Wire>(&self, file: &str) -> T {
        let json = wait::file_exists(&self.bundle().join(file), Deadline::usual());
        let json = serde_json::from_slice(&json).ok();
        json.as_ref().and_then(T::from_json).unwrap_or_else(|| panic!("{file} is not as it should be"))
    }

    /// What everything that is started here has in its environment.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into()), (MARKER.into(), self.root.clone().into())]
    }

    /// Everything that was started here and still lives.
    pub fn processes(&self) -> Vec<Process> {
        let marker = [MARKER.as_bytes(), b"=", self.root.as_os_str().as_bytes()].concat();
        let is_ours = |pid: i32| {
            let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            env.split(|byte| *byte == 0).any(|variable| variable == marker)
        };
        let pids = fs::read_dir("/proc").expect("/proc").filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse::<i32>().ok()?;
            (pid != i32::try_from(process::id()).ok()? && is_ours(pid)).then_some(pid)
        });
        // Looked at once more now that the pid cannot go to another.
        pids.filter_map(Process::open).filter(|process| is_ours(process.pid())).collect()
    }

    /// Where the runtime was told to send its terminal.
    pub fn console_socket(&self) -> Option<PathBuf> {
        let json = fs::read(self.bundle.join(script::RUNTIME_FACTS)).ok()?;
        let runtime = Facts::from_json(&serde_json::from_slice(&json).ok()?)?;
        let option = runtime.argv.iter().position(|word| word == "--console-socket")?;
        runtime.argv.get(option + 1).map(PathBuf::from)
    }

    fn kill_everything(&self) {
        // What is forked meanwhile is found in the next round.
        for _ in 0..100 {
            let processes = self.processes();
            if processes.is_empty() {
                return;
            }
            for process in &processes {
                process.signal(nix::libc::SIGKILL);
            }
            for process in processes {
                process.wait_end(Deadline::usual(), "a process that was killed at the end of the test");
            }
        }
        eprintln!("{}: processes are left", self.root.display());
    }
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.kill_everything();
        // conmon leaves it, outside of the sandbox, when create failed.
        if let Some(socket) = self.console_socket() {
            let _ = fs::remove_file(socket);
        }
        if let Err(error) = fs::remove_dir_all(&self.root) {
            eprintln!("{}: {error}", self.root.display());
        }
    }
}

/// Something that a test and the processes of its script tell each other: see [`crate::script`].
#[derive(Debug)]
pub struct Event {
    name: String,
    file: File,
}

impl Event {
    /// Says that it has happened.
    pub fn fire(&self) {
        (&self.file).write_all(b".").expect("an event can be fired");
    }

    /// Fires it until its fifo is full: whoever else writes to that would block.
    pub fn fill(&self) {
        while wait::is_writable(&self.file) {
            self.fire();
        }
    }

    /// Waits until it has happened.
    pub fn wait(&self) {
        wait::readable(&self.file, Deadline::usual(), &format!("the event {}", self.name));
        (&self.file).read_exact(&mut [0]).expect("an event that was fired");
    }
}
