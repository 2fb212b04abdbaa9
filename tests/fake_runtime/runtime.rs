//! An OCI runtime that does what its bundle says, so that every order of events can be made on purpose.
//!
//! Called as a runtime (`[GLOBAL...] create --bundle B --pid-file P [...] [--console-socket S] CID`) it first writes
//! what it was started with into `B/runtime.json`, then does the steps of `B/fake.json`, whose format is described in
//! `tests/common/src/script.rs`. For `exec` the script is the process spec (`--process`), and its directory stands for
//! the bundle; for any other subcommand the environment variable `FAKE_SCRIPT` names it.
//!
//! Called as `fake-runtime steps DIRECTORY TERMINAL JSON` it is the payload, a helper or an exit command, and does the
//! steps in JSON. With a terminal (else an empty word) it makes it its controlling one and its standard streams.
//!
//! A step that fails ends the process with status 125 and a line on stderr.

#![no_main]

mod console;
mod steps;

use std::error::Error;
use std::ffi::{OsStr, OsString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::{env, fs};

use dunnage_testing::script::{self, Script};
use dunnage_testing::{Facts, Wire, command_line};
use steps::Process;

/// The standard library's own `main` would set SIGPIPE to be ignored and replace closed standard streams; a runtime
/// must show, and pass on, what it was given.
// SAFETY: the only symbol of this name; it has the C signature.
#[unsafe(no_mangle)]
pub extern "C" fn main(_argc: c_int, _argv: *const *const c_char) -> c_int {
    match command_line().map_err(Into::into).and_then(|words| run(&words[1..])) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("fake-runtime: {error}");
            125
        }
    }
}

fn run(args: &[OsString]) -> Result<(), Box<dyn Error>> {
    if let [mode, directory, terminal, json] = args
        && mode == "steps"
    {
        if !terminal.is_empty() && console::adopt(Path::new(terminal)).is_err() {
            // Its runtime has failed meanwhile, and the terminal went with it: a container says nothing about that.
            exit(125);
        }
        let steps = serde_json::from_slice(json.as_encoded_bytes())?;
        let steps = Vec::from_json(&steps).ok_or("these are no steps")?;
        return Process::new(directory.into()).run(&steps);
    }
    let call = Call::parse(args);
    let directory = call.script.parent().unwrap_or(Path::new("/")).to_owned();
    steps::write_json(&directory.join(script::RUNTIME_FACTS), &Facts::collect()?)?;
    let script = fs::read(&call.script).map_err(|error| format!("{}: {error}", call.script.display()))?;
    let script = Script::from_json(&serde_json::from_slice(&script)?).ok_or("this is no script")?;
    let mut process = Process::new(directory);
    process.pid_file = call.pid_file;
    process.console_socket = call.console_socket;
    process.payload = script.payload;
    process.run(&script.runtime)
}

/// The words of the command line that matter here.
struct Call {
    script: PathBuf,
    pid_file: Option<PathBuf>,
    console_socket: Option<PathBuf>,
}

impl Call {
    fn parse(args: &[OsString]) -> Self {
        let value = |name: &str| {
            let at = args.iter().position(|arg| arg == OsStr::new(name))?;
            args.get(at + 1).map(PathBuf::from)
        };
        let script = value("--bundle")
            .map(|bundle| bundle.join(script::FILE))
            .or_else(|| value("--process"))
            .or_else(|| env::var_os("FAKE_SCRIPT").map(PathBuf::from));
        Self {
            script: script.unwrap_or_else(|| script::FILE.into()),
            pid_file: value("--pid-file"),
            console_socket: value("--console-socket"),
        }
    }
}
