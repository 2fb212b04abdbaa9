//! The end of a container that is proven gone: the runtime forgets it.

use std::time::{Duration, Instant};

use dunnage_runtime::driver::Watched;
use dunnage_runtime::event_loop::Source;
use dunnage_runtime::reaper::{ChildId, Outcome};
use log::warn;

use super::call::Container;
use super::creation::{Context, end_of};
use super::log::last_error;

/// A runtime that deletes a container.
#[derive(Debug)]
pub(crate) struct Deletion {
    container: Container,
    runtime: ChildId,
    /// None: it was killed.
    until: Option<Instant>,
}

impl Deletion {
    /// Begins. The runtime may never have heard of the container. If it cannot be started, that is said here.
    pub(crate) fn begin<S: Source + From<Watched>>(
        cx: &mut Context<'_, S>,
        container: Container,
        limit: Duration,
    ) -> Option<Self> {
        match container.call(cx.driver, cx.event_loop, &cx.caller, &["delete", "--force"]) {
            Ok(runtime) => Some(Self { container, runtime, until: Some(cx.now + limit) }),
            Err(error) => {
                warn!("cannot delete container {}: {error}", container.id.display());
                None
            }
        }
    }

    /// Whether it is over with this.
    pub(crate) fn handle(&self, outcome: &Outcome) -> bool {
        let Some((_, status)) = end_of(outcome).filter(|&(child, _)| child == self.runtime) else { return false };
        if !status.success() {
            let error = last_error(&self.container.bundle.log()).unwrap_or_default();
            warn!("cannot delete container {}: the runtime {status}: {error}", self.container.id.display());
        }
        true
    }

    /// When [`Deletion::handle_timeout`] is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.until
    }

    /// Ends a runtime that has had its time (R12).
    pub(crate) fn handle_timeout<S: Source + From<Watched>>(&mut self, cx: &mut Context<'_, S>) {
        if self.until.take_if(|until| *until <= cx.now).is_some() {
            cx.driver.cancel_child(cx.event_loop, cx.now, self.runtime);
        }
    }
}
