//! The limits of the service's own cgroup (G11 to G14). Lowering one, and reclaiming, may wait for the kernel: tasks do it.

use std::os::fd::AsFd;

use dunnage_runtime::generation::{ParentLimits, Tier};
use dunnage_runtime::sys::{Answer, Task};
use log::warn;

use super::Shim;

/// A task that changes or reclaims; there is one at a time.
#[derive(Debug)]
pub(super) struct LimitsTask {
    pub(super) key: u32,
    task: Task,
    job: Job,
}

#[derive(Clone, Copy, Debug)]
enum Job {
    Set,
    Reclaim,
}

impl Shim {
    pub(super) fn read_parent(&mut self) {
        let limits = self.cgroups.parent().ok().and_then(|parent| parent.cgroup().limits().ok());
        self.generations.handle_parent_read(limits);
    }

    pub(super) fn read_memory(&mut self) {
        let current = match self.cgroups.parent() {
            // Without the controller no limit can be written either, which says so.
            Ok(parent) => {
                parent.cgroup().memory_current().map(Option::unwrap_or_default).map_err(|error| error.to_string())
            }
            Err(failure) => Err(failure.to_string()),
        };
        self.generations.handle_memory(current);
    }

    pub(super) fn set_parent(&mut self, tier: Tier, keep_memory_max: bool) {
        let begun = self.begin_limits_task(Job::Set, |parent| {
            let kept = if keep_memory_max { parent.limits()?.memory_max } else { tier.memory_max };
            parent.set_limits(&Tier { memory_max: kept, ..tier })
        });
        if let Err(error) = begun {
            self.tell_limits(Some(error));
        }
    }

    pub(super) fn reclaim(&mut self, bytes: u64) {
        if let Err(error) = self.begin_limits_task(Job::Reclaim, |parent| parent.reclaim(bytes)) {
            warn!("cannot reclaim memory: {error}");
            self.generations.handle_reclaimed();
        }
    }

    fn begin_limits_task(
        &mut self,
        job: Job,
        work: impl FnOnce(&dunnage_runtime::cgroup::Cgroup) -> Result<(), dunnage_runtime::cgroup::CgroupError>,
    ) -> Result<(), String> {
        let key = self.take_key();
        let parent = self.cgroups.parent().map_err(|failure| failure.to_string())?.cgroup();
        let work = || work(parent).map(|()| Answer::default()).map_err(|error| error.to_string());
        let task = self.driver.start_task(&self.event_loop, &[parent.as_fd()], work);
        let task = task.and_then(|task| self.watch_task(task, key));
        self.limits = Some(LimitsTask { key, task: task.map_err(|error| error.to_string())?, job });
        Ok(())
    }

    pub(super) fn handle_limits_task(&mut self) {
        let Some(LimitsTask { task, job, .. }) = &mut self.limits else { return };
        let Some(answer) = task.advance() else { return };
        self.event_loop.unwatch(task);
        let job = *job;
        self.limits = None;
        let refused = answer.err().map(|error| error.to_string());
        match job {
            Job::Set => self.tell_limits(refused),
            Job::Reclaim => {
                if let Some(error) = refused {
                    warn!("cannot reclaim memory: {error}");
                }
                self.generations.handle_reclaimed();
            }
        }
    }

    /// What was refused, and what the files say now (G13).
    fn tell_limits(&mut self, refused: Option<String>) {
        let read = self.cgroups.parent().map_err(|failure| failure.to_string());
        let read = read.and_then(|parent| parent.cgroup().limits().map_err(|error| error.to_string()));
        let limits = match read {
            Ok(are) => ParentLimits { are, refused },
            Err(error) => {
                let are = self.generations.record().parent.unwrap_or(Tier::UNLIMITED);
                ParentLimits { are, refused: Some(refused.unwrap_or(error)) }
            }
        };
        self.generations.handle_parent_set(limits);
    }
}
