//! The client of the control socket, as people run it.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::program::{Finished, Program, words};
use crate::tool::built;
use crate::{Process, Sandbox, Terminal};

/// `dunnagectl` for the containers that have their sockets in a sandbox.
#[derive(Clone, Copy, Debug)]
pub struct Dunnagectl<'a>(&'a Sandbox);

impl<'a> Dunnagectl<'a> {
    /// Its `DUNNAGE_CONTROL_DIR` is the one of [`crate::Monitor::control_dir`].
    pub fn new(sandbox: &'a Sandbox) -> Self {
        Self(sandbox)
    }

    /// Starts it with these words.
    pub fn start(&self, args: &[&str]) -> Program {
        Program::start(&argv(args), &self.environment())
    }

    /// Runs it to its end, without input.
    pub fn run(&self, args: &[&str]) -> Finished {
        self.start(args).finish()
    }

    /// The line that it says when it fails.
    pub fn fails(&self, args: &[&str]) -> String {
        let finished = self.run(args);
        let said = finished.stderr();
        finished.exited(125);
        let line = said.strip_prefix("dunnagectl: ").and_then(|line| line.strip_suffix('\n'));
        line.filter(|line| !line.contains('\n')).unwrap_or_else(|| panic!("one line, not {said:?}")).to_owned()
    }

    /// Starts it on a terminal.
    pub fn start_on(&self, terminal: &Terminal, args: &[&str]) -> Process {
        Program::start_on(terminal, &argv(args), &self.environment())
    }

    /// The environment that it needs, and whatever runs it.
    pub fn environment(self) -> Vec<(OsString, OsString)> {
        let mut env = self.0.environment();
        env.push(("DUNNAGE_CONTROL_DIR".into(), self.0.control_dir().into()));
        env.push(("TERM".into(), "xterm".into()));
        env
    }
}

fn argv(args: &[&str]) -> Vec<OsString> {
    [words([path()]), words(args)].concat()
}

/// Its binary.
pub fn path() -> PathBuf {
    built().join("dunnagectl")
}
