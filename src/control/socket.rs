//! The control socket's file (K1).

use std::fs::{self, DirBuilder};
use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{SockType, getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::Mode;
use nix::unistd::geteuid;

use crate::directory::Directory;
use crate::error::{Context, Error, Result};
use crate::socket_file::{Identity, Made};
use crate::whole_file::temporary_name;

/// How often a socket that nobody listens on is removed before the start gives up: others may make new ones meanwhile.
const ATTEMPTS: usize = 8;

/// How long a child that a killed shim had just forked may hold its socket, until it has executed something.
const LAST_CHILD: Duration = Duration::from_secs(1);

/// What is said of one that does not let go.
const ANSWERS: &str = "another process answers there";

/// The file of a socket that is in its place; removed with this, if it still is ours.
#[derive(Debug)]
pub(super) struct SocketFile(Option<Made>);

impl SocketFile {
    /// Makes a socket that listens, and puts it into place at `path`, where nothing may be that answers.
    pub(super) fn create(path: &Path) -> Result<(Self, OwnedFd)> {
        let name = path.file_name().ok_or_else(|| Error::new(format!("{} names no file", path.display())))?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        make_directory(parent)?;
        let directory = Directory::open(parent).context(|| format!("cannot open {}", parent.display()))?;
        let temporary = temporary_name(name, &process::id().to_string());
        let bind = || directory.listen(&temporary, SockType::Stream, Mode::S_IRUSR | Mode::S_IWUSR);
        let bound = match bind() {
            // Left by a process that had this PID.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                fs::remove_file(path.with_file_name(&temporary)).and_then(|()| bind())
            }
            bound => bound,
        };
        let listener = bound.context(|| format!("cannot make the control socket {}", path.display()))?;
        let unplaced = Unplaced(path.with_file_name(&temporary));
        let until = Instant::now() + LAST_CHILD;
        let mut why = "";
        for _ in 0..ATTEMPTS {
            match directory.rename_to_free_name(&temporary, name) {
                Ok(()) => {
                    mem::forget(unplaced);
                    return Ok((Self(Some(Made::at(path.to_path_buf())?)), listener));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    why = match remove_stale(&directory, path, until)? {
                        Stale::Removed => "others make control sockets there again and again",
                        Stale::LetGo => ANSWERS,
                    }
                }
                Err(error) => {
                    return Err(error).context(|| format!("cannot make the control socket {}", path.display()));
                }
            }
        }
        Err(in_the_way(path, why))
    }

    /// Removes the file.
    pub(super) fn remove(&mut self) {
        if let Some(made) = self.0.take() {
            made.remove();
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Makes the directory that sockets are in if it is missing, as it is below `/run` after a boot.
fn make_directory(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if !path.is_dir() => Err(error).context(|| format!("cannot make the directory {}", path.display())),
        _ => Ok(()),
    }
}

/// A socket under its first name, which is removed unless it got another one.
struct Unplaced(PathBuf);

impl Drop for Unplaced {
    fn drop(&mut self) {
        // Best effort: the directory may be gone.
        let _ = fs::remove_file(&self.0);
    }
}

/// What has become of a socket that was in the way.
enum Stale {
    /// It refused connections, as one that an earlier shim left, or is gone.
    Removed,
    /// Who answered has closed the connection. It may have been the last one who held the socket.
    LetGo,
}

fn in_the_way(path: &Path, what: &str) -> Error {
    Error::new(format!("{} is in the way: {what}", path.display()))
}

/// Removes a socket that refuses connections, or waits until then for one that does not. Anything else is in the way.
fn remove_stale(directory: &Directory, path: &Path, until: Instant) -> Result<Stale> {
    let (metadata, identity) = match path.symlink_metadata().and_then(|found| Ok((found, Identity::of(path)?))) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Stale::Removed),
        Err(error) => return Err(error).context(|| format!("cannot look at {}", path.display())),
    };
    if !metadata.file_type().is_socket() {
        return Err(in_the_way(path, "it is no socket"));
    }
    match directory.connect(path.file_name().unwrap_or_default(), SockType::Stream) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Stale::Removed),
        Err(error) if error.raw_os_error() == Some(Errno::ECONNREFUSED as i32) => {
            // Somebody else may have done the same just now, and put a living one there.
            if Identity::of(path).is_ok_and(|now| now == identity) {
                fs::remove_file(path)
                    .context(|| format!("cannot remove the stale control socket {}", path.display()))?;
            }
            Ok(Stale::Removed)
        }
        Ok(connection) if closes(&connection, until) => Ok(Stale::LetGo),
        // One whose queue is full answers as well.
        Ok(_) => Err(in_the_way(path, ANSWERS)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(in_the_way(path, ANSWERS)),
        Err(error) => Err(in_the_way(path, &error.to_string())),
    }
}

/// Waits until the other side closes the connection, as the kernel does for the last who holds a listening socket.
fn closes(connection: &OwnedFd, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(connection.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Err(Errno::EINTR) => {}
            // Nobody says anything before it is asked.
            result => return result.is_ok_and(|ready| ready > 0),
        }
    }
}

/// Whether whoever connected may use the socket: root, or the shim's own user.
pub(super) fn is_allowed(connection: &OwnedFd) -> bool {
    getsockopt(connection, PeerCredentials).is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let name = format!("dunnage-control-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn socket(&self) -> PathBuf {
            self.0.join("control")
        }

        fn names(&self) -> Vec<String> {
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn k1_the_socket_is_0600_and_answers_once_it_is_there() {
        let scratch = Scratch::new();
        let (file, _listener) = SocketFile::create(&scratch.socket()).unwrap();
        assert_eq!(fs::metadata(scratch.socket()).unwrap().permissions().mode() & 0o777, 0o600);
        UnixStream::connect(scratch.socket()).unwrap();
        assert_eq!(scratch.names(), ["control"]);
        drop(file);
        assert!(scratch.names().is_empty());
    }

    #[test]
    fn k1_a_socket_that_refuses_is_replaced_and_one_that_answers_is_not() {
        let scratch = Scratch::new();
        drop(UnixListener::bind(scratch.socket()).unwrap());
        let (_file, listener) = SocketFile::create(&scratch.socket()).unwrap();
        let before = fs::metadata(scratch.socket()).unwrap().modified().unwrap();

        let error = SocketFile::create(&scratch.socket()).unwrap_err().to_string();
        assert!(error.ends_with("is in the way: another process answers there"), "{error}");
        assert_eq!(fs::metadata(scratch.socket()).unwrap().modified().unwrap(), before);
        // Also when nobody more can wait to be accepted.
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        let mut waiting = Vec::new();
        let directory = Directory::open(&scratch.0).unwrap();
        while let Ok(client) = directory.connect("control".as_ref(), SockType::Stream) {
            waiting.push(client);
        }
        let error = SocketFile::create(&scratch.socket()).unwrap_err().to_string();
        assert!(error.ends_with("is in the way: another process answers there"), "{error}");
        assert_eq!(scratch.names(), ["control"]);
    }

    #[test]
    fn k1_a_socket_that_the_last_child_of_a_killed_shim_holds_is_waited_for() {
        let scratch = Scratch::new();
        let held = UnixListener::bind(scratch.socket()).unwrap();
        // Let go once somebody has found that it still answers, taken or not.
        let child = thread::spawn(move || {
            let mut fds = [PollFd::new(held.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::NONE).unwrap();
        });
        let (_file, _listener) = SocketFile::create(&scratch.socket()).unwrap();
        child.join().unwrap();
    }

    #[test]
    fn k1_what_is_no_socket_stays() {
        let scratch = Scratch::new();
        let things: [&dyn Fn(&Path); 3] =
            [&|path| fs::write(path, "a file").unwrap(), &|path| fs::create_dir(path).unwrap(), &|path| {
                symlink("/nowhere", path).unwrap();
            }];
        for (number, make) in things.into_iter().enumerate() {
            let path = scratch.0.join(number.to_string());
            make(&path);
            let error = SocketFile::create(&path).unwrap_err().to_string();
            assert!(error.ends_with("is in the way: it is no socket"), "{error}");
            assert!(path.symlink_metadata().is_ok());
        }
        assert_eq!(scratch.names().len(), 3);
    }

    #[test]
    fn k1_the_end_removes_only_what_is_still_ours() {
        let scratch = Scratch::new();
        let (first, _listener) = SocketFile::create(&scratch.socket()).unwrap();
        fs::remove_file(scratch.socket()).unwrap();
        let (second, _listener) = SocketFile::create(&scratch.socket()).unwrap();
        drop(first);
        UnixStream::connect(scratch.socket()).unwrap();
        drop(second);
        assert!(scratch.names().is_empty());
    }

    #[test]
    fn k1_a_leftover_of_the_same_pid_is_no_obstacle_and_any_path_length_will_do() {
        let scratch = Scratch::new();
        let deep = scratch.0.join("d".repeat(200));
        fs::create_dir(&deep).unwrap();
        let path = deep.join("c".repeat(100));
        let temporary = path.with_file_name(temporary_name(path.file_name().unwrap(), &process::id().to_string()));
        fs::write(&temporary, "").unwrap();
        // A name must fit an address by descriptor.
        let name = "c".repeat(70);
        let (file, _listener) = SocketFile::create(&deep.join(&name)).unwrap();
        drop(file);
        assert!(!deep.join(&name).exists());
    }
}
