//! The rounds of a shim's loop, whether it is there for a container or for a service.

use std::time::Instant;

use dunnage_runtime::driver::Driver;
use dunnage_runtime::event_loop::{Event, EventLoop, Events};
use dunnage_runtime::sys::Signals;
use log::{debug, error, info};
use nix::sys::signal::Signal;

use crate::FAILED;
use crate::source::Source;

/// Caught from before the fork on. The first three are passed on; SIGHUP and SIGUSR2 are survived, and so is SIGXFSZ:
/// a log at the file size limit is an error of write(2).
pub(crate) const SIGNALS: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGCHLD,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGXFSZ,
];

/// How many events one round takes.
const EVENTS_PER_ROUND: usize = 32;

/// Of the parts of a shim, those that the loop itself needs.
pub(crate) struct Parts<'a> {
    pub(crate) event_loop: &'a mut EventLoop<Source>,
    pub(crate) signals: &'a mut Signals,
    pub(crate) driver: &'a mut Driver,
}

/// Who owns all parts of a shim, and routes each event to the one it concerns.
pub(crate) trait Owner {
    /// The shim's exit status, once all is done.
    fn exit_status(&self) -> Option<u8>;

    fn parts(&mut self) -> Parts<'_>;

    /// When a round is due without an event.
    fn next_timeout(&self) -> Option<Instant>;

    /// Something that is watched has an event.
    fn handle(&mut self, event: Event<Source>, now: Instant);

    /// Does what follows from the ends of processes, which others wait for.
    fn settle(&mut self, now: Instant);

    /// SIGTERM, SIGINT or SIGQUIT arrived.
    fn handle_termination(&mut self, signal: Signal, now: Instant);

    /// SIGUSR1 arrived.
    fn reopen_log(&mut self);

    /// Does what is due, what clients ask for, and what follows from all that.
    fn end_round(&mut self, now: Instant);
}

/// Goes round until all is done. Returns the shim's exit status.
pub(crate) fn run(owner: &mut impl Owner) -> u8 {
    let mut events = Events::with_capacity(EVENTS_PER_ROUND);
    loop {
        if let Some(status) = owner.exit_status() {
            return status;
        }
        let until = owner.next_timeout();
        if let Err(error) = owner.parts().event_loop.wait(&mut events, until) {
            // Never seen; without events there is nothing to go on with.
            error!("cannot wait for events: {error}");
            return FAILED;
        }
        let now = Instant::now();
        let mut signalled = false;
        for event in events.iter::<Source>() {
            match event.source {
                Source::Signals => signalled = true,
                _ => owner.handle(event, now),
            }
        }
        owner.settle(now);
        // After the exits of the round, whose processes have their owners.
        if signalled {
            handle_signals(owner, now);
        }
        owner.end_round(now);
    }
}

fn handle_signals(owner: &mut impl Owner, now: Instant) {
    let pending = owner.parts().signals.pending();
    for signal in pending {
        match signal {
            Signal::SIGCHLD => {
                let Parts { event_loop, driver, .. } = owner.parts();
                driver.handle_sigchld(event_loop, now);
            }
            Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT => {
                info!("{signal} arrived");
                owner.handle_termination(signal, now);
            }
            Signal::SIGUSR1 => owner.reopen_log(),
            other => debug!("{other} arrived, which means nothing here"),
        }
    }
}
