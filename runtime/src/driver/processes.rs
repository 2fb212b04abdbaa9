//! The processes of a shim, each by what it is to the reaper.

use log::{debug, warn};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpgid};

use crate::event_loop::{EventLoop, Interest, Source};
use crate::reaper::{CallId, ChildId, ExitStatus};
use crate::sys::Pidfd;

/// The name of a watched process in the event loop; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched(pub u32);

/// What a process is to the reaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The runtime of a call.
    Runtime(CallId),
    /// The process that the runtime of a failed call left, which was killed.
    Leftover(CallId),
    /// A registered child.
    Child(ChildId),
}

#[derive(Debug)]
pub(super) struct Process {
    watched: Watched,
    pub(super) role: Role,
    pub(super) pid: Pid,
    pidfd: Pidfd,
    /// Whether the event loop tells of its end. If not, each SIGCHLD may be about it.
    is_watched: bool,
}

/// Whether a process has ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    NotYet,
    /// It is a zombie, which its own parent is to reap.
    Unreaped,
    /// It was reaped, by this process just now or by its own parent before.
    Gone(ExitStatus),
}

impl Process {
    /// Reaps the process if it is this one's child and has ended.
    pub(super) fn end(&self) -> End {
        match self.pidfd.try_reap() {
            Ok(Some(status)) => End::Gone(status),
            Ok(None) => End::NotYet,
            Err(error) if error.raw_os_error() == Some(Errno::ECHILD as i32) => {
                if !self.pidfd.has_exited() {
                    End::NotYet
                } else if self.pidfd.is_unreaped() {
                    End::Unreaped
                } else {
                    End::Gone(self.pidfd.status_of_reaped().unwrap_or(ExitStatus::Unknown))
                }
            }
            Err(error) => {
                warn!("cannot learn how process {} ended: {error}", self.pid);
                End::Gone(ExitStatus::Unknown)
            }
        }
    }

    fn signal(&self, signal: Signal) {
        debug!("{signal} to process {}", self.pid);
        match self.pidfd.signal(signal) {
            Ok(()) => {}
            // Reaped by its own parent.
            Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => {}
            Err(error) => warn!("cannot send {signal} to process {}: {error}", self.pid),
        }
    }

    fn signal_group(&self, signal: Signal) {
        if let Err(error) = self.pidfd.signal_group(self.pid, signal) {
            debug!("cannot send {signal} to the group of process {}: {error}", self.pid);
        }
    }

    /// Whether it leads a group that has its number for certain. One that is not this process's to reap may be reaped at
    /// any moment, and the number pass to another group.
    fn leads_its_group(&self) -> bool {
        self.pidfd.is_child().unwrap_or(false) && getpgid(Some(self.pid)) == Ok(self.pid)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Processes {
    list: Vec<Process>,
    next: u32,
    /// One is not watched whose SIGCHLD may have been seen before it was known.
    look_again: bool,
}

impl Processes {
    /// Takes a process in, and has the event loop tell of its end: at once, if that has come already.
    pub(super) fn watch<S: Source + From<Watched>>(
        &mut self,
        event_loop: &EventLoop<S>,
        role: Role,
        pid: Pid,
        pidfd: Pidfd,
    ) {
        let watched = Watched(self.next);
        self.next += 1;
        let watch = event_loop.watch(&pidfd, S::from(watched), Interest::READABLE);
        if let Err(error) = &watch {
            // At the user's limit of watches, or without memory.
            warn!("cannot watch process {pid}, whose end is noticed at the next SIGCHLD: {error}");
            self.look_again = true;
        }
        self.list.push(Process { watched, role, pid, pidfd, is_watched: watch.is_ok() });
    }

    /// Stops watching the process in that role.
    pub(super) fn give_up<S: Source>(&mut self, event_loop: &EventLoop<S>, role: Role) {
        if let Some(position) = self.list.iter().position(|process| process.role == role) {
            let process = self.list.remove(position);
            event_loop.unwatch(&process.pidfd);
        }
    }

    /// The process in that role.
    pub(super) fn find(&self, role: Role) -> Option<&Process> {
        self.list.iter().find(|process| process.role == role)
    }

    /// The process of that name.
    pub(super) fn named(&self, watched: Watched) -> Option<&Process> {
        self.list.iter().find(|process| process.watched == watched)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.list.iter()
    }

    /// Those that the event loop cannot watch.
    pub(super) fn unwatched(&self) -> Vec<Watched> {
        self.list.iter().filter(|process| !process.is_watched).map(|process| process.watched).collect()
    }

    /// Whether those are to be looked at without a SIGCHLD.
    pub(super) fn take_look_again(&mut self) -> bool {
        std::mem::take(&mut self.look_again)
    }

    /// Signals the process in that role, if there is one.
    pub(super) fn signal(&self, role: Role, signal: Signal) {
        if let Some(process) = self.find(role) {
            process.signal(signal);
        }
    }

    /// Signals the process in that role, and its group if it leads one.
    pub(super) fn signal_with_group(&self, role: Role, signal: Signal) {
        if let Some(process) = self.find(role) {
            if process.leads_its_group() {
                process.signal_group(signal);
            }
            process.signal(signal);
        }
    }

    /// Kills a runtime that was not reaped, and its group. Whether there is one.
    pub(super) fn kill_runtime(&self, call: CallId) -> bool {
        let Some(process) = self.find(Role::Runtime(call)) else { return false };
        warn!("killing the runtime (process {}) and its group", process.pid);
        // Before it made its own group it is on its own, and this fails.
        process.signal_group(Signal::SIGKILL);
        process.signal(Signal::SIGKILL);
        true
    }

    /// Gives up memory that is not needed for what there is now.
    pub(super) fn shrink(&mut self) {
        self.list.shrink_to_fit();
    }
}
