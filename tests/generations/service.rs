//! A service of a test's own: its directories, its cgroup, its builds and its shim.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Caller, Process, Sandbox, Tool};
use nix::libc;
use serde_json::{Value, json};

/// Where children of cgroup2 can be made.
pub(crate) fn cgroup_root() -> PathBuf {
    let hybrid = Path::new("/sys/fs/cgroup/unified");
    if hybrid.is_dir() { hybrid.to_owned() } else { PathBuf::from("/sys/fs/cgroup") }
}

/// See the module. What is left of it ends with it.
pub(crate) struct Service {
    sandbox: Sandbox,
    cgroup: PathBuf,
    options: Vec<OsString>,
}

impl Service {
    /// A flat one, without a shim yet.
    pub(crate) fn new() -> Self {
        Self::with(|_| json!({}))
    }

    /// One whose service file says this as well.
    pub(crate) fn with(more: impl FnOnce(&Self) -> Value) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let sandbox = Sandbox::new();
        let name = format!("dunnage-generations-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let cgroup = cgroup_root().join(name);
        fs::create_dir(&cgroup).unwrap_or_else(|error| panic!("{}: {error}", cgroup.display()));
        let service = Self { sandbox, cgroup, options: Vec::new() };
        for directory in ["run", "state", "builds"] {
            fs::create_dir(service.path(directory)).unwrap();
        }
        let mut file = json!({
            "layout": "flat",
            "run_dir": service.path("run"),
            "canonical_socket": service.canonical(),
            "cgroup": service.cgroup,
        });
        file.as_object_mut().unwrap().extend(more(&service).as_object().unwrap().clone());
        fs::write(service.path("service.json"), file.to_string()).unwrap();
        service
    }

    /// Has its service file say this as well.
    pub(crate) fn configure(&self, more: &Value) {
        let path = self.path("service.json");
        let mut file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fs::write(&path, file.to_string()).unwrap();
    }

    /// One more option for its shims.
    pub(crate) fn option(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.options.extend([name.into(), value.into()]);
        self
    }

    /// Something in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.sandbox.root().join(name)
    }

    pub(crate) fn canonical(&self) -> PathBuf {
        self.path("web.sock")
    }

    pub(crate) fn socket_of(&self, number: u64) -> PathBuf {
        self.path("run").join(format!("web.g{number}.sock"))
    }

    /// A child of its cgroup.
    pub(crate) fn child(&self, name: &str) -> PathBuf {
        self.cgroup.join(name)
    }

    /// The PIDs in a child.
    pub(crate) fn pids_in(&self, child: &str) -> Vec<i32> {
        let text = fs::read_to_string(self.child(child).join("cgroup.procs")).unwrap_or_default();
        text.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    /// The staged server of that name, made at the first time.
    pub(crate) fn build(&self, name: &str) -> PathBuf {
        let path = self.path("builds").join(name);
        if !path.exists() {
            fs::copy(Tool::generation_server(), &path).unwrap();
        }
        path
    }

    /// The same, with this manifest.
    pub(crate) fn build_with(&self, name: &str, manifest: &Value) -> PathBuf {
        let path = self.build(name);
        fs::write(self.path("builds").join(format!("{name}.manifest.json")), manifest.to_string()).unwrap();
        path
    }

    /// Tries to start a shim, which has told how that went once its command ends.
    pub(crate) fn try_start(&self) -> Output {
        let mut command = Command::new(&Tool::under_test().path);
        let log = OsString::from_iter([OsString::from("k8s-file:"), self.path("log").into()]);
        command.args(["--cid", "web"]).arg("--service").arg(self.path("service.json"));
        command.arg("--control-socket").arg(self.path("control")).arg("--persist-dir").arg(self.path("state"));
        command.arg("--log-path").arg(log).arg("--conmon-pidfile").arg(self.path("pid")).args(&self.options);
        command.args(["--log-level", "debug"]).output().unwrap()
    }

    /// Starts a shim.
    pub(crate) fn start(&self) -> Shim {
        let output = self.try_start();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let pid = fs::read_to_string(self.path("pid")).unwrap().parse().unwrap();
        Shim { process: Process::open(pid).expect("the shim"), control: self.path("control") }
    }

    /// The text of the log, without stamps, streams and flags.
    pub(crate) fn log(&self) -> String {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned() + "\n").collect()
    }

    /// Waits until the log has that.
    pub(crate) fn await_log(&self, wanted: &str) {
        let what = format!("{wanted:?} in the log, which has {:?}", self.log());
        wait::eventually(Deadline::usual(), &what, || self.log().contains(wanted));
    }

    /// Everything in the run directory.
    pub(crate) fn names_in_run(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("run")).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(shim) = fs::read_to_string(self.path("pid")).ok().and_then(|pid| Process::open(pid.parse().ok()?)) {
            shim.signal(libc::SIGKILL);
        }
        let gone = wait::whether(Deadline::usual(), || {
            let _ = fs::write(self.cgroup.join("cgroup.kill"), "1");
            let children = fs::read_dir(&self.cgroup).into_iter().flatten().filter_map(Result::ok);
            for child in children.filter(|child| child.path().is_dir()) {
                let _ = fs::remove_dir(child.path());
            }
            fs::remove_dir(&self.cgroup).is_ok() || !self.cgroup.exists()
        });
        if !gone {
            eprintln!("{} cannot be removed", self.cgroup.display());
        }
    }
}

/// A shim that serves.
pub(crate) struct Shim {
    pub(crate) process: Process,
    control: PathBuf,
}

impl Shim {
    pub(crate) fn caller(&self) -> Caller {
        Caller::connect(&self.control)
    }

    /// Calls a method, and gives what it answers.
    pub(crate) fn call(&self, method: &str, parameters: &Value) -> Value {
        self.caller().call(method, parameters)
    }

    /// Calls a method, and gives the error that it answers, by its last name.
    pub(crate) fn refusal(&self, method: &str, parameters: &Value) -> (String, Value) {
        let (name, parameters) = self.caller().refusal(method, parameters);
        (last(&name), parameters)
    }

    /// Starts something without a gate.
    pub(crate) fn launch(&self, method: &str, parameters: &Value) -> Result<Value, (String, Value)> {
        let mut caller = self.caller();
        caller.ask_for_more(method, parameters);
        outcome(&caller.answer())
    }

    /// Stages a build.
    pub(crate) fn stage(&self, service: &Service, number: u64, build: &str) -> Value {
        self.launch("Stage", &crate::stage(service, number, build)).unwrap()["started"].clone()
    }

    /// What `Status` says of the service.
    pub(crate) fn status(&self) -> Value {
        self.call("Status", &json!({}))["service"].clone()
    }

    /// What it says of a generation.
    pub(crate) fn generation(&self, number: u64) -> Value {
        let status = self.status();
        let generations = status["generations"].as_array().unwrap();
        generations.iter().find(|generation| generation["n"] == number).cloned().unwrap_or(Value::Null)
    }

    /// Kills it, as nothing else would: it can do nothing more.
    pub(crate) fn kill(self) {
        self.process.signal(libc::SIGKILL);
        self.process.wait_end(Deadline::usual(), "the shim");
    }
}

/// An answer: its parameters, or its error.
pub(crate) fn outcome(answer: &Value) -> Result<Value, (String, Value)> {
    match answer["error"].as_str() {
        None => Ok(answer["parameters"].clone()),
        Some(error) => Err((last(error), answer["parameters"].clone())),
    }
}

fn last(name: &str) -> String {
    name.rsplit('.').next().unwrap().to_owned()
}

/// A client of a generation.
pub(crate) struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects, once somebody listens there.
    pub(crate) fn connect(path: &Path) -> Self {
        let mut stream = None;
        let what = format!("a server at {}", path.display());
        wait::eventually(Deadline::usual(), &what, || {
            stream = UnixStream::connect(path).ok();
            stream.is_some()
        });
        Self(BufReader::new(stream.unwrap()))
    }

    /// Says something that nothing is answered to.
    pub(crate) fn leave(&mut self, line: &str) {
        writeln!(self.0.get_ref(), "{line}").unwrap();
    }

    /// What is answered to a line: the generation, and the rest.
    pub(crate) fn ask(&mut self, line: &str) -> (String, String) {
        writeln!(self.0.get_ref(), "{line}").unwrap();
        let mut answer = String::new();
        wait::readable(self.0.get_ref(), Deadline::usual(), "an answer of a generation");
        self.0.read_line(&mut answer).unwrap();
        let (generation, rest) = answer.trim_end_matches('\n').split_once(' ').unwrap_or_default();
        (generation.to_owned(), rest.to_owned())
    }
}
