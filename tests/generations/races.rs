//! What comes in between two steps of the shim: each is stopped there, by a system call that strace has it stop at.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dunnage_testing::descriptors;
use dunnage_testing::wait::{self, Deadline};
use nix::libc;
use serde_json::json;

use crate::service::{Client, Service, Shim, outcome};
use crate::stage;

/// A shim's system calls of one kind, and what is done to them.
struct Trace {
    strace: Child,
    path: PathBuf,
}

impl Trace {
    /// Once this is there, all of them are tampered with.
    fn attach(service: &Service, shim: &Shim, calls: &str, tamper: &str) -> Self {
        let path = service.path("trace");
        let mut strace = Command::new("strace");
        strace.args(["-p", &shim.process.pid().to_string(), "-e", &format!("trace={calls},epoll_pwait")]);
        strace.args(["-e", &format!("inject={calls}:{tamper}"), "-o"]).arg(&path).stderr(Stdio::null());
        let trace = Self { strace: strace.spawn().expect("strace"), path };
        // The first is mostly that it goes on to wait for events.
        trace.has("(");
        trace
    }

    /// Waits until it has this text.
    fn has(&self, text: &str) {
        wait::file(&self.path, Deadline::usual(), text, |trace| {
            String::from_utf8_lossy(trace?).contains(text).then_some(())
        });
    }

    /// Waits until the shim has stopped after a call that has this text. It goes on after others.
    fn stops_after(&self, call: &str, shim: &Shim) {
        const STOPPED: &str = "--- stopped by SIGSTOP ---";
        let mut passed_over = 0;
        wait::file(&self.path, Deadline::usual(), call, |trace| {
            let trace = String::from_utf8_lossy(trace?);
            if trace.split_once(call).is_some_and(|(_, after)| after.contains(STOPPED)) {
                return Some(());
            }
            let stops = trace.matches(STOPPED).count();
            if stops > passed_over && !trace.contains(call) {
                passed_over = stops;
                shim.process.signal(libc::SIGCONT);
            }
            None
        });
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // The kernel lets go of what it traces.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

/// A process that is nobody's, in a cgroup.
struct Stranger(Child);

impl Stranger {
    fn enter(cgroup: &Path) -> Self {
        let stranger = Self(Command::new("/bin/sleep").arg("1000").spawn().unwrap());
        fs::write(cgroup.join("cgroup.procs"), stranger.0.id().to_string()).unwrap();
        stranger
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    fn leave(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn g21_a_cgroup_of_its_name_that_somebody_else_is_in_refuses_a_start_and_stays_as_it_is() {
    let service = Service::new();
    let shim = service.start();
    fs::create_dir(service.child("gen-1")).unwrap();
    let mut stranger = Stranger::enter(&service.child("gen-1"));
    let (error, parameters) = shim.launch("Stage", &stage(&service, 1, "b1")).unwrap_err();
    let reason = parameters["reason"].as_str().unwrap();
    assert!(error == "LaunchRefused" && reason.contains(&stranger.0.id().to_string()), "{error}: {reason}");
    assert!(stranger.lives());
    assert_eq!(service.names_in_run(), [""; 0]);
    // Nor is the number used up.
    stranger.leave();
    shim.stage(&service, 1, "b1");
}

#[test]
fn g21_a_start_waits_for_the_name_of_a_cgroup_whose_removal_is_busy() {
    let service = Service::new();
    let shim = service.start();
    let parameters = json!({"n": 1, "build": "b1", "staged_path": service.build("b1"), "gate": true});
    let mut refused = shim.caller();
    refused.ask_for_more("Stage", &parameters);
    let token = refused.answer()["parameters"]["gate"]["token"].clone();
    let mut stranger = Stranger::enter(&service.child("gen-1"));
    shim.call("AnswerGate", &json!({"token": token, "proceed": false, "reason": "not today"}));
    assert_eq!(outcome(&refused.answer()).unwrap_err().0, "LaunchRefused");

    let mut waiting = shim.caller();
    waiting.ask_for_more("Stage", &stage(&service, 1, "b1"));
    wait::eventually(Deadline::usual(), "the build to be open", || {
        let held = descriptors(&shim.process.proc_dir()).unwrap_or_default();
        held.values().any(|fd| fd.target == service.build("b1").to_string_lossy())
    });
    // After the turn in which it was opened.
    shim.status();
    assert!(stranger.lives());
    stranger.leave();
    let started = outcome(&waiting.answer()).unwrap();
    assert_eq!(json!(service.pids_in("gen-1")), json!([started["started"]["pid"]]));
}

#[test]
fn g29_what_is_written_between_the_last_read_and_the_end_is_logged() {
    let service = Service::new();
    let shim = service.start();
    let pid = shim.stage(&service, 1, "b1")["pid"].clone();
    let mut client = Client::connect(&service.socket_of(1));
    client.ask("say first\\n");
    service.await_log("first\n");
    // As one of its processes that lives somewhere else has it.
    let mut stdout = OpenOptions::new().append(true).open(service.path("run/web.g1.stdout")).unwrap();
    // The shim stops when it reaps the process, and knows only of what had come before.
    let trace = Trace::attach(&service, &shim, "waitid", "signal=STOP");
    client.leave("exit 0");
    trace.stops_after(&format!("CLD_EXITED, si_pid={pid},"), &shim);
    stdout.write_all(b"last\n").unwrap();
    drop(trace);
    shim.process.signal(libc::SIGCONT);
    service.await_log("first\nlast\n");
    wait::eventually(Deadline::usual(), "its end", || shim.generation(1).is_null());
}

/// The host that hears what the service says of itself.
struct Host(UnixDatagram);

impl Host {
    /// All that it hears, to a message that is the last.
    fn hear_to(&self, last: &str) -> Vec<String> {
        let mut heard = Vec::new();
        while heard.last().is_none_or(|message| message != last) {
            wait::readable(&self.0, Deadline::usual(), last);
            let mut bytes = [0; 4096];
            let length = self.0.recv(&mut bytes).unwrap();
            heard.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        }
        heard
    }
}

/// Two generations, of which the first is current.
fn two_generations() -> (Service, Shim, Host, [Client; 2]) {
    let service = Service::new();
    let path = service.path("host");
    let host = Host(UnixDatagram::bind(&path).unwrap());
    let service = service.option("--sdnotify-socket", &path);
    let shim = service.start();
    let clients = [1, 2].map(|number| {
        shim.stage(&service, number, &format!("b{number}"));
        let mut client = Client::connect(&service.socket_of(number));
        client.ask("who");
        client
    });
    shim.call("Switch", &json!({"n": 1}));
    assert_eq!(host.hear_to("READY=1"), ["READY=1"]);
    (service, shim, host, clients)
}

#[test]
fn g19_a_word_in_the_moment_of_the_switch_is_heard_if_it_is_the_successors() {
    let (service, shim, host, [mut first, mut second]) = two_generations();
    let mut caller = shim.caller();
    let trace = Trace::attach(&service, &shim, "rename,renameat,renameat2", "signal=STOP");
    caller.ask("Switch", &json!({"n": 2}));
    trace.stops_after("web.sock", &shim);
    drop(trace);
    assert_eq!(fs::read_link(service.canonical()).unwrap(), service.socket_of(2));
    first.ask("notify STATUS=late");
    second.ask("notify STATUS=just now");
    shim.process.signal(libc::SIGCONT);
    assert!(caller.answer()["error"].is_null());
    second.ask("notify STOPPING=1");
    let heard = host.hear_to("STOPPING=1").join("\n");
    assert_eq!(heard.matches("READY=1").count(), 1, "{heard}");
    assert_eq!(heard.matches("STATUS=just now").count(), 1, "{heard}");
    assert!(!heard.contains("late"), "{heard}");
}

#[test]
fn g16_a_switch_that_the_file_system_refuses_leaves_link_and_voice_to_the_old_one() {
    let (service, shim, host, [mut first, mut second]) = two_generations();
    let trace = Trace::attach(&service, &shim, "rename,renameat,renameat2", "error=EIO");
    let (error, parameters) = shim.refusal("Switch", &json!({"n": 2}));
    drop(trace);
    let reason = parameters["reason"].as_str().unwrap();
    assert!(error == "NotSwitchable" && reason.contains("os error 5"), "{error}: {reason}");
    assert_eq!(fs::read_link(service.canonical()).unwrap(), service.socket_of(1));
    second.ask("notify STATUS=not mine to say");
    first.ask("notify STATUS=as before");
    assert_eq!(host.hear_to("STATUS=as before"), ["STATUS=as before"]);
    assert_eq!(shim.status()["current"], 1);
}
