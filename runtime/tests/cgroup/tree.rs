//! A parent cgroup of a test's own, removed with all below it when the test ends, also where it failed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dunnage_runtime::cgroup::{
    Cgroup, CgroupError, Eviction, Intent, Migration, Moved, Name, Parent, Proof, Removal, Removed, Unproven,
};
use dunnage_runtime::event_loop::{EventLoop, Events, Interest, Source};
use dunnage_runtime::generation::Tier;
use dunnage_testing::wait::{self, Deadline};

/// Far above what anything here takes.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

pub(crate) struct Tree {
    pub(crate) path: PathBuf,
    pub(crate) parent: Parent,
}

impl Tree {
    /// `test` is unique in this program.
    pub(crate) fn new(test: &str) -> Self {
        let path = mount().join(format!("dunnage-test-{}-{test}", std::process::id()));
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let parent = Parent::open(&path).unwrap();
        Self { path, parent }
    }

    pub(crate) fn make(&self, child: &str) -> Cgroup {
        self.parent.make(&name(child), &Tier::UNLIMITED).unwrap()
    }

    pub(crate) fn path_of(&self, child: &str) -> PathBuf {
        self.path.join(child)
    }

    pub(crate) fn read(&self, file: &str) -> String {
        let path = self.path.join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim_end().to_owned()
    }

    pub(crate) fn write(&self, file: &str, value: &str) {
        let path = self.path.join(file);
        fs::write(&path, value).unwrap_or_else(|error| panic!("{value} to {}: {error}", path.display()));
    }

    pub(crate) fn mkdir(&self, below: &str) {
        fs::create_dir(self.path.join(below)).unwrap();
    }

    /// What others than dunnage do.
    pub(crate) fn rmdir(&self, child: &str) {
        let path = self.path_of(child);
        let mut result = Ok(());
        wait::eventually(Deadline::after(BOUND), "a removal by another", || {
            result = fs::remove_dir(&path);
            result.is_ok()
        });
    }

    pub(crate) fn exists(&self, child: &str) -> bool {
        self.path_of(child).exists()
    }

    pub(crate) fn identity(&self, child: &str) -> u64 {
        fs::metadata(self.path_of(child)).unwrap().ino()
    }

    pub(crate) fn children(&self) -> usize {
        fs::read_dir(&self.path).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    }

    pub(crate) fn is_populated(&self, child: &str) -> bool {
        self.read(&format!("{child}/cgroup.events")).contains("populated 1")
    }

    pub(crate) fn is_killed(&self, child: &str) -> bool {
        self.parent.child(&name(child)).unwrap().unwrap().is_killed().unwrap()
    }

    pub(crate) fn evict(&self, child: &str, intent: Intent) -> Eviction {
        let now = Instant::now();
        Eviction::begin(&self.parent, name(child), intent, now, now + BOUND).unwrap()
    }

    /// Kills, and proves it empty.
    pub(crate) fn kill(&self, child: &str) {
        drive(&self.parent, &mut self.evict(child, Intent::Kill)).unwrap();
    }

    pub(crate) fn remove(&self, child: &str) -> Removed {
        let now = Instant::now();
        let mut removal = Removal::begin(name(child), now, now + BOUND);
        let mut events = Loop::new();
        loop {
            match removal.advance(&self.parent, Instant::now()).unwrap() {
                Removed::NotYet => events.wait(removal.next_timeout()),
                removed => return removed,
            };
        }
    }

    pub(crate) fn migrate(&self, source: &str, target: &str) -> Result<Migration, CgroupError> {
        let now = Instant::now();
        Migration::begin(&self.parent, &name(source), &name(target), now, now + BOUND)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let tree = self.path.clone();
        let gone = wait::whether(Deadline::after(BOUND), || {
            for directory in deepest_first(&tree) {
                let _ = fs::write(directory.join("cgroup.freeze"), "0");
                let _ = fs::write(directory.join("cgroup.kill"), "1");
                let _ = fs::remove_dir(&directory);
            }
            !tree.exists()
        });
        if !gone {
            eprintln!("{} is still there", tree.display());
        }
    }
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn mount() -> &'static Path {
    // A hybrid machine has it below the others.
    let hybrid = Path::new("/sys/fs/cgroup/unified");
    if hybrid.exists() { hybrid } else { Path::new("/sys/fs/cgroup") }
}

fn deepest_first(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(deepest_first(&entry.path()));
        }
    }
    all.push(directory.to_owned());
    all
}

/// The loop of a shim, with one source.
pub(crate) struct Loop(EventLoop<Watched>, Events);

#[derive(Clone, Copy)]
struct Watched;

impl Source for Watched {
    fn into_token(self) -> mio::Token {
        mio::Token(0)
    }

    fn from_token(_: mio::Token) -> Self {
        Self
    }
}

impl Loop {
    pub(crate) fn new() -> Self {
        Self(EventLoop::new().unwrap(), Events::with_capacity(4))
    }

    pub(crate) fn watch(&self, fd: impl std::os::fd::AsFd) {
        self.0.watch(&fd, Watched, Interest::PRIORITY).unwrap();
    }

    /// Whether something happened before the deadline.
    pub(crate) fn wait(&mut self, until: Instant) -> bool {
        self.0.wait(&mut self.1, Some(until)).unwrap();
        self.1.iter::<Watched>().next().is_some()
    }
}

/// Advances it as a shim would, until it is over.
pub(crate) fn drive(parent: &Parent, eviction: &mut Eviction) -> Result<(), Unproven> {
    let mut events = Loop::new();
    if let Some(watched) = eviction.watched() {
        events.watch(watched);
    }
    loop {
        match eviction.advance(parent, Instant::now()).unwrap() {
            Proof::Empty => return Ok(()),
            Proof::Unproven(unproven) => return Err(unproven),
            Proof::Pending => events.wait(eviction.next_timeout()),
        };
    }
}

/// The same for a move.
pub(crate) fn drive_move(migration: &mut Migration) -> Moved {
    let mut events = Loop::new();
    events.watch(migration.watched());
    loop {
        match migration.advance(Instant::now()).unwrap() {
            Moved::NotYet => events.wait(migration.next_timeout()),
            moved => return moved,
        };
    }
}
