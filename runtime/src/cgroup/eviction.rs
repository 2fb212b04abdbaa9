//! The end of all processes of a child, and the proof of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use log::{debug, warn};
use nix::errno::Errno;

use super::backoff::Backoff;
use super::error::CgroupError;
use super::left::Left;
use super::name::Name;
use super::node::{Cgroup, Kind};
use super::parent::Parent;
use super::watched::Watched;

/// What is to be done with what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Kill it (G20).
    Kill,
    /// Kill it, but leave a cgroup alone, and unmarked, that is empty already (G22).
    KillUnlessEmpty,
}

/// How far an [`Eviction`] is.
#[derive(Debug)]
pub enum Proof {
    /// Nothing is in it: proven.
    Empty,
    /// Something is left; to be asked again.
    Pending,
    /// Something was left at the deadline.
    Unproven(Unproven),
}

/// Why nothing is proven.
#[derive(Debug)]
pub struct Unproven {
    /// What is left.
    pub left: Left,
    /// What kept the kernel from killing it: [`CgroupError::NoKill`] on an old one.
    pub obstacle: Option<CgroupError>,
}

/// Kills what is in a child and below it, again and again until nothing is left, frozen or not.
///
/// One write of `cgroup.kill` (Linux 5.14) kills all that is in at that moment, nested and frozen ones, and what they are
/// forking. What is moved in later it does not. Of that nothing notifies, nor of a removal by another; so a kill that is
/// pending is repeated at growing intervals, up to half a second.
#[derive(Debug)]
pub struct Eviction {
    name: Name,
    intent: Intent,
    deadline: Instant,
    target: Option<Watched>,
    repeat: Backoff,
    killed: bool,
    mark_failure: Option<io::Error>,
    obstacle: Option<CgroupError>,
}

impl Eviction {
    /// Of the child `name`. Nothing happens before the first [`Eviction::advance`].
    pub fn begin(
        parent: &Parent,
        name: Name,
        intent: Intent,
        now: Instant,
        deadline: Instant,
    ) -> Result<Self, CgroupError> {
        let target = match parent.child(&name)? {
            Some(cgroup) => Watched::open(cgroup)?,
            None => None,
        };
        let repeat = Backoff::new(now);
        Ok(Self { name, intent, deadline, target, repeat, killed: false, mark_failure: None, obstacle: None })
    }

    /// What to watch for `Interest::PRIORITY`; nothing if there is no such cgroup.
    #[must_use]
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.target.as_ref().map(Watched::as_fd)
    }

    /// When to advance without an event.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        self.repeat.due().min(self.deadline)
    }

    /// Why the cgroup could not be marked as killed, if so: then only a record can tell (G21).
    #[must_use]
    pub fn mark_failure(&self) -> Option<&io::Error> {
        self.mark_failure.as_ref()
    }

    /// What keeps the kernel from killing it, as of the last [`Eviction::advance`].
    #[must_use]
    pub fn obstacle(&self) -> Option<&CgroupError> {
        self.obstacle.as_ref()
    }

    /// Whether `cgroup.kill` was written.
    #[must_use]
    pub fn has_killed(&self) -> bool {
        self.killed
    }

    /// Looks, and kills what is left. Any other error than those of [`Unproven`] means that nothing could be read.
    pub fn advance(&mut self, parent: &Parent, now: Instant) -> Result<Proof, CgroupError> {
        let must_kill = self.intent == Intent::Kill && !self.killed;
        if must_kill || self.is_populated()? {
            self.kill(parent);
        }
        // Read after the kill: also at the deadline this is the last word.
        if !self.is_populated()? {
            return Ok(Proof::Empty);
        }
        if now < self.deadline {
            self.repeat.wait(now);
            return Ok(Proof::Pending);
        }
        let left = self.target.as_ref().map(|target| target.cgroup.left()).unwrap_or_default();
        Ok(Proof::Unproven(Unproven { left, obstacle: self.obstacle.take() }))
    }

    /// A cgroup that is absent is empty (G23).
    fn is_populated(&self) -> Result<bool, CgroupError> {
        self.target.as_ref().map_or(Ok(false), Watched::is_populated)
    }

    fn kill(&mut self, parent: &Parent) {
        let Some(target) = &self.target else { return };
        if !self.killed && self.mark_failure.is_none() {
            self.mark_failure = mark(&target.cgroup).err();
        }
        self.obstacle = match kill(&target.cgroup) {
            Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => {
                kill_domain(parent, &target.cgroup, &self.name).err()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Either the file is missing, or all of the cgroup; then the next look says so.
                Some(CgroupError::NoKill { cgroup: target.cgroup.path().to_owned() })
            }
            result => result.err().map(|error| target.cgroup.refusal("cgroup.kill", "1", error)),
        };
        match &self.obstacle {
            None => self.killed = true,
            Some(obstacle) => debug!("{obstacle}"),
        }
    }
}

/// Marks it as killed, before it is.
fn mark(cgroup: &Cgroup) -> io::Result<()> {
    let path = cgroup.path().display();
    cgroup.mark_killed().inspect_err(|error| warn!("{path} cannot be marked as killed: {error}"))
}

fn kill(cgroup: &Cgroup) -> io::Result<()> {
    cgroup.directory.write("cgroup.kill", "1")
}

/// Kills a threaded child, which refuses it, at its domain root (G25). A child is threaded only where its parent is the
/// root or threaded itself, and then the kernel lets no other child have processes, unless they are threaded as well;
/// those would be killed too, so the kill is refused.
fn kill_domain(parent: &Parent, child: &Cgroup, name: &Name) -> Result<(), CgroupError> {
    let root = parent.cgroup();
    match root.kind()? {
        Kind::DomainThreaded => {}
        // Its domain root is above the parent, which is not this service's to kill.
        kind => return Err(CgroupError::threaded(root, kind)),
    }
    let siblings = parent.directory().directories().map_err(|error| root.failure("look through", error))?;
    let siblings = siblings.into_iter().filter(|sibling| sibling.to_str() != Some(name.as_str()));
    let siblings = siblings.filter_map(|sibling| parent.directory().open_below(sibling).ok());
    let siblings: Vec<Cgroup> = siblings.map(|directory| Cgroup { directory }).collect();
    let others: Vec<String> = siblings
        .iter()
        .filter(|sibling| match sibling.events() {
            Ok(events) => events.populated,
            Err(error) => !matches!(error, CgroupError::Absent { .. }),
        })
        .map(|sibling| sibling.path().display().to_string())
        .collect();
    if !others.is_empty() {
        return Err(CgroupError::SharedDomain { cgroup: child.path().to_owned(), others });
    }
    // They take the kill as well.
    for sibling in &siblings {
        let _ = mark(sibling);
    }
    kill(root).map_err(|error| root.refusal("cgroup.kill", "1", error))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;

    /// A directory with files as a cgroup has them, for what no kernel here does.
    struct Fake {
        path: PathBuf,
        parent: Parent,
    }

    impl Fake {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dunnage-eviction-{test}-{}", std::process::id()));
            fs::create_dir_all(path.join("gen-1")).unwrap();
            Self { parent: Parent::fake(&path), path }
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.path.join("gen-1").join(file), text).unwrap();
        }

        fn read(&self, file: &str) -> String {
            fs::read_to_string(self.path.join("gen-1").join(file)).unwrap()
        }

        fn evict(&self, now: Instant) -> Eviction {
            let name = "gen-1".parse().unwrap();
            Eviction::begin(&self.parent, name, Intent::Kill, now, now + Duration::from_millis(100)).unwrap()
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.path);
        }
    }

    #[test]
    fn g23_without_cgroup_kill_only_populated_0_is_a_proof() {
        let fake = Fake::new("no-kill");
        fake.write("cgroup.procs", "");
        fake.write("cgroup.events", "populated 1\n");
        let now = Instant::now();
        let mut eviction = fake.evict(now);
        assert!(matches!(eviction.advance(&fake.parent, now).unwrap(), Proof::Pending));
        let Proof::Unproven(unproven) = eviction.advance(&fake.parent, now + Duration::from_millis(100)).unwrap()
        else {
            panic!("a proof")
        };
        assert!(matches!(unproven.obstacle, Some(CgroupError::NoKill { .. })), "{unproven:?}");
        assert!(!eviction.has_killed());
        fake.write("cgroup.events", "populated 0\n");
        assert!(matches!(fake.evict(now).advance(&fake.parent, now).unwrap(), Proof::Empty));
    }

    #[test]
    fn g20_the_kill_is_repeated_without_notification_while_anything_is_left() {
        let fake = Fake::new("repeat");
        fake.write("cgroup.procs", "");
        fake.write("cgroup.events", "populated 1\n");
        fake.write("cgroup.kill", "0");
        let mut now = Instant::now();
        let mut eviction = fake.evict(now);
        let mut waits = Vec::new();
        while let Proof::Pending = eviction.advance(&fake.parent, now).unwrap() {
            assert_eq!(fake.read("cgroup.kill"), "1");
            fake.write("cgroup.kill", "0");
            waits.push((eviction.next_timeout() - now).as_millis());
            now = eviction.next_timeout();
        }
        // Up to the deadline, and then once more.
        assert_eq!(waits, [5, 10, 20, 40, 25]);
        assert_eq!(fake.read("cgroup.kill"), "1");
    }

    #[test]
    fn g20_at_the_deadline_the_file_is_read_once_more() {
        let fake = Fake::new("last");
        fake.write("cgroup.events", "populated 1\n");
        fake.write("cgroup.kill", "");
        let now = Instant::now();
        let mut eviction = fake.evict(now);
        assert!(matches!(eviction.advance(&fake.parent, now).unwrap(), Proof::Pending));
        fake.write("cgroup.events", "populated 0\n");
        let late = now + Duration::from_secs(1);
        assert!(matches!(eviction.advance(&fake.parent, late).unwrap(), Proof::Empty));
    }

    #[test]
    fn g23_what_cannot_be_read_is_an_error_and_no_proof() {
        let fake = Fake::new("unreadable");
        fake.write("cgroup.kill", "");
        fake.write("cgroup.events", "something else\n");
        let now = Instant::now();
        let error = fake.evict(now).advance(&fake.parent, now).unwrap_err();
        assert!(matches!(error, CgroupError::Io { .. }), "{error}");
        fs::remove_file(fake.path.join("gen-1/cgroup.events")).unwrap();
        fs::create_dir(fake.path.join("gen-1/cgroup.events")).unwrap();
        let error = fake.evict(now).advance(&fake.parent, now).unwrap_err();
        assert!(matches!(error, CgroupError::Io { .. }), "{error}");
        // So is a child that is none.
        fs::remove_dir_all(fake.path.join("gen-1")).unwrap();
        fs::write(fake.path.join("gen-1"), "").unwrap();
        let error = fake.parent.child(&"gen-1".parse().unwrap()).unwrap_err();
        assert!(matches!(error, CgroupError::Io { .. }), "{error}");
    }
}
