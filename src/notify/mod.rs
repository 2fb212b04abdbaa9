//! The sd_notify(3) proxy: a socket of the container's own, from which the host's gets what may leave the container.

mod filter;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod inbox;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use dunnage_runtime::event_loop::{EventLoop, Interest};
use log::{debug, error, warn};
use nix::sys::socket::UnixAddr;
use nix::sys::stat::Mode;

pub(crate) use inbox::{Arrived, Inbox, MAX_MESSAGE};

use crate::directory::Directory;
use crate::error::{Context, Result};
use crate::source::Source;
use crate::whole_file::temporary_name;

/// How many messages are passed on in one turn.
const MESSAGES_PER_TURN: usize = 8;

/// How many are passed on at the container's end: more than there can be from before it, as systemd sets the longest
/// queue (`net.unix.max_dgram_qlen`) to 512.
const MESSAGES_AT_END: usize = 1024;

/// How long nothing is said after a warning: what goes wrong once goes wrong with every message.
const QUIET: Duration = Duration::from_secs(60 * 60);

/// The directory in the bundle that the container sees, made by the caller, and the socket in it.
const DIRECTORY: &str = "notify";
const NAME: &str = "notify.sock";

/// See the module.
#[derive(Debug)]
pub(crate) struct NotifyProxy {
    /// The container's socket, which sends to the host's as well.
    inbox: Inbox,
    host: UnixAddr,
    quiet_until: Option<Instant>,
}

impl NotifyProxy {
    /// Makes the socket in the bundle, in place of what an earlier run left, and starts to watch it.
    pub(crate) fn create(event_loop: &EventLoop<Source>, bundle: &Path, host: UnixAddr) -> Result<Self> {
        let inbox = Inbox(bind_in(bundle)?);
        event_loop.watch(&inbox.0, Source::Notify, Interest::READABLE).context(|| "cannot watch the notify socket")?;
        Ok(Self { inbox, host, quiet_until: None })
    }

    /// Passes on what the container sent.
    pub(crate) fn handle(&mut self, event_loop: &EventLoop<Source>, now: Instant) {
        if self.pass_on(MESSAGES_PER_TURN, now)
            && let Err(error) = event_loop.rearm(&self.inbox.0, Source::Notify, Interest::READABLE)
        {
            error!("cannot watch the notify socket any more: {error}");
        }
    }

    /// The container has ended: passes on what it sent, and no more than that, whoever else may still send.
    pub(crate) fn drain(&mut self, now: Instant) {
        self.pass_on(MESSAGES_AT_END, now);
    }

    /// Stops watching. The socket's file stays, as with conmon: it is the caller's directory.
    pub(crate) fn close(self, event_loop: &EventLoop<Source>) {
        event_loop.unwatch(&self.inbox.0);
    }

    /// Whether there may be more than these.
    fn pass_on(&mut self, messages: usize, now: Instant) -> bool {
        for _ in 0..messages {
            match self.pass_message(now) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    // Nothing is read again before the next message comes: this would go on and on.
                    self.warn(now, format_args!("cannot receive the container's notifications: {error}"));
                    return false;
                }
            }
        }
        true
    }

    fn pass_message(&mut self, now: Instant) -> io::Result<()> {
        let mut buffer = [0; MAX_MESSAGE + 1];
        match self.inbox.receive(&mut buffer)? {
            Arrived::Message(message) => {
                if let Err(error) = self.inbox.send(message, &self.host) {
                    self.warn(now, format_args!("cannot pass on the container's notifications: {}", error.desc()));
                }
            }
            Arrived::TooLong => {
                self.warn(now, format_args!("the container sent a notification that is too long for systemd"));
            }
            Arrived::Nothing => debug!("the container sent a notification of which nothing may pass"),
        }
        Ok(())
    }

    fn warn(&mut self, now: Instant, text: fmt::Arguments<'_>) {
        if self.quiet_until.is_none_or(|until| until <= now) {
            self.quiet_until = Some(now + QUIET);
            warn!("{text}");
        }
    }
}

/// A socket to which any user of the container can send. It gets its mode in the bundle and is then moved to where the
/// container sees it: there its file could be another one by then.
fn bind_in(bundle: &Path) -> Result<OwnedFd> {
    let bound = || {
        let shared = Directory::open(&bundle.join(DIRECTORY))?;
        let bundle = Directory::open(bundle)?;
        let temporary = temporary_name(NAME.as_ref(), &process::id().to_string());
        // Of a process that had this PID.
        let _ = bundle.remove(&temporary);
        let socket = bundle.bind_datagram(&temporary)?;
        // Afterwards, as the umask has its say in what bind makes.
        let placed = bundle
            .set_mode(&temporary, Mode::from_bits_truncate(0o777))
            .and_then(|()| bundle.rename_into(&temporary, &shared, NAME.as_ref()));
        if placed.is_err() {
            let _ = bundle.remove(&temporary);
        }
        placed.map(|()| socket)
    };
    bound().context(|| format!("cannot make the socket {}", bundle.join(DIRECTORY).join(NAME).display()))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::{IoSlice, Read};
    use std::os::fd::AsRawFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::{env, fs};

    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

    use super::*;

    #[test]
    fn what_the_container_puts_in_its_directory_gets_no_other_mode() {
        let scene = Scene::new("tricks");
        let victim = scene.directory.join("victim");
        fs::write(&victim, "secret").unwrap();
        fs::set_permissions(&victim, Permissions::from_mode(0o600)).unwrap();
        let socket = scene.bundle.join(DIRECTORY).join(NAME);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            // A container that is quicker than the shim, some of the time.
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = fs::remove_file(&socket);
                    let _ = fs::hard_link(&victim, &socket);
                    let _ = fs::remove_file(&socket);
                    let _ = symlink(&victim, &socket);
                }
            });
            for _ in 0..500 {
                scene.proxy();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read(&victim).unwrap(), b"secret");
        assert_eq!(fs::read_dir(&scene.bundle).unwrap().count(), 1, "something is left beside its directory");
    }

    /// A bundle and a host's socket, in a directory that goes with them.
    struct Scene {
        directory: PathBuf,
        bundle: PathBuf,
        host: UnixDatagram,
        address: UnixAddr,
        event_loop: EventLoop<Source>,
    }

    impl Scene {
        fn new(name: &str) -> Self {
            Self::deep(name, 1)
        }

        /// With a bundle that many directories deep.
        fn deep(name: &str, depth: usize) -> Self {
            let directory = env::temp_dir().join(format!("dunnage-notify-{name}-{}", process::id()));
            let mut bundle = directory.clone();
            bundle.extend(vec!["b".repeat(200); depth]);
            fs::create_dir_all(bundle.join(DIRECTORY)).unwrap();
            let path = directory.join("host");
            let host = UnixDatagram::bind(&path).unwrap();
            host.set_nonblocking(true).unwrap();
            let address = UnixAddr::new(&path).unwrap();
            Self { directory, bundle, host, address, event_loop: EventLoop::new().unwrap() }
        }

        fn proxy(&self) -> NotifyProxy {
            NotifyProxy::create(&self.event_loop, &self.bundle, self.address).unwrap()
        }

        /// The container's way to it.
        fn client(&self) -> UnixDatagram {
            let directory = fs::File::open(self.bundle.join(DIRECTORY)).unwrap();
            let client = UnixDatagram::unbound().unwrap();
            client.connect(format!("/proc/self/fd/{}/{NAME}", directory.as_raw_fd())).unwrap();
            client.set_nonblocking(true).unwrap();
            client
        }

        /// What has arrived at the host.
        fn arrived(&self) -> Vec<String> {
            let mut buffer = [0; 2 * MAX_MESSAGE];
            let messages = std::iter::from_fn(|| self.host.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec()));
            messages.map(|message| String::from_utf8(message).unwrap()).collect()
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    #[test]
    fn the_socket_is_for_everybody_at_any_path_length_and_replaces_a_leftover() {
        let scene = Scene::deep("socket", 10);
        let socket = scene.bundle.join(DIRECTORY).join(NAME);
        fs::write(scene.directory.join("foreign"), "untouched").unwrap();
        fs::set_permissions(scene.directory.join("foreign"), Permissions::from_mode(0o600)).unwrap();
        symlink(scene.directory.join("foreign"), &socket).unwrap();
        drop(scene.proxy());
        let mut proxy = scene.proxy();
        let metadata = socket.symlink_metadata().unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o777);
        let foreign = fs::metadata(scene.directory.join("foreign")).unwrap();
        assert_eq!(foreign.permissions().mode() & 0o7777, 0o600);
        scene.client().send(b"READY=1").unwrap();
        proxy.handle(&scene.event_loop, Instant::now());
        assert_eq!(scene.arrived(), ["READY=1"]);
    }

    #[test]
    fn without_the_callers_directory_there_is_an_error_that_names_it() {
        let scene = Scene::new("missing");
        fs::remove_dir(scene.bundle.join(DIRECTORY)).unwrap();
        let error = NotifyProxy::create(&scene.event_loop, &scene.bundle, scene.address).unwrap_err();
        assert!(error.to_string().contains("notify/notify.sock: No such file"), "{error}");
    }

    #[test]
    fn each_message_stays_one_and_what_has_no_good_line_is_not_sent() {
        let scene = Scene::new("messages");
        let mut proxy = scene.proxy();
        let client = scene.client();
        for message in ["STATUS=a\nMAINPID=1\nERRNO=2\n", "", "FDSTORE=1", "READY=1\n"] {
            client.send(message.as_bytes()).unwrap();
        }
        proxy.handle(&scene.event_loop, Instant::now());
        assert_eq!(scene.arrived(), ["STATUS=a\nERRNO=2", "READY=1"]);
    }

    #[test]
    fn descriptors_are_closed_whether_or_not_the_message_passes() {
        let scene = Scene::new("descriptors");
        let mut proxy = scene.proxy();
        let client = scene.client();
        for message in ["BARRIER=1", "READY=1"] {
            let (mut reader, writer) = io::pipe().unwrap();
            let fds = [writer.as_raw_fd(); 8];
            let rights = [ControlMessage::ScmRights(&fds)];
            let data = [IoSlice::new(message.as_bytes())];
            sendmsg::<()>(client.as_raw_fd(), &data, &rights, MsgFlags::empty(), None).unwrap();
            drop(writer);
            proxy.handle(&scene.event_loop, Instant::now());
            // It would wait here for whoever has a writing end.
            assert_eq!(reader.read(&mut [0]).unwrap(), 0, "{message}");
        }
        assert_eq!(scene.arrived(), ["READY=1"]);
    }

    #[test]
    fn a_message_longer_than_systemd_takes_is_dropped_and_the_longest_passes() {
        let scene = Scene::new("long");
        let mut proxy = scene.proxy();
        let client = scene.client();
        let longest = format!("STATUS={}", "x".repeat(MAX_MESSAGE - 7));
        for message in [&format!("{longest}x"), &"READY=1\n".repeat(10_000), &longest] {
            client.send(message.as_bytes()).unwrap();
        }
        proxy.handle(&scene.event_loop, Instant::now());
        assert_eq!(scene.arrived(), [longest]);
    }

    #[test]
    fn at_the_end_all_that_was_sent_is_passed_on() {
        let scene = Scene::new("end");
        let mut proxy = scene.proxy();
        let client = scene.client();
        // As many as the kernel keeps; the last one is what counts.
        let sent = (0..MESSAGES_AT_END).map_while(|_| client.send(b"MAINPID=1").ok()).count();
        assert!(sent > MESSAGES_PER_TURN, "{sent}");
        proxy.pass_on(1, Instant::now());
        client.send(b"STOPPING=1").unwrap();
        proxy.drain(Instant::now());
        assert_eq!(scene.arrived(), ["STOPPING=1"]);
    }

    #[test]
    fn a_flood_leaves_the_loop_its_turns() {
        let scene = Scene::new("flood");
        let mut proxy = scene.proxy();
        let client = scene.client();
        // Of no use to the host, so that its queue sets no bound.
        let sent = (0..MESSAGES_PER_TURN).map_while(|_| client.send(b"MAINPID=1").ok()).count();
        client.send(b"READY=1").unwrap_or_else(|error| panic!("after {sent}: {error}"));
        let mut turns = 0;
        let mut events = dunnage_runtime::event_loop::Events::with_capacity(4);
        let mut event_loop = EventLoop::new().unwrap();
        event_loop.watch(&proxy.inbox.0, Source::Notify, Interest::READABLE).unwrap();
        while scene.arrived().is_empty() {
            let deadline = Instant::now() + Duration::from_secs(10);
            event_loop.wait(&mut events, Some(deadline)).unwrap();
            assert!(events.iter::<Source>().next().is_some(), "what is left is not reported again");
            proxy.handle(&event_loop, Instant::now());
            turns += 1;
        }
        assert_eq!(turns, 2);
    }

    #[test]
    fn j02_a_host_that_is_gone_or_full_is_one_warning_and_no_wait() {
        let scene = Scene::new("gone");
        let mut proxy = scene.proxy();
        let client = scene.client();
        let now = Instant::now();
        // Until the host's queue is full; it holds net.unix.max_dgram_qlen.
        while proxy.quiet_until.is_none() {
            client.send(b"WATCHDOG=1").unwrap();
            proxy.handle(&scene.event_loop, now);
        }
        let quiet_until = proxy.quiet_until;
        fs::remove_file(scene.directory.join("host")).unwrap();
        client.send(b"WATCHDOG=1").unwrap();
        proxy.handle(&scene.event_loop, now + Duration::from_secs(1));
        assert_eq!(proxy.quiet_until, quiet_until);
        client.send(b"WATCHDOG=1").unwrap();
        proxy.handle(&scene.event_loop, now + QUIET);
        assert_eq!(proxy.quiet_until, Some(now + QUIET + QUIET));
    }

    #[test]
    fn the_host_may_have_an_abstract_name() {
        let mut scene = Scene::new("abstract");
        let name = format!("dunnage-notify-{}", process::id());
        let host = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        host.set_nonblocking(true).unwrap();
        scene.host = host;
        scene.address = UnixAddr::new_abstract(name.as_bytes()).unwrap();
        let mut proxy = scene.proxy();
        scene.client().send(b"READY=1").unwrap();
        proxy.handle(&scene.event_loop, Instant::now());
        assert_eq!(scene.arrived(), ["READY=1"]);
    }
}
