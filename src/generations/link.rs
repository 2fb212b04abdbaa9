//! The canonical link: where clients connect, which names the current generation's socket (G16, G18).

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use dunnage_runtime::privileges;
use nix::unistd::symlinkat;

use super::entry::{Entry, Removal, open_directory, private_name, remove, remove_if};
use crate::directory::Directory;
use crate::error::{Context, Error, Result};

/// How often it is tried again when others make and remove the link at the same time.
const ATTEMPTS: usize = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct CanonicalLink {
    directory: Directory,
    name: OsString,
    path: PathBuf,
}

impl CanonicalLink {
    /// The link at `path`, which may be there or not.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let _raised = privileges::raise();
        let name = path.file_name().ok_or_else(|| Error::new(format!("{} names no file", path.display())))?;
        let directory = open_directory(path.parent().unwrap_or(Path::new("/")))?;
        Ok(Self { directory, name: name.to_owned(), path: path.to_path_buf() })
    }

    /// What it names, if it is a link.
    pub(crate) fn target(&self) -> Result<Option<PathBuf>> {
        let _raised = privileges::raise();
        match Entry::at(&self.directory, &self.name).context(|| self.cannot("read"))? {
            Some(Entry::Link(target)) => Ok(Some(target)),
            _ => Ok(None),
        }
    }

    /// Has it name `socket`, in one step.
    pub(crate) fn switch(&self, socket: &Path) -> Result<()> {
        let _raised = privileges::raise();
        if let Some(Entry::Other(what)) = Entry::at(&self.directory, &self.name).context(|| self.cannot("switch"))? {
            return Err(self.in_the_way(what));
        }
        let next = private_name(&self.name, "next");
        // Left by a process that had this PID.
        let made = remove(&self.directory, &next).and_then(|()| Ok(symlinkat(socket, &self.directory, &*next)?));
        made.context(|| self.cannot("switch"))?;
        let switched = self.put_into_place(&next);
        // The old link, or the new one that has not become it.
        let removed = remove(&self.directory, &next).context(|| self.cannot("clean up beside"));
        switched.and(removed)
    }

    /// Gives the link `next` the canonical name, and what had that the other one.
    fn put_into_place(&self, next: &OsStr) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let placed = match self.directory.exchange(next, &self.name) {
                Ok(()) => return self.judge_replaced(next),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.directory.rename_to_free_name(next, &self.name)
                }
                // A file system that cannot exchange.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.directory.rename(next, &self.name),
                Err(error) => Err(error),
            };
            match placed {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                placed => return placed.context(|| self.cannot("switch")),
            }
        }
        Err(Error::new(format!("others change {} again and again: it is left to them", self.path.display())))
    }

    /// Since it was looked for, something may have come that must not be lost: it gets its name back.
    fn judge_replaced(&self, replaced: &OsStr) -> Result<()> {
        match Entry::at(&self.directory, replaced) {
            Ok(Some(Entry::Other(what))) => {
                self.directory.exchange(replaced, &self.name).context(|| self.cannot("give back"))?;
                Err(self.in_the_way(what))
            }
            _ => Ok(()),
        }
    }

    /// Removes it if it names `socket`, and tells whether it did.
    pub(crate) fn remove(&self, socket: &Path) -> Result<bool> {
        let _raised = privileges::raise();
        let names_it = |entry: &Entry| matches!(entry, Entry::Link(target) if target == socket);
        let removal = remove_if(&self.directory, &self.name, names_it).context(|| self.cannot("remove"))?;
        Ok(removal == Removal::Done)
    }

    fn cannot(&self, what: &str) -> String {
        format!("cannot {what} the canonical link {}", self.path.display())
    }

    fn in_the_way(&self, what: &str) -> Error {
        Error::new(format!("{}: {what} is in the way. Move it elsewhere", self.cannot("switch")))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::super::entry::tests::Scratch;
    use super::*;

    /// Ends the other thread, also when this one's assertions fail.
    struct Over<'a>(&'a AtomicBool);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn link(scratch: &Scratch) -> CanonicalLink {
        CanonicalLink::open(&scratch.path.join("web.sock")).unwrap()
    }

    #[test]
    fn g16_the_link_is_made_and_switched_and_leaves_nothing_else() {
        let scratch = Scratch::new();
        let link = link(&scratch);
        assert_eq!(link.target().unwrap(), None);
        for socket in ["/run/web.g1.sock", "/run/web.g2.sock", "/run/web.g2.sock", "/run/web.g1.sock"] {
            link.switch(Path::new(socket)).unwrap();
            assert_eq!(link.target().unwrap().as_deref(), Some(Path::new(socket)));
            assert_eq!(scratch.names(), ["web.sock"]);
        }
    }

    #[test]
    fn g16_at_every_instant_the_path_leads_to_the_old_or_the_new_socket() {
        let scratch = Scratch::new();
        let link = link(&scratch);
        let targets = ["/run/web.g1.sock", "/run/web.g2.sock"].map(Path::new);
        link.switch(targets[0]).unwrap();
        let path = scratch.path.join("web.sock");
        let (began, over) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let target = fs::read_link(&path).expect("it is always there");
                    assert!(targets.contains(&target.as_path()), "{target:?}");
                    began.store(true, Ordering::Relaxed);
                }
            });
            let _over = Over(&over);
            while !began.load(Ordering::Relaxed) && !reader.is_finished() {
                thread::yield_now();
            }
            for turn in 1..2000 {
                link.switch(targets[turn % 2]).unwrap();
            }
        });
    }

    #[test]
    fn g16_a_socket_of_foreign_days_is_replaced_and_a_file_refuses_the_switch() {
        let scratch = Scratch::new();
        let link = link(&scratch);
        let path = scratch.path.join("web.sock");
        drop(UnixListener::bind(&path).unwrap());
        link.switch(Path::new("/run/web.g1.sock")).unwrap();
        assert_eq!(scratch.names(), ["web.sock"]);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        let error = link.switch(Path::new("/run/web.g1.sock")).unwrap_err().to_string();
        assert!(error.ends_with("web.sock: a regular file is in the way. Move it elsewhere"), "{error}");
        // Also one that came only after the look.
        symlink("/run/web.g2.sock", scratch.path.join("next")).unwrap();
        link.put_into_place("next".as_ref()).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(scratch.names(), ["next", "web.sock"]);
    }

    #[test]
    fn g16_a_switch_that_fails_leaves_the_old_one_in_force() {
        let scratch = Scratch::new();
        let link = link(&scratch);
        link.switch(Path::new("/run/web.g1.sock")).unwrap();
        // No link can be made under a name that a directory has.
        fs::create_dir(scratch.path.join(private_name("web.sock".as_ref(), "next"))).unwrap();
        link.switch(Path::new("/run/web.g2.sock")).unwrap_err();
        assert_eq!(link.target().unwrap().as_deref(), Some(Path::new("/run/web.g1.sock")));
    }

    #[test]
    fn g18_a_stop_removes_only_the_link_to_its_own_socket() {
        let scratch = Scratch::new();
        let link = link(&scratch);
        let [old, new] = ["/run/web.g1.sock", "/run/web.g2.sock"].map(Path::new);
        assert!(!link.remove(old).unwrap());
        link.switch(new).unwrap();
        assert!(!link.remove(old).unwrap());
        assert_eq!(link.target().unwrap().as_deref(), Some(new));
        assert!(link.remove(new).unwrap());
        assert!(scratch.names().is_empty());
        fs::write(scratch.path.join("web.sock"), "precious").unwrap();
        assert!(!link.remove(new).unwrap());
    }

    #[test]
    fn g18_the_next_ones_link_survives_however_it_is_swapped_in() {
        let scratch = Scratch::new();
        let link = link(&scratch);
        let path = scratch.path.join("web.sock");
        let [ours, theirs] = ["/run/web.g1.sock", "/run/web.g2.sock"].map(Path::new);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    link.remove(ours).unwrap();
                }
            });
            let _over = Over(&over);
            let replace = |target: &Path| {
                symlink(target, scratch.path.join("swap")).unwrap();
                fs::rename(scratch.path.join("swap"), &path).unwrap();
            };
            let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
            for _ in 0..3000 {
                replace(ours);
                replace(theirs);
                // It may have been taken for a moment; it always comes back.
                while fs::read_link(&path).ok().as_deref() != Some(theirs) {
                    assert!(std::time::Instant::now() < end, "the next one's link is gone");
                    thread::yield_now();
                }
            }
        });
        assert_eq!(scratch.names(), ["web.sock"]);
    }
}
