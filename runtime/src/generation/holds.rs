//! Builds that no cold start may run (G31).

use super::Generations;
use super::types::{Failure, Reply, RequestId, Source};
use super::writes::Then;

impl Generations {
    pub(super) fn hold(&mut self, request: RequestId, build: String, reason: String) {
        self.record.holds.insert(build, reason);
        self.save_then(Then::Confirm(request, Reply::Done));
    }

    pub(super) fn release(&mut self, request: RequestId, build: &str) -> Result<(), Failure> {
        let Some(reason) = self.record.holds.remove(build) else {
            return Err(Failure::NotFound(format!("hold of build {build}")));
        };
        self.save_then(Then::Released(request, build.to_owned(), reason));
        Ok(())
    }

    /// A hold that would be back after a restart is not gone.
    pub(super) fn finish_release(
        &mut self,
        request: RequestId,
        build: String,
        reason: String,
        result: Result<(), String>,
    ) {
        if result.is_err() {
            self.record.holds.entry(build).or_insert(reason);
            self.save();
        }
        self.answer(request, result.map(|()| Reply::Done).map_err(Failure::Record));
    }

    /// Why the build may not be started from there, if it may not.
    pub(super) fn held(&self, source: &Source, build: &str) -> Option<String> {
        let reason = self.record.holds.get(build).filter(|_| matches!(source, Source::Live { .. }))?;
        Some(format!("build {build} is held: {reason}"))
    }
}
