//! The sockets of generations: where they are made, who may use them, and what an earlier start left (G8, G15, G16).

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dunnage_runtime::generation::Number;
use dunnage_runtime::privileges;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, geteuid, unlinkat};

use super::entry::{Entry, Removal, open_directory, remove_if};
use super::paths::Sockets;
use super::{CanonicalLink, Layout};
use crate::directory::{Directory, kind_of, path_of};
use crate::error::{Context, Error, Result};
use crate::notify::Inbox;

/// Who a generation runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) user: Uid,
    pub(crate) group: Gid,
}

/// The directories of a service, opened once: whatever becomes of their paths, these are meant.
#[derive(Debug)]
pub(crate) struct Directories {
    /// `run_dir`
    pub(crate) run: Directory,
    /// In the directory of `canonical_socket`.
    pub(crate) link: CanonicalLink,
}

/// The directory that one generation's sockets are in. A nested one's container can do there what it likes, so nothing in
/// it is followed.
#[derive(Debug)]
pub(crate) struct Home {
    directory: Directory,
    sockets: Sockets,
}

impl Directories {
    /// Opens them; nothing is, of a unit.
    pub(crate) fn open(layout: &Layout) -> Result<Option<Self>> {
        let _raised = privileges::raise();
        let Some(places) = layout.places() else { return Ok(None) };
        Ok(Some(Self { run: open_directory(&places.run_dir)?, link: CanonicalLink::open(&places.canonical)? }))
    }

    /// Where a generation's sockets are or will be; of a nested one the directory is made, for its owner.
    pub(crate) fn make_home(&self, layout: &Layout, number: Number, owner: Owner) -> Result<Option<Home>> {
        let _raised = privileges::raise();
        if let Layout::Nested(places, _) = layout {
            let name = nested_directory(number);
            let made = make_directory(&self.run, &name, owner);
            made.context(|| format!("cannot make the directory {}", places.run_dir.join(&name).display()))?;
        }
        self.home(layout, number)
    }

    /// Where a generation's sockets are.
    pub(crate) fn home(&self, layout: &Layout, number: Number) -> Result<Option<Home>> {
        let _raised = privileges::raise();
        let Some(sockets) = layout.sockets(number) else { return Ok(None) };
        let parent = sockets.socket.parent().unwrap_or(Path::new("/")).to_path_buf();
        let opened = match layout {
            Layout::Nested(..) => self.run.inside(&nested_directory(number)),
            Layout::Foreign(..) => Directory::open(&parent),
            _ => self.run.again(),
        };
        let directory = opened.context(|| format!("cannot open the directory {}", parent.display()))?;
        Ok(Some(Home { directory, sockets }))
    }

    /// Makes a generation the one that clients reach: its socket's mode first, then the link (G16).
    pub(crate) fn switch(&self, home: &Home, user: Uid) -> Result<()> {
        home.widen(user)?;
        self.link.switch(&home.sockets.socket)
    }

    /// Removes what a generation that is gone leaves in the file system: the canonical link if that names its socket (G18),
    /// its sockets, and its directory, but for what it made itself. On the canonical path the next one may be already.
    pub(crate) fn retire(&self, layout: &Layout, number: Number) -> Result<()> {
        let _raised = privileges::raise();
        let Some(own) = layout.paths(number) else { return Ok(()) };
        self.link.remove(&own.socket)?;
        if let Layout::Nested(..) = layout {
            let name = nested_directory(number);
            match Entry::at(&self.run, &name) {
                Ok(None) => return Ok(()),
                Ok(Some(_)) => {}
                Err(error) => {
                    return Err(error).context(|| format!("cannot find the directory of generation {number}"));
                }
            }
            self.clear_home(layout, number)?;
            return match unlinkat(&self.run, &*name, UnlinkatFlags::RemoveDir) {
                Ok(()) | Err(Errno::ENOENT | Errno::ENOTEMPTY) => Ok(()),
                Err(error) => Err(error).context(|| format!("cannot remove the directory of generation {number}")),
            };
        }
        self.clear_home(layout, number)
    }

    fn clear_home(&self, layout: &Layout, number: Number) -> Result<()> {
        self.home(layout, number)?.map_or(Ok(()), |home| home.clear())
    }
}

fn nested_directory(number: Number) -> OsString {
    format!("g{number}").into()
}

fn make_directory(run: &Directory, name: &OsStr, owner: Owner) -> io::Result<()> {
    match mkdirat(run, name, Mode::S_IRWXU | Mode::S_IXGRP | Mode::S_IRGRP) {
        // Of an earlier start of the same generation.
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let made = run.inside(name)?;
    Ok(fchownat(made, "", Some(owner.user), Some(owner.group), AtFlags::AT_EMPTY_PATH)?)
}

impl Home {
    /// The paths of the sockets.
    #[cfg(test)]
    pub(crate) fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Removes sockets and links that are in the generation's way, and nothing else (G8).
    pub(crate) fn clear(&self) -> Result<()> {
        let _raised = privileges::raise();
        self.clear_name(&self.sockets.socket)?;
        self.clear_name(&self.sockets.control)
    }

    fn clear_name(&self, path: &Path) -> Result<()> {
        let removal = remove_if(&self.directory, name(path), Entry::is_leftover);
        match removal.context(|| format!("cannot remove {}", path.display()))? {
            Removal::Done | Removal::Absent => Ok(()),
            Removal::Kept(entry) => {
                Err(Error::new(format!("{} is in the way: it is {entry}. Move it elsewhere", path.display())))
            }
        }
    }

    /// Makes the control socket, in place of one that an earlier shim left, for the generation's own user to send to.
    pub(crate) fn bind_control(&self, owner: Owner) -> Result<Inbox> {
        let _raised = privileges::raise();
        let path = &self.sockets.control;
        self.clear_name(path)?;
        let bound = || {
            let bound = self.directory.bind_datagram(name(path))?;
            let file = SocketFile::open(&self.directory, name(path), geteuid())?;
            file.set_mode(0o600)?;
            file.give_to(owner)?;
            Ok::<_, io::Error>(bound)
        };
        bound().map(Inbox).context(|| format!("cannot make the control socket {}", path.display()))
    }

    /// Opens the generation's socket to its group (G15), if that is a socket of its own user's (G16).
    pub(crate) fn widen(&self, user: Uid) -> Result<()> {
        let _raised = privileges::raise();
        let path = &self.sockets.socket;
        let widened = SocketFile::open(&self.directory, name(path), user).and_then(|file| file.set_mode(0o660));
        widened.context(|| format!("cannot set the mode of the socket {}", path.display()))
    }
}

fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// The file of a socket, held: whatever the name comes to stand for, this one is meant.
struct SocketFile(OwnedFd);

impl SocketFile {
    /// What is at `name`, if that is a socket and `user`'s.
    fn open(directory: &Directory, name: &OsStr, user: Uid) -> io::Result<Self> {
        let file = openat(directory, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
        let found = fstat(&file)?;
        if kind_of(&found) != SFlag::S_IFSOCK {
            return Err(io::Error::other("what is there is no socket"));
        }
        let owner = found.st_uid;
        if owner != user.as_raw() {
            return Err(io::Error::other(format!("it belongs to user {owner}, and its generation is user {user}'s")));
        }
        Ok(Self(file))
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        // A descriptor that is only a path takes no fchmod(2); fchmodat2(2) with AT_EMPTY_PATH is of Linux 6.6.
        fs::set_permissions(path_of(&self.0), Permissions::from_mode(mode))
    }

    fn give_to(&self, owner: Owner) -> io::Result<()> {
        Ok(fchownat(&self.0, "", Some(owner.user), Some(owner.group), AtFlags::AT_EMPTY_PATH)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, chown, symlink};
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use nix::unistd::getegid;

    use super::super::entry::tests::Scratch;
    use super::super::paths::Places;
    use super::super::service::Runtime;
    use super::*;

    fn places(scratch: &Scratch) -> Places {
        Places {
            service: "web".into(),
            run_dir: scratch.path.clone(),
            canonical: scratch.path.join("web.sock"),
            cgroup: "/sys/fs/cgroup/web".into(),
        }
    }

    fn nested(scratch: &Scratch) -> Layout {
        Layout::Nested(places(scratch), Runtime { path: "/usr/bin/runc".into(), args: Vec::new() })
    }

    fn seven() -> Number {
        Number::new(7).unwrap()
    }

    fn us() -> Owner {
        Owner { user: geteuid(), group: getegid() }
    }

    fn home(layout: &Layout) -> Home {
        Directories::open(layout).unwrap().unwrap().make_home(layout, seven(), us()).unwrap().unwrap()
    }

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn g15_ready_opens_the_generations_own_socket_to_its_group() {
        let scratch = Scratch::new();
        for layout in [Layout::Flat(places(&scratch)), nested(&scratch), Layout::Foreign(places(&scratch), None)] {
            let home = home(&layout);
            let path = &home.sockets().socket;
            let _listener = UnixListener::bind(path).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
            home.widen(geteuid()).unwrap();
            assert_eq!(mode(path), 0o660, "{layout:?}");
        }
    }

    #[test]
    fn g16_a_switch_leads_clients_to_a_socket_that_its_group_may_use() {
        let scratch = Scratch::new();
        for layout in [Layout::Flat(places(&scratch)), nested(&scratch)] {
            let directories = Directories::open(&layout).unwrap().unwrap();
            let home = directories.make_home(&layout, seven(), us()).unwrap().unwrap();
            directories.switch(&home, geteuid()).unwrap_err();
            assert_eq!(directories.link.target().unwrap(), None, "refused: it has no socket");
            let _listener = UnixListener::bind(&home.sockets().socket).unwrap();
            directories.switch(&home, geteuid()).unwrap();
            std::os::unix::net::UnixStream::connect(scratch.path.join("web.sock")).unwrap();
            assert_eq!(mode(&home.sockets().socket), 0o660);
            directories.retire(&layout, seven()).unwrap();
            assert!(scratch.names().is_empty(), "{:?}", scratch.names());
        }
    }

    #[test]
    fn g18_the_end_of_one_leaves_the_next_ones_link_and_socket() {
        let scratch = Scratch::new();
        let next = Number::new(8).unwrap();
        let layout = Layout::Flat(places(&scratch));
        let directories = Directories::open(&layout).unwrap().unwrap();
        let home = directories.home(&layout, next).unwrap().unwrap();
        let _listener = UnixListener::bind(&home.sockets().socket).unwrap();
        directories.switch(&home, geteuid()).unwrap();
        directories.retire(&layout, seven()).unwrap();
        assert_eq!(scratch.names(), ["web.g8.sock", "web.sock"]);
        directories.retire(&layout, next).unwrap();

        // All foreign ones have the same path.
        let layout = Layout::Foreign(places(&scratch), None);
        let directories = Directories::open(&layout).unwrap().unwrap();
        let _listener = UnixListener::bind(scratch.path.join("web.sock")).unwrap();
        directories.retire(&layout, seven()).unwrap();
        assert_eq!(scratch.names(), ["web.sock"]);
    }

    #[test]
    fn g16_what_is_no_socket_of_its_user_is_left_as_it_is() {
        let scratch = Scratch::new();
        let layout = Layout::Flat(places(&scratch));
        let home = home(&layout);
        let path = &home.sockets().socket;
        let error = || home.widen(geteuid()).unwrap_err().to_string();
        assert!(error().contains("No such file"), "{}", error());

        fs::write(scratch.path.join("precious"), "").unwrap();
        fs::set_permissions(scratch.path.join("precious"), Permissions::from_mode(0o600)).unwrap();
        symlink("precious", path).unwrap();
        assert!(error().ends_with("what is there is no socket"), "{}", error());
        fs::remove_file(path).unwrap();
        fs::rename(scratch.path.join("precious"), path).unwrap();
        assert!(error().ends_with("what is there is no socket"), "{}", error());
        assert_eq!(mode(path), 0o600);
        fs::remove_file(path).unwrap();

        // A link to a socket is no socket either: it is the incumbent's, say.
        let other = scratch.path.join("other");
        let _other = UnixListener::bind(&other).unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
        symlink("other", path).unwrap();
        assert!(error().ends_with("what is there is no socket"), "{}", error());
        assert_eq!(mode(&other), 0o600);
        fs::remove_file(path).unwrap();

        let _listener = UnixListener::bind(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        let error = home.widen(Uid::from_raw(geteuid().as_raw() + 1)).unwrap_err().to_string();
        assert!(error.contains("it belongs to user"), "{error}");
        assert_eq!(mode(path), 0o600);
    }

    #[test]
    fn g16_a_socket_that_is_swapped_after_the_look_keeps_its_mode() {
        let scratch = Scratch::new();
        let (checked, swapped) = (scratch.path.join("checked"), scratch.path.join("swapped"));
        let _listeners = [&checked, &swapped].map(|path| {
            let listener = UnixListener::bind(path).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
            listener
        });
        let file = SocketFile::open(&scratch.directory, "checked".as_ref(), geteuid()).unwrap();
        fs::rename(&checked, scratch.path.join("aside")).unwrap();
        fs::rename(&swapped, &checked).unwrap();
        file.set_mode(0o660).unwrap();
        assert_eq!((mode(&checked), mode(&scratch.path.join("aside"))), (0o600, 0o660));
    }

    #[test]
    fn g8_leftover_sockets_and_links_go_before_a_start_and_files_stay() {
        let scratch = Scratch::new();
        let layout = Layout::Foreign(places(&scratch), None);
        let home = home(&layout);
        symlink(scratch.path.join("web.g3.sock"), &home.sockets().socket).unwrap();
        drop(UnixDatagram::bind(&home.sockets().control).unwrap());
        home.clear().unwrap();
        assert!(scratch.names().is_empty());
        fs::write(&home.sockets().socket, "precious").unwrap();
        let error = home.clear().unwrap_err().to_string();
        assert!(error.ends_with("web.sock is in the way: it is a regular file. Move it elsewhere"), "{error}");
        assert_eq!(scratch.names(), ["web.sock"]);
    }

    #[test]
    fn g29_a_control_socket_is_bound_anew_at_its_path_for_its_user_alone() {
        let scratch = Scratch::new();
        for layout in [Layout::Flat(places(&scratch)), nested(&scratch)] {
            let home = home(&layout);
            let path = &home.sockets().control;
            let owner = if geteuid().is_root() {
                Owner { user: Uid::from_raw(1234), group: Gid::from_raw(4321) }
            } else {
                us()
            };
            // The first is as one that a killed shim has left.
            for _ in 0..2 {
                let bound = home.bind_control(owner).unwrap();
                let client = UnixDatagram::unbound().unwrap();
                client.send_to(b"READY=1", path).unwrap();
                let mut message = [0; 16];
                assert_eq!(UnixDatagram::from(bound.0).recv(&mut message).unwrap(), 7);
                let metadata = path.symlink_metadata().unwrap();
                assert_eq!((metadata.uid(), metadata.gid()), (owner.user.as_raw(), owner.group.as_raw()));
                assert_eq!(mode(path), 0o600);
            }
        }
    }

    #[test]
    fn g8_a_nested_generations_directory_goes_with_it_and_no_link_is_followed_there() {
        let scratch = Scratch::new();
        let layout = nested(&scratch);
        let directories = Directories::open(&layout).unwrap().unwrap();
        assert_eq!(directories.link.target().unwrap(), None);
        let home = directories.make_home(&layout, seven(), us()).unwrap().unwrap();
        assert_eq!(mode(&scratch.path.join("g7")), 0o750);
        drop(UnixListener::bind(&home.sockets().socket).unwrap());
        drop(home.bind_control(us()).unwrap());
        directories.retire(&layout, seven()).unwrap();
        assert!(scratch.names().is_empty());
        directories.retire(&layout, seven()).unwrap();

        let elsewhere = Scratch::new();
        symlink(&elsewhere.path, scratch.path.join("g7")).unwrap();
        directories.make_home(&layout, seven(), us()).unwrap_err();
        directories.home(&layout, seven()).unwrap_err();
        if geteuid().is_root() {
            chown(&elsewhere.path, Some(1), None).unwrap();
            directories.make_home(&layout, seven(), us()).unwrap_err();
            assert_eq!(fs::metadata(&elsewhere.path).unwrap().uid(), 1);
        }
    }
}
