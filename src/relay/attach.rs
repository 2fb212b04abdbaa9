//! The attach socket: where clients find it, and that it goes away at the end.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::sys::socket::SockType;
use nix::sys::stat::Mode;

use crate::directory::Directory;
use crate::error::{Context, Result};
use crate::socket_file::{MAX_SOCKET_PATH, Made, remove_leftover};

/// The attach socket's files: the socket in the bundle, and the link by which clients reach a bundle whose path is too
/// long for a socket's address. Each is removed once, at the latest when this is dropped.
#[derive(Debug)]
pub(crate) struct AttachSocket {
    socket: Option<Made>,
    link: Option<Made>,
}

impl AttachSocket {
    /// The name of the socket.
    pub(crate) const NAME: &str = "attach";

    /// Makes the socket in the bundle, in place of what an earlier run left, and the link `UUID` to the bundle in
    /// `link_dir`, if there is one.
    pub(crate) fn create(bundle: &Path, link_dir: Option<&Path>, uuid: &OsStr) -> Result<(Self, OwnedFd)> {
        let mut made = Self { socket: None, link: None };
        if let Some(dir) = link_dir {
            let path = link_path(dir, uuid);
            remove_leftover(&path)?;
            symlink(bundle, &path).context(|| format!("cannot make the link {}", path.display()))?;
            made.link = Some(Made::at(path)?);
        }
        let path = bundle.join(Self::NAME);
        remove_leftover(&path)?;
        let listener = Directory::open(bundle)
            .and_then(|bundle| bundle.listen(Self::NAME.as_ref(), SockType::SeqPacket, Mode::S_IRWXU))
            .context(|| format!("cannot make the socket {}", path.display()))?;
        made.socket = Some(Made::at(path)?);
        Ok((made, listener))
    }

    /// Removes the socket from the bundle.
    pub(crate) fn unlink_socket(&mut self) {
        if let Some(socket) = self.socket.take() {
            socket.remove();
        }
    }

    /// Removes the link.
    pub(crate) fn unlink_link(&mut self) {
        if let Some(link) = self.link.take() {
            link.remove();
        }
    }
}

impl Drop for AttachSocket {
    fn drop(&mut self) {
        self.unlink_socket();
        self.unlink_link();
    }
}

/// The link's path. One that is exactly as long as a socket's address allows is made one character shorter: conmon does
/// so, to keep it apart from addresses that were cut off there, and callers look for it under that name.
fn link_path(dir: &Path, uuid: &OsStr) -> PathBuf {
    let path = dir.join(uuid);
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() == MAX_SOCKET_PATH {
        return PathBuf::from(OsStr::from_bytes(&bytes[..MAX_SOCKET_PATH - 1]));
    }
    path
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, UnixAddr, connect, send, socket};

    use super::*;
    use crate::relay::tests::Directory as Scratch;

    fn attach(path: &Path) -> io::Result<OwnedFd> {
        let client = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        connect(client.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(client)
    }

    /// A directory below `parent` whose path has `length` bytes.
    fn deep(parent: &Path, length: usize) -> PathBuf {
        let mut path = parent.to_path_buf();
        while length - path.as_os_str().len() > 201 {
            path.push("x".repeat(199));
        }
        path.push("x".repeat(length - path.as_os_str().len() - 1));
        assert_eq!(path.as_os_str().len(), length);
        fs::create_dir_all(&path).expect("create_dir_all");
        path
    }

    #[test]
    fn e01_clients_reach_the_socket_at_any_path_length() {
        for length in [60, 99, 100, 101, 107, 108, 250, 1000, 3000] {
            let directory = Scratch::new();
            let bundle = deep(directory.path(), length);
            let links = directory.path().join("links");
            fs::create_dir(&links).expect("create_dir");
            for link_dir in [None, Some(links.as_path())] {
                let (made, listener) = AttachSocket::create(&bundle, link_dir, OsStr::new("uuid")).expect("create");
                let metadata = bundle.join("attach").symlink_metadata().expect("metadata");
                assert!(metadata.file_type().is_socket());
                assert_eq!(metadata.permissions().mode() & 0o777, 0o700);

                let client = if link_dir.is_some() {
                    attach(&links.join("uuid/attach"))
                } else {
                    let here = File::open(&bundle).expect("open");
                    attach(&Path::new("/proc/self/fd").join(here.as_raw_fd().to_string()).join("attach"))
                };
                let client = client.expect("connect");
                let accepted = dunnage_runtime::sys::accept(&listener).expect("accept");
                assert_eq!(send(accepted.as_raw_fd(), b"\x02hi", MsgFlags::empty()), Ok(3));
                drop((made, client));
            }
            let left = |path: &Path| fs::read_dir(path).expect("read_dir").count();
            assert_eq!((left(&bundle), left(&links)), (0, 0));
        }
    }

    #[test]
    fn a_link_as_long_as_an_address_is_one_character_shorter() {
        let directory = Scratch::new();
        let bundle = deep(directory.path(), 60);
        for (length, expected) in [(106, 106), (107, 106), (108, 108)] {
            let links = deep(directory.path(), length - 9);
            let (made, _listener) =
                AttachSocket::create(&bundle, Some(&links), OsStr::new("uuid5678")).expect("create");
            let link = fs::read_dir(&links).expect("read_dir").next().expect("a link").expect("an entry").path();
            assert_eq!(link.as_os_str().len(), expected);
            assert_eq!(fs::read_link(&link).expect("read_link"), bundle);
            drop(made);
            assert_eq!(fs::read_dir(&links).expect("read_dir").count(), 0);
        }
    }

    #[test]
    fn e03_leftovers_are_replaced_and_what_links_lead_to_is_untouched() {
        let directory = Scratch::new();
        let bundle = deep(directory.path(), 60);
        let links = directory.path().join("links");
        let foreign = directory.path().join("foreign");
        fs::create_dir(&links).expect("create_dir");
        fs::write(&foreign, "untouched").expect("write");

        let leftovers: [&dyn Fn(&Path); 5] = [
            &|path| drop(std::os::unix::net::UnixListener::bind(path).expect("bind")),
            &|path| fs::write(path, "a file").expect("write"),
            &|path| symlink("/nowhere/at/all", path).expect("symlink"),
            &|path| symlink(&foreign, path).expect("symlink"),
            &|path| symlink(directory.path(), path).expect("symlink"),
        ];
        for leave in leftovers {
            leave(&bundle.join("attach"));
            leave(&links.join("uuid"));
            let (_made, _listener) = AttachSocket::create(&bundle, Some(&links), OsStr::new("uuid")).expect("create");
            attach(&links.join("uuid/attach")).expect("connect");
        }
        assert_eq!(fs::read(&foreign).expect("read"), b"untouched");
        assert!(directory.path().is_dir());
    }

    #[test]
    fn a_failed_start_leaves_nothing() {
        let directory = Scratch::new();
        let bundle = deep(directory.path(), 60);
        let links = directory.path().join("links");
        fs::create_dir(&links).expect("create_dir");
        fs::create_dir(bundle.join("attach")).expect("create_dir");
        let error = AttachSocket::create(&bundle, Some(&links), OsStr::new("uuid")).expect_err("a directory is there");
        assert!(error.to_string().contains("attach"), "{error}");
        assert_eq!(fs::read_dir(&links).expect("read_dir").count(), 0);

        let missing = directory.path().join("missing");
        let error = AttachSocket::create(&bundle, Some(&missing), OsStr::new("uuid")).expect_err("no such directory");
        assert!(error.to_string().contains("No such file or directory"), "{error}");
    }

    #[test]
    fn the_end_removes_only_what_is_still_ours() {
        let directory = Scratch::new();
        let bundle = deep(directory.path(), 60);
        let links = directory.path().join("links");
        fs::create_dir(&links).expect("create_dir");
        let (mut first, _listener) = AttachSocket::create(&bundle, Some(&links), OsStr::new("uuid")).expect("create");
        let (mut second, _listener) = AttachSocket::create(&bundle, Some(&links), OsStr::new("uuid")).expect("create");

        first.unlink_socket();
        first.unlink_link();
        attach(&links.join("uuid/attach")).expect("connect");
        second.unlink_socket();
        assert!(links.join("uuid").symlink_metadata().is_ok());
        second.unlink_link();
        assert!(links.join("uuid").symlink_metadata().is_err());
    }

    #[test]
    fn the_end_does_not_mind_that_everything_is_gone() {
        let directory = Scratch::new();
        let bundle = deep(directory.path(), 60);
        let links = directory.path().join("links");
        fs::create_dir(&links).expect("create_dir");
        let (mut made, _listener) = AttachSocket::create(&bundle, Some(&links), OsStr::new("uuid")).expect("create");
        fs::remove_dir_all(&bundle).expect("remove_dir_all");
        fs::remove_dir_all(&links).expect("remove_dir_all");
        made.unlink_socket();
        made.unlink_link();
    }
}
