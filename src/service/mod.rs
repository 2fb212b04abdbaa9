//! The shim of a service: it owns all that its generations need, and carries out what `dunnage_runtime::generation`
//! decides about them.

mod actions;
mod answers;
mod build;
mod calls;
mod cgroups;
mod containers;
mod ending;
mod killing;
mod limits;
mod moving;
mod opening;
mod output;
mod record;
mod runs;
mod start;
mod starting;
mod status;
mod switching;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::time::Instant;

use dunnage_runtime::driver::Driver;
use dunnage_runtime::event_loop::{Event, EventLoop, Interest};
use dunnage_runtime::generation::{self, Generations, Role};
use dunnage_runtime::privileges;
use dunnage_runtime::sys::{self, Signals};
use nix::sys::signal::Signal;

use crate::cli::ServiceConfig;
use crate::control::{Control, Signallers};
use crate::error::{Context, Error, Result};
use crate::generations::notify::Voices;
use crate::generations::{Directories, Kept, Layout};
use crate::log::Log;
use crate::rounds::{self, Owner, Parts};
use crate::source::{ServiceSource, Source};
use crate::staged::bundle::CgroupsPath;
use crate::staged::container::Deletion;
use crate::start::OomScore;

use answers::Callers;
use cgroups::Cgroups;
use ending::Phase;
use limits::LimitsTask;
use output::Output;
use record::RecordFile;
use runs::Run;
pub(crate) use start::start;
use starting::Starting;
use switching::Hook;

/// The shim that stays.
pub(crate) struct Shim {
    config: Box<ServiceConfig>,
    event_loop: EventLoop<Source>,
    signals: Signals,
    driver: Driver,
    control: Control,
    callers: Callers,
    signallers: Signallers,
    generations: Generations,
    record: RecordFile,
    /// Of a unit nothing is in any.
    directories: Option<Directories>,
    cgroups: Cgroups,
    starts: Vec<Starting>,
    /// Containers that the runtime deletes.
    deletions: Vec<(Role, Deletion)>,
    runs: BTreeMap<Role, Run>,
    restarts: u64,
    output: Output,
    voices: Voices,
    limits: Option<LimitsTask>,
    hooks: Vec<Hook>,
    oom_score: OomScore,
    phase: Phase,
    orphans_told: u64,
    /// The number of what is watched next.
    next_key: u32,
}

/// What the start hands over.
struct Handed {
    config: Box<ServiceConfig>,
    log: Log,
    record: RecordFile,
    kept: Kept,
    signals: Signals,
    oom_score: OomScore,
}

impl Shim {
    /// Makes all that is needed, and finds out what an earlier shim has left. From here on clients are answered.
    fn prepare(handed: Handed) -> Result<Box<Self>> {
        let Handed { config, log, record, kept, signals, oom_score } = handed;
        let now = Instant::now();
        let event_loop = EventLoop::new().context(|| "cannot make an event loop")?;
        event_loop.watch(&signals, Source::Signals, Interest::READABLE).context(|| "cannot watch signals")?;
        let layout = &config.service.layout;
        if let Layout::Nested(..) = layout {
            CgroupsPath::check_host().map_err(Error::new)?;
        }
        let directories = Directories::open(layout)?;
        let linked = directories.as_ref().map(|directories| directories.link.target()).transpose()?.flatten();
        let voices = Voices::new(linked.and_then(|socket| layout.owner(&socket)));
        let Kept { record: state, particulars } = kept;
        let mut next_key = 0;
        let runs = runs::adopt(&event_loop, layout, directories.as_ref(), &state, particulars, &mut next_key);
        let mut shim = Box::new(Self {
            control: Control::open(&event_loop, &config.control_socket, now)?,
            cgroups: Cgroups::open(layout),
            output: Output::new(log).context(|| "cannot make a buffer")?,
            driver: Driver::new(config.timing),
            generations: Generations::new(now, decided_layout(layout), state, first_token()?),
            config,
            event_loop,
            signals,
            callers: Callers::default(),
            signallers: Signallers::default(),
            record,
            directories,
            starts: Vec::new(),
            deletions: Vec::new(),
            runs,
            restarts: 0,
            voices,
            limits: None,
            hooks: Vec::new(),
            oom_score,
            phase: Phase::Serving,
            orphans_told: 0,
            next_key,
        });
        // Before anybody is answered (G29).
        shim.settle(now);
        shim.delete_forgotten(now);
        privileges::lay_down();
        sys::give_back_memory();
        Ok(shim)
    }

    /// Serves until all is done. Returns the shim's exit status.
    pub(crate) fn run(mut self: Box<Self>) -> u8 {
        let status = rounds::run(&mut *self);
        self.close();
        status
    }

    /// A task has its answer, whosever it is.
    fn handle_task(&mut self, key: u32, now: Instant) {
        if self.record.is_written_by(key) {
            self.handle_written(now);
        } else if self.limits.as_ref().is_some_and(|task| task.key == key) {
            self.handle_limits_task();
        } else {
            self.handle_opening(key, now);
        }
    }

    fn handle_timeouts(&mut self, now: Instant) {
        if self.driver.next_timeout().is_some_and(|at| at <= now) {
            self.driver.handle_timeout(&self.event_loop, now);
        }
        self.generations.handle_timeout(now);
        if self.control.next_timeout().is_some_and(|at| at <= now) {
            self.control.handle_timeout(&self.event_loop, now);
        }
        self.handle_cgroup_timeouts(now);
        self.handle_launch_timeouts(now);
        self.handle_runtime_timeouts(now);
        self.handle_hook_timeouts(now);
        self.output.handle_timeout(now);
    }

    fn take_key(&mut self) -> u32 {
        // Four billion later one comes again, when nobody remembers the first.
        self.next_key = self.next_key.wrapping_add(1);
        self.next_key
    }
}

impl Owner for Shim {
    fn exit_status(&self) -> Option<u8> {
        match self.phase {
            Phase::Done(status) => Some(status),
            _ => None,
        }
    }

    fn parts(&mut self) -> Parts<'_> {
        Parts { event_loop: &mut self.event_loop, signals: &mut self.signals, driver: &mut self.driver }
    }

    fn next_timeout(&self) -> Option<Instant> {
        [
            self.driver.next_timeout(),
            self.generations.next_timeout(),
            self.control.next_timeout(),
            self.cgroups.next_timeout(),
            self.output.next_timeout(),
            self.starts.iter().filter_map(Starting::next_timeout).min(),
            self.deletions.iter().filter_map(|(_, deletion)| deletion.next_timeout()).min(),
            self.hooks.iter().filter_map(|hook| hook.kill_at).min(),
            self.phase.next_timeout(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn handle(&mut self, event: Event<Source>, now: Instant) {
        match event.source {
            Source::Process(watched) => self.driver.handle_exit(&self.event_loop, now, watched),
            Source::ControlListener | Source::ControlConnection(_) => {
                self.control.handle(&self.event_loop, event, now);
            }
            Source::Journal => self.output.log.handle_writable(),
            Source::Service(ServiceSource::Task(key)) => self.handle_task(key, now),
            Source::Service(ServiceSource::Birth(key)) => self.handle_birth(key, now),
            Source::Service(ServiceSource::Cgroup(key)) => self.handle_cgroup(key, now),
            Source::Service(ServiceSource::Output(key, stream)) => self.read_output(key, stream, now),
            Source::Service(ServiceSource::Notify(key)) => self.receive_notifications(key, now),
            // The loop's own, or of containers.
            _ => {}
        }
    }

    // Carries out what is decided, and has decided what follows from that, until there is nothing left.
    fn settle(&mut self, now: Instant) {
        loop {
            if let Some(outcome) = self.driver.poll_outcome() {
                self.handle_outcome(&outcome, now);
            } else if let Some(action) = self.generations.poll_action() {
                self.carry_out(action, now);
            } else {
                return;
            }
        }
    }

    fn handle_termination(&mut self, _: Signal, now: Instant) {
        self.terminate(now);
    }

    fn reopen_log(&mut self) {
        self.output.log.reopen();
    }

    fn end_round(&mut self, now: Instant) {
        self.handle_timeouts(now);
        self.settle(now);
        self.serve(now);
        self.settle(now);
        self.tell_news(now);
        self.resume_output();
        self.go_on_ending(now);
    }
}

/// What of a layout makes a difference to decisions.
fn decided_layout(layout: &Layout) -> generation::Layout {
    match layout {
        Layout::Flat(_) | Layout::Nested(..) => generation::Layout::Overlapping,
        Layout::Foreign(..) => {
            let reason = layout.reason().unwrap_or("in this layout all generations have the canonical socket itself");
            generation::Layout::Foreign(reason.to_owned())
        }
        Layout::Barred(_, bar) => generation::Layout::Barred(bar.reason.clone()),
        Layout::Unit => generation::Layout::Unit,
    }
}

/// Where the tokens of this shim's gates begin, far from those of any other.
fn first_token() -> Result<u64> {
    let mut bytes = [0; 8];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.context(|| "cannot read /dev/urandom")?;
    // Half of all numbers are left to count on.
    Ok(u64::from_ne_bytes(bytes) >> 1)
}
