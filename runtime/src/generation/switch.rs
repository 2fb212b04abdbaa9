//! Ready and switch: which generation clients reach (G15 to G19).

use super::types::{Failure, Layout, Outcome, Reply, RequestId};
use super::writes::Then;
use super::{Action, Generations, Number};

/// A switch in progress: its intent is written, then the link is renamed.
#[derive(Debug)]
pub(super) struct Switch {
    request: RequestId,
    number: Number,
    /// The intent is written.
    renaming: bool,
}

impl Generations {
    pub(super) fn make_ready(&mut self, request: RequestId, number: Number) -> Result<(), Failure> {
        if !self.is_serving(number) {
            return Err(Failure::NotFound(format!("running process of generation {number}")));
        }
        self.actions.push_back(Action::Widen(request, number));
        Ok(())
    }

    /// The answer to [`Action::Widen`].
    pub fn handle_widened(&mut self, request: RequestId, number: Number, result: Result<(), String>) {
        if result.is_ok() {
            self.report(Outcome::Ready(number));
        }
        self.answer(request, result.map(|()| Reply::Done).map_err(Failure::NotSwitchable));
    }

    pub(super) fn switch(&mut self, request: RequestId, number: Number) -> Result<(), Failure> {
        match &self.layout {
            Layout::Overlapping => {}
            Layout::Foreign(reason) | Layout::Barred(reason) => return Err(Failure::NotSwitchable(reason.clone())),
            Layout::Unit => return Err(Failure::NotSwitchable("a systemd unit owns the processes".into())),
        }
        if self.shutdown.is_some() {
            return Err(Failure::ShuttingDown);
        }
        if self.switch.is_some() || self.reading_link {
            return Err(Failure::Busy("another switch is in progress".into()));
        }
        self.check_switchable(number)?;
        self.record.switching = Some(number);
        self.switch = Some(Switch { request, number, renaming: false });
        self.save_then(Then::Rename(request));
        Ok(())
    }

    fn check_switchable(&self, number: Number) -> Result<(), Failure> {
        if self.is_serving(number) {
            return Ok(());
        }
        Err(Failure::NotSwitchable(format!("generation {number} does not run, or is being killed")))
    }

    /// The intent is written. Much may have happened meanwhile.
    pub(super) fn handle_intent_recorded(&mut self, request: RequestId, result: Result<(), String>) {
        let Some(switch) = self.switch.as_mut().filter(|switch| switch.request == request) else { return };
        switch.renaming = true;
        let number = switch.number;
        let unrecorded = |error| Failure::NotSwitchable(format!("the record could not be written: {error}"));
        match result.map_err(unrecorded).and_then(|()| self.check_switchable(number)) {
            Ok(()) => self.actions.push_back(Action::Switch(number)),
            Err(failure) => self.refuse_switch(failure),
        }
    }

    /// The answer to [`Action::Switch`], at once: the link was renamed, or is as it was.
    pub fn handle_switched(&mut self, number: Number, result: Result<(), String>) {
        if self.switch.as_ref().is_none_or(|switch| switch.number != number || !switch.renaming) {
            return;
        }
        if let Err(reason) = result {
            return self.refuse_switch(Failure::NotSwitchable(reason));
        }
        let Some(switch) = self.switch.take() else { return };
        self.record.current = Some(number);
        self.record.switching = None;
        self.report(Outcome::Switched(number));
        self.actions.push_back(Action::RunHook(number));
        // The link leads there, whether or not the record says so.
        self.save_then(Then::Answer(switch.request, Ok(Reply::Done)));
    }

    fn refuse_switch(&mut self, failure: Failure) {
        if let Some(switch) = self.switch.take() {
            self.record.switching = None;
            self.save();
            self.answer(switch.request, Err(failure));
        }
    }

    /// The answer to [`Action::ReadLink`] after a restart: the link is the truth (G16).
    pub fn handle_link(&mut self, number: Option<Number>) {
        if std::mem::take(&mut self.reading_link) {
            self.record.switching = None;
            self.record.current = number;
            self.save();
        }
    }
}
