//! What the shim holds of everything that runs, from before its start until it is proven gone: output, notifications,
//! and its process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use dunnage_runtime::driver;
use dunnage_runtime::event_loop::{EventLoop, Interest};
use dunnage_runtime::generation::{Number, Process, Record, Role};
use dunnage_runtime::reaper::{ChildId, ExitStatus};
use dunnage_runtime::sys::{Pidfd, Spawned};
use log::warn;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::Shim;
use crate::error::Result;
use crate::generations::{Directories, Layout, Owner, Particulars, fifo};
use crate::notify::Inbox;
use crate::source::{ServiceSource, Source};
use crate::stream::Stream;

pub(super) const STREAMS: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

/// See the module.
#[derive(Debug)]
pub(super) struct Run {
    /// Its number in the names of what is watched.
    pub(super) key: u32,
    pub(super) particulars: Particulars,
    /// stdout and stderr, until their ends.
    pub(super) outputs: [Option<Pipe>; 2],
    /// A generation's.
    pub(super) inbox: Option<Inbox>,
    /// Its process, while that is watched.
    pub(super) leader: Option<ChildId>,
    /// How that ended.
    pub(super) exit_code: Option<i32>,
    /// Others may use its socket.
    pub(super) ready: bool,
}

/// The shim's end of an output.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) reader: File,
    /// There was no room in the log for what is in it.
    pub(super) paused: bool,
}

impl Pipe {
    fn watch(event_loop: &EventLoop<Source>, reader: File, key: u32, stream: Stream) -> std::io::Result<Self> {
        event_loop.watch(&reader, Source::Service(ServiceSource::Output(key, stream)), Interest::READABLE)?;
        Ok(Self { reader, paused: false })
    }
}

/// What fifos are named after.
pub(super) fn short_name(role: Role) -> String {
    match role {
        Role::Generation(number) => format!("g{number}"),
        Role::Sidecar => "sidecar".to_owned(),
        Role::Worker => "worker".to_owned(),
    }
}

pub(super) fn fifo_name(layout: &Layout, role: Role, stream: Stream) -> OsString {
    layout.places().map(|places| places.fifo(&short_name(role), stream.name())).unwrap_or_default()
}

/// What an earlier shim has left of runs: their fifos are read on, their control sockets bound anew (G29). What of that
/// fails is said; what runs runs on.
pub(super) fn adopt(
    event_loop: &EventLoop<Source>,
    layout: &Layout,
    directories: Option<&Directories>,
    record: &Record,
    mut particulars: BTreeMap<Role, Particulars>,
    next_key: &mut u32,
) -> BTreeMap<Role, Run> {
    let mut runs = BTreeMap::new();
    for role in record.roles() {
        let Some(particulars) = particulars.remove(&role) else { continue };
        *next_key += 1;
        let owner = particulars.owner;
        let mut run = Run::new(*next_key, particulars);
        if let Some(directories) = directories
            && let Err(error) = run.reopen(event_loop, layout, directories, role, owner)
        {
            warn!("{role} goes on with less: {error}");
        }
        runs.insert(role, run);
    }
    runs
}

impl Run {
    pub(super) fn new(key: u32, particulars: Particulars) -> Self {
        Self { key, particulars, outputs: [None, None], inbox: None, leader: None, exit_code: None, ready: false }
    }

    /// Makes its fifos, and for a generation the control socket in a home that has nothing in the way. Gives the ends that
    /// the process gets.
    pub(super) fn make(
        &mut self,
        event_loop: &EventLoop<Source>,
        layout: &Layout,
        directories: &Directories,
        role: Role,
    ) -> Result<[OwnedFd; 2]> {
        let owner = self.particulars.owner;
        if let Role::Generation(number) = role
            && let Some(home) = directories.make_home(layout, number, owner)?
        {
            home.clear()?;
            self.bind(event_loop, layout, directories, number, owner)?;
        }
        let mut end = |stream: Stream| {
            let ends = fifo::make(&directories.run, &fifo_name(layout, role, stream), owner)?;
            let pipe = Pipe::watch(event_loop, ends.reader, self.key, stream);
            self.outputs[stream as usize] = Some(pipe.map_err(|error| cannot_watch(&error))?);
            Ok(ends.writer)
        };
        Ok([end(Stream::Stdout)?, end(Stream::Stderr)?])
    }

    fn reopen(
        &mut self,
        event_loop: &EventLoop<Source>,
        layout: &Layout,
        directories: &Directories,
        role: Role,
        owner: Owner,
    ) -> Result<()> {
        for stream in STREAMS {
            match fifo::reopen(&directories.run, &fifo_name(layout, role, stream)) {
                Ok(reader) => {
                    let pipe =
                        Pipe::watch(event_loop, reader, self.key, stream).map_err(|error| cannot_watch(&error))?;
                    self.outputs[stream as usize] = Some(pipe);
                }
                Err(error) => warn!("the output of {role} is lost: {error}"),
            }
        }
        if let Role::Generation(number) = role {
            let socket = layout.sockets(number).and_then(|sockets| sockets.socket.symlink_metadata().ok());
            self.ready = socket.is_some_and(|socket| socket.mode() & 0o060 != 0);
            self.bind(event_loop, layout, directories, number, owner)?;
        }
        Ok(())
    }

    fn bind(
        &mut self,
        event_loop: &EventLoop<Source>,
        layout: &Layout,
        directories: &Directories,
        number: Number,
        owner: Owner,
    ) -> Result<()> {
        let Some(home) = directories.home(layout, number)? else { return Ok(()) };
        let inbox = home.bind_control(owner)?;
        let source = Source::Service(ServiceSource::Notify(self.key));
        event_loop.watch(&inbox.0, source, Interest::READABLE).map_err(|error| cannot_watch(&error))?;
        self.inbox = Some(inbox);
        Ok(())
    }
}

fn cannot_watch(error: &std::io::Error) -> crate::error::Error {
    crate::error::Error::new(format!("cannot watch it: {error}"))
}

impl Shim {
    /// Watches a process that an earlier shim has started, if it is still that one.
    pub(super) fn adopt(&mut self, role: Role, process: Process) {
        let watched = self.find_again(role, process);
        if let (Some(spawned), Some(run)) = (watched, self.runs.get_mut(&role)) {
            let child = self.driver.expect_child(spawned.pid);
            run.leader = Some(child);
            self.driver.watch_child(&self.event_loop, child, spawned);
            self.generations.handle_adopted(role, true);
        } else {
            self.generations.handle_adopted(role, false);
        }
    }

    /// The process by descriptor, after which its start time and cgroup were found as recorded (R9).
    fn find_again(&self, role: Role, process: Process) -> Option<Spawned> {
        let pid = Pid::from_raw(process.pid);
        let pidfd = Pidfd::open(pid).ok()?;
        let started = driver::start_time(pid)? == process.start_time;
        let membership = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let path = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
        let cgroups = &self.generations.record().run(role)?.cgroups;
        let inside = path.split('/').any(|name| cgroups.iter().any(|cgroup| cgroup.as_str() == name));
        // One that has ended is another's to reap.
        (started && inside && !pidfd.has_exited()).then_some(Spawned { pid, pidfd })
    }

    pub(super) fn signal_leader(&mut self, role: Role, signal: Signal, now: Instant) {
        if let Some(child) = self.runs.get(&role).and_then(|run| run.leader) {
            self.driver.signal_child(&self.event_loop, now, child, signal);
        }
    }

    pub(super) fn handle_leader_exit(&mut self, role: Role, status: ExitStatus, now: Instant) {
        if let Some(run) = self.runs.get_mut(&role) {
            run.leader = None;
            run.exit_code = Some(status.code());
        }
        log::info!("{role} {status}");
        self.generations.handle_exited(now, role);
    }

    /// Lets go of all that there is of a run: its output is logged to the end, its sockets and fifos are removed.
    pub(super) fn dismantle(&mut self, role: Role, now: Instant) {
        self.drain_output(role, now);
        let Some(run) = self.runs.remove(&role) else { return };
        if let Some(inbox) = &run.inbox {
            self.event_loop.unwatch(&inbox.0);
        }
        let (Some(directories), layout) = (&self.directories, &self.config.service.layout) else { return };
        for stream in STREAMS {
            if let Err(error) = fifo::unlink(&directories.run, &fifo_name(layout, role, stream)) {
                warn!("{error}");
            }
        }
        let Role::Generation(number) = role else { return };
        self.voices.forget(number);
        if let Err(error) = directories.retire(layout, number) {
            warn!("what {role} leaves is not removed: {error}");
        }
    }
}
