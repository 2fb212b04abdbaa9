//! The runtime's command lines.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Instant;

use dunnage_runtime::driver::{Driver, RuntimeCall, StartError, Watched};
use dunnage_runtime::event_loop::{EventLoop, Source};
use dunnage_runtime::reaper::{CallId, CallSpec, ChildId, Job};
use dunnage_runtime::sys::{Environment, Program, Ties};
use nix::sys::signal::SigSet;

use crate::generations::Runtime;
use crate::staged::bundle::PrivateBundle;

/// A container as the runtime knows it.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    /// What it is called.
    pub(crate) id: OsString,
    pub(crate) bundle: PrivateBundle,
}

/// How runtimes are started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) mask: SigSet,
    pub(crate) oom_score_adj: Option<i32>,
}

impl Container {
    /// Calls the runtime to create it. Nothing of the image is executed by that.
    pub(super) fn create<S: Source + From<Watched>>(
        &self,
        driver: &mut Driver,
        event_loop: &EventLoop<S>,
        caller: &Caller<'_>,
        stdio: &[OwnedFd; 3],
        now: Instant,
    ) -> Result<CallId, StartError> {
        let pid_file = self.bundle.pid_file();
        let words = ["create".as_ref(), "--bundle".as_ref(), self.bundle.path().as_os_str()];
        let words = words.into_iter().chain(["--pid-file".as_ref(), pid_file.as_os_str()]);
        let environment = environment();
        let program = self.program(caller, words, stdio, &environment);
        let spec = CallSpec { job: Job::Create, main: false, terminal: false, timeout: None };
        let call = driver.start_call(event_loop, now, RuntimeCall { program, pid_file: pid_file.clone(), spec })?;
        // It is the container's; what the runtime has to say is in its log.
        driver.handle_output_closed(event_loop, now, call);
        Ok(call)
    }

    /// Has the runtime do something else with it. Its end is a child's.
    pub(super) fn call<S: Source + From<Watched>>(
        &self,
        driver: &mut Driver,
        event_loop: &EventLoop<S>,
        caller: &Caller<'_>,
        words: &[&str],
    ) -> io::Result<ChildId> {
        let null: OwnedFd = File::options().read(true).write(true).open("/dev/null")?.into();
        let stdio = [null.try_clone()?, null.try_clone()?, null];
        let environment = environment();
        driver.start_helper(event_loop, &self.program(caller, words.iter().map(OsStr::new), &stdio, &environment))
    }

    /// ```text
    /// ARGS... --log LOG --log-format json WORDS... ID
    /// ```
    fn program<'a, 'w>(
        &self,
        caller: &'a Caller<'_>,
        words: impl Iterator<Item = &'w OsStr>,
        stdio: &'a [OwnedFd; 3],
        environment: &'a [CString],
    ) -> Program<'a> {
        let mut args: Vec<OsString> = caller.runtime.args.iter().map(OsString::from).collect();
        args.extend(["--log".into(), self.bundle.log().into(), "--log-format".into(), "json".into()]);
        args.extend(words.map(OsStr::to_owned));
        args.push(self.id.clone());
        Program {
            path: caller.runtime.path.as_os_str(),
            args,
            stdio: stdio.each_ref().map(AsFd::as_fd),
            ties: Ties::OwnGroupDiesWithParent,
            mask: caller.mask,
            oom_score_adj: caller.oom_score_adj,
            environment: Environment::Exactly(environment),
        }
    }
}

/// The shim's own, but for what is meant for the shim alone: runtimes would have containers notify its service manager,
/// and pass its sockets on.
fn environment() -> Vec<CString> {
    let own = ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC"];
    let others = std::env::vars_os().filter(|(name, _)| !own.iter().any(|own| name == own));
    // The environment has no NUL in its variables.
    others.filter_map(|(name, value)| CString::new([name.as_bytes(), b"=", &value.into_vec()].concat()).ok()).collect()
}
