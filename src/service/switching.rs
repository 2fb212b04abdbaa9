//! Which generation clients reach, and whose word the host hears (G15 to G19).

use std::ffi::{CString, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::time::Instant;

use dunnage_runtime::event_loop::Interest;
use dunnage_runtime::generation::{Number, RequestId, Role};
use dunnage_runtime::reaper::{ChildId, ExitStatus};
use dunnage_runtime::sys::{Environment, Program, Ties};
use log::{info, warn};

use super::Shim;
use super::answers::event_of;
use crate::control::reply::{EventKind, GenerationEvent};
use crate::error::{Context, Error, Result};
use crate::generations::{hook, notify};
use crate::source::{ServiceSource, Source};

/// For how many turns' worth of messages the successor is listened to at its switch: more than can wait, as systemd sets the
/// longest queue (`net.unix.max_dgram_qlen`) to 512.
const TURNS_AT_SWITCH: u32 = 128;

/// A switch hook that runs.
#[derive(Debug)]
pub(super) struct Hook {
    child: ChildId,
    number: Number,
    /// When its time is over; none once it was killed.
    pub(super) kill_at: Option<Instant>,
}

impl Shim {
    pub(super) fn widen(&mut self, request: RequestId, number: Number) {
        let widened = self.home_and_user(number).and_then(|(home, user)| home.widen(user));
        if let (Ok(()), Some(run)) = (&widened, self.runs.get_mut(&Role::Generation(number))) {
            run.ready = true;
        }
        self.generations.handle_widened(request, number, widened.map_err(|error| error.to_string()));
    }

    /// Where a generation's sockets are, and whose they are to be.
    fn home_and_user(&self, number: Number) -> Result<(crate::generations::Home, nix::unistd::Uid)> {
        let absent = || Error::new(format!("generation {number} has no socket"));
        let run = self.runs.get(&Role::Generation(number)).ok_or_else(absent)?;
        let directories = self.directories.as_ref().ok_or_else(absent)?;
        let home = directories.home(&self.config.service.layout, number)?.ok_or_else(absent)?;
        Ok((home, run.particulars.owner.user))
    }

    pub(super) fn switch(&mut self, number: Number, now: Instant) {
        // So that all it has said counts.
        if let Some(key) = self.runs.get(&Role::Generation(number)).map(|run| run.key) {
            let _ = (0..TURNS_AT_SWITCH).find(|_| !self.receive_some(key, now));
        }
        let switched = self.home_and_user(number).and_then(|(home, user)| match &self.directories {
            Some(directories) => directories.switch(&home, user),
            None => Err(Error::new("there is no canonical socket")),
        });
        if switched.is_ok() {
            self.pass_on(number);
            if let Some(run) = self.runs.get_mut(&Role::Generation(number)) {
                run.ready = true;
            }
        }
        self.generations.handle_switched(number, switched.map_err(|error| error.to_string()));
    }

    /// From now on it speaks for the service; the host hears what it said last (G19).
    fn pass_on(&mut self, number: Number) {
        let said = self.voices.switch(number);
        let inbox = self.runs.get(&Role::Generation(number)).and_then(|run| run.inbox.as_ref());
        if let (Some(said), Some(inbox), Some(host)) = (said, inbox, &self.config.sdnotify_socket)
            && let Err(error) = inbox.send(&said, host)
        {
            warn!("cannot tell the host what generation {number} has notified: {}", error.desc());
        }
    }

    /// A generation says something of itself.
    pub(super) fn receive_notifications(&mut self, key: u32, now: Instant) {
        let more = self.receive_some(key, now);
        let Some(run) = self.runs.values().find(|run| run.key == key).filter(|_| more) else { return };
        if let Some(inbox) = &run.inbox {
            let source = Source::Service(ServiceSource::Notify(key));
            if let Err(error) = self.event_loop.rearm(&inbox.0, source, Interest::READABLE) {
                warn!("cannot watch a control socket any more: {error}");
            }
        }
    }

    /// Takes in what a turn takes. Whether there may be more.
    fn receive_some(&mut self, key: u32, now: Instant) -> bool {
        let Some((&role, run)) = self.runs.iter().find(|(_, run)| run.key == key) else { return false };
        let (Role::Generation(number), Some(inbox)) = (role, &run.inbox) else { return false };
        let control = &mut self.control;
        let host = self.config.sdnotify_socket.as_ref();
        let received = notify::receive(inbox, number, &mut self.voices, host, |message| {
            let text = String::from_utf8_lossy(message).into_owned();
            let mut event = event_of(EventKind::Notified, role, None);
            event.generation = event.generation.map(|its| GenerationEvent { message: Some(text), ..its });
            control.tell(event, now);
        });
        if let Some(failure) = received.failure {
            warn!("{failure}");
        }
        received.more
    }

    pub(super) fn read_link(&mut self) {
        let target = self.directories.as_ref().map(|directories| directories.link.target()).transpose();
        let owner = match target {
            Ok(target) => target.flatten().and_then(|socket| self.config.service.layout.owner(&socket)),
            Err(error) => {
                warn!("{error}");
                None
            }
        };
        self.generations.handle_link(owner);
    }

    pub(super) fn run_hook(&mut self, number: Number, now: Instant) {
        let Some(hook) = &self.config.service.switch_hook else { return };
        let socket = self.config.service.layout.sockets(number).map(|sockets| sockets.socket).unwrap_or_default();
        let environment = hook::environment(&OsString::from(&self.config.name), number, &socket);
        let variable = |(name, value): (&str, OsString)| {
            // Neither a name nor a path has a NUL in it.
            CString::new([name.as_bytes(), b"=", &value.into_vec()].concat()).ok()
        };
        let environment: Vec<CString> = environment.into_iter().filter_map(variable).collect();
        let what = || format!("cannot start the switch hook {}", hook.path.display());
        let started = File::options().read(true).write(true).open("/dev/null").context(what).and_then(|null| {
            let program = Program {
                path: hook.path.as_os_str(),
                args: hook.args.iter().map(OsString::from).collect(),
                stdio: [null.as_fd(), null.as_fd(), null.as_fd()],
                ties: Ties::OwnGroupDiesWithParent,
                mask: self.signals.original_mask(),
                oom_score_adj: self.oom_score.original,
                environment: Environment::Exactly(&environment),
            };
            self.driver.start_helper(&self.event_loop, &program).context(what)
        });
        match started {
            Ok(child) => self.hooks.push(Hook { child, number, kill_at: Some(now + hook.timeout) }),
            Err(error) => warn!("{error}"),
        }
    }

    pub(super) fn handle_hook_exit(&mut self, child: ChildId, status: ExitStatus) {
        let Some(position) = self.hooks.iter().position(|hook| hook.child == child) else { return };
        let Hook { number, .. } = self.hooks.swap_remove(position);
        if status.success() {
            info!("the switch hook for generation {number} {status}");
        } else {
            warn!("the switch hook for generation {number} {status}");
        }
    }

    pub(super) fn handle_hook_timeouts(&mut self, now: Instant) {
        let due = self.hooks.iter_mut().filter(|hook| hook.kill_at.is_some_and(|at| at <= now));
        let due: Vec<ChildId> = due.map(|hook| (hook.kill_at = None, hook.child).1).collect();
        for child in due {
            warn!("the switch hook does not end in time: killing it");
            self.driver.cancel_child(&self.event_loop, now, child);
        }
    }
}
