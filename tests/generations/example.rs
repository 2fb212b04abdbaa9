//! The worked example of docs/generations.md, as it stands, and its server.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Process, Sandbox, Tool, dunnagectl};
use nix::libc;

use crate::load::get;
use crate::service::cgroup_root;

/// What an example that did not come to its end has left is ended with it.
struct Leftovers {
    sandbox: Sandbox,
    cgroup: PathBuf,
}

impl Leftovers {
    /// The example's files of that name, wherever it has its directory.
    fn files(&self, name: &str) -> impl Iterator<Item = String> {
        let directories = fs::read_dir(self.sandbox.root()).into_iter().flatten().filter_map(Result::ok);
        directories.filter_map(move |directory| fs::read_to_string(directory.path().join(name)).ok())
    }

    fn logs(&self) -> String {
        self.files("log").collect()
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        let pids = self.files("pid");
        for shim in pids.filter_map(|pid| Process::open(pid.parse().ok()?)) {
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
        assert!(gone || std::thread::panicking(), "{} cannot be removed", self.cgroup.display());
    }
}

#[test]
fn the_worked_example_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/generations.md")).unwrap();
    let (_, example) = page.split_once("\n## A worked example\n").expect("the example");
    let (example, _) = example.split_once("\n## ").expect("what follows it");
    let blocks: Vec<&str> = example.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let [building, rest @ ..] = &blocks[..] else { panic!("no blocks") };
    assert!(building.contains("cargo build"), "what is built is not these: {building}");

    let name = format!("dunnage-example-{}", std::process::id());
    let left = Leftovers { sandbox: Sandbox::new(), cgroup: cgroup_root().join(&name) };
    let script = rest.concat().replace("web-example", &name);
    let built = dunnagectl::path();
    let mut path = built.parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", &script]).current_dir(root);
    command.env("PATH", path).env("server", Tool::web_server()).env("TMPDIR", left.sandbox.root());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{said}\nwhat the generations wrote:\n{}", left.logs());
    let mut rest = &*text;
    for wanted in [
        "done: gen-1 serves\ngeneration 1 of v42, process",
        "nothing of gen-1 is left",
        "done: gen-2 serves\ngeneration 2 of v43, process",
        "gen-3 (v42) runs",
        "generation 3 of v42, process",
        "gen-2 is gone: nothing of it is left",
        "undone: all is as it was, gen-3 serves",
        "as it was\ngeneration 3 of v42, process",
        "current   gen-3",
    ] {
        let (_, after) = rest.split_once(wanted).unwrap_or_else(|| panic!("{wanted:?} is not in {rest}"));
        rest = after;
    }
}

#[test]
fn the_server_answers_all_who_had_found_it_when_it_is_told_to_end() {
    let sandbox = Sandbox::new();
    let socket = sandbox.root().join("web.sock");
    let mut server = Command::new(Tool::web_server());
    let mut server = Server(server.env("DUNNAGE_SOCKET", &socket).env("DUNNAGE_GENERATION", "1").spawn().unwrap());
    wait::eventually(Deadline::usual(), "the server", || get(&socket).is_ok());
    let process = Process::open(server.0.id().try_into().unwrap()).expect("the server");
    let status = |key: &str| dunnage_testing::status(&process.proc_dir()).unwrap()[key].clone();
    // It waits for the next one, and does nothing else.
    let waits = || status("Threads") == "1" && status("State").starts_with('S');
    wait::eventually(Deadline::usual(), "the server to wait", waits);
    // While it is stopped they queue up, before the signal and after it.
    process.signal(libc::SIGSTOP);
    wait::eventually(Deadline::usual(), "the server to stop", || status("State").starts_with('T'));
    let mut clients: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    process.signal(libc::SIGTERM);
    clients.extend((0..20).map(|_| UnixStream::connect(&socket).unwrap()));
    process.signal(libc::SIGCONT);
    for mut client in clients {
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        wait::readable(&client, Deadline::usual(), "an answer");
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer:?}");
    }
    process.wait_end(Deadline::usual(), "the server");
    assert!(server.0.wait().unwrap().success());
    UnixStream::connect(&socket).unwrap_err();
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
