//! What the shim has to say about itself: single lines on stderr and, with `--syslog`, to the syslog daemon.
//!
//! The long side's stderr is /dev/null, so there only syslog shows them.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process;

use log::{Level, LevelFilter, Log, Metadata, Record};

/// Where the syslog daemon listens.
const DEV_LOG: &str = "/dev/log";

/// The common daemons cut what is longer, or lose it.
const SYSLOG_LIMIT: usize = 8192;

/// The facility of daemons, as syslog(3) numbers them.
const SYSLOG_FACILITY: u8 = 3 << 3;

/// What is said where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verbosity<'a> {
    /// The container or service that messages are about.
    pub(crate) subject: &'a OsStr,
    pub(crate) level: LevelFilter,
    /// The most that is shown on stderr.
    pub(crate) stderr: LevelFilter,
    pub(crate) syslog: bool,
}

/// From here on the `log` macros reach those who read the shim's messages.
pub(crate) fn init(verbosity: &Verbosity<'_>) {
    let Verbosity { subject, level, stderr: stderr_level, syslog } = *verbosity;
    let syslog = syslog.then(|| Syslog::new(DEV_LOG, subject));
    let messages = Messages { stderr: stderr(level), stderr_level, syslog };
    let level = messages.stderr.filter();
    // It fails only if it was done before.
    if log::set_boxed_logger(Box::new(messages)).is_ok() {
        log::set_max_level(level);
    }
}

/// A message as it is shown: `dunnage: warning: TEXT`.
pub(crate) struct Line<T>(pub(crate) Level, pub(crate) T);

impl<T: fmt::Display> fmt::Display for Line<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.0 {
            Level::Error => "error",
            Level::Warn => "warning",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        };
        write!(f, "dunnage: {level}: {}", OneLine(&self.1))
    }
}

/// Text kept to one line, and harmless to a terminal: a path, or a runtime's stderr, may hold anything.
pub(crate) struct OneLine<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::write(&mut Escape(f), format_args!("{}", self.0))
    }
}

/// Writes control characters as Rust would in a literal.
struct Escape<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive(char::is_control) {
            match piece.chars().next_back().filter(|last| last.is_control()) {
                None => self.0.write_str(piece)?,
                Some(control) => {
                    self.0.write_str(&piece[..piece.len() - control.len_utf8()])?;
                    write!(self.0, "{}", control.escape_default())?;
                }
            }
        }
        Ok(())
    }
}

struct Messages {
    stderr: env_logger::Logger,
    /// The most that is shown there; syslog has all.
    stderr_level: LevelFilter,
    syslog: Option<Syslog>,
}

impl Log for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.stderr.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.stderr.matches(record) {
            return;
        }
        if record.level() <= self.stderr_level {
            self.stderr.log(record);
        }
        if let Some(syslog) = &self.syslog {
            // There is nobody left to tell that it failed.
            let _ = syslog.send(record.level(), record.args());
        }
    }

    fn flush(&self) {}
}

fn stderr(level: LevelFilter) -> env_logger::Logger {
    env_logger::Builder::new()
        // A prefix: our own crates, not what the libraries have to tell.
        .filter_module("dunnage", level)
        .format(|out, record| writeln!(out, "{}", Line(record.level(), record.args())))
        .build()
}

/// The syslog daemon, found anew for each message: they are rare, the daemon may have been restarted since the last
/// one, and so the shim holds no descriptor for it.
struct Syslog {
    socket: PathBuf,
    /// What the messages are about: the container's id.
    subject: String,
}

impl Syslog {
    fn new(socket: &str, id: &OsStr) -> Self {
        Self { socket: socket.into(), subject: OneLine(id.display()).to_string() }
    }

    /// Sends one message, never waiting for the daemon.
    fn send(&self, level: Level, text: &fmt::Arguments<'_>) -> io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let severity = match level {
            Level::Error => 3,
            Level::Warn => 4,
            Level::Info => 6,
            Level::Debug | Level::Trace => 7,
        };
        let priority = SYSLOG_FACILITY | severity;
        let message = format!("<{priority}>dunnage[{}]: {}: {}", process::id(), self.subject, OneLine(text));
        socket.send_to(&message.as_bytes()[..message.len().min(SYSLOG_LIMIT)], &self.socket)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::mpsc;
    use std::time::Duration;
    use std::{env, fs, thread};

    use super::*;

    /// A syslog daemon in a directory of its own, which goes with it.
    struct Daemon {
        path: PathBuf,
        socket: UnixDatagram,
    }

    impl Daemon {
        fn listen(test: &str) -> Self {
            let dir = env::temp_dir().join(format!("dunnage-messages-{test}-{}", process::id()));
            fs::create_dir(&dir).unwrap();
            let path = dir.join("log");
            let socket = Self::bind(&path);
            Self { path, socket }
        }

        fn bind(path: &PathBuf) -> UnixDatagram {
            let socket = UnixDatagram::bind(path).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket
        }

        fn restart(&mut self) {
            fs::remove_file(&self.path).unwrap();
            self.socket = Self::bind(&self.path);
        }

        fn receive(&self) -> String {
            let mut buffer = [0; 2 * SYSLOG_LIMIT];
            let length = self.socket.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        }

        fn client(&self) -> Syslog {
            Syslog::new(self.path.to_str().unwrap(), OsStr::new("box"))
        }
    }

    impl Drop for Daemon {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.path.parent().unwrap());
        }
    }

    #[test]
    fn a_line_cannot_be_forged() {
        let hostile = "a\nb\rc\td\x1b[31m\x7f\u{85}e\0 ümlaut \u{2713}\n";
        assert_eq!(
            Line(Level::Warn, hostile).to_string(),
            "dunnage: warning: a\\nb\\rc\\td\\u{1b}[31m\\u{7f}\\u{85}e\\u{0} ümlaut ✓\\n"
        );
    }

    #[test]
    fn levels_are_called_what_conmon_calls_them() {
        for (level, name) in [
            (Level::Error, "error"),
            (Level::Warn, "warning"),
            (Level::Info, "info"),
            (Level::Debug, "debug"),
            (Level::Trace, "trace"),
        ] {
            assert_eq!(Line(level, "x").to_string(), format!("dunnage: {name}: x"));
        }
    }

    #[test]
    fn only_messages_of_ours_and_of_the_level_asked_for_are_shown() {
        let logger = stderr(LevelFilter::Info);
        for (target, level, shown) in [
            ("dunnage::relay", Level::Info, true),
            ("dunnage_runtime::driver", Level::Error, true),
            ("dunnage::relay", Level::Debug, false),
            ("mio::poll", Level::Error, false),
        ] {
            let metadata = Metadata::builder().target(target).level(level).build();
            assert_eq!(logger.enabled(&metadata), shown, "{target} {level}");
        }
        assert_eq!(logger.filter(), LevelFilter::Info);
    }

    #[test]
    fn syslog_is_told_priority_process_and_container() {
        let daemon = Daemon::listen("told");
        daemon.client().send(Level::Warn, &format_args!("one\ntwo")).unwrap();
        assert_eq!(daemon.receive(), format!("<28>dunnage[{}]: box: one\\ntwo", process::id()));
        daemon.client().send(Level::Error, &format_args!("three")).unwrap();
        assert!(daemon.receive().starts_with("<27>"));
    }

    #[test]
    fn a_syslog_daemon_that_was_restarted_is_found_again() {
        let mut daemon = Daemon::listen("restarted");
        let client = daemon.client();
        client.send(Level::Info, &format_args!("before")).unwrap();
        daemon.restart();
        client.send(Level::Info, &format_args!("after")).unwrap();
        assert!(daemon.receive().ends_with(": after"));
    }

    #[test]
    fn a_syslog_daemon_that_is_gone_or_does_not_read_holds_nobody_up() {
        let daemon = Daemon::listen("full");
        let client = daemon.client();
        let (ended, end) = mpsc::channel();
        thread::spawn(move || {
            // The kernel queues net.unix.max_dgram_qlen datagrams, a few hundred.
            let error = (0..100_000).find_map(|_| client.send(Level::Info, &format_args!("again")).err());
            let _ = ended.send(error.map(|error| error.kind()));
        });
        let error = end.recv_timeout(Duration::from_secs(60)).expect("it waits for the daemon");
        assert_eq!(error, Some(ErrorKind::WouldBlock));
        let client = daemon.client();
        drop(daemon);
        assert_eq!(client.send(Level::Info, &format_args!("gone")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_message_to_syslog_is_cut_to_what_daemons_take() {
        let daemon = Daemon::listen("cut");
        let text = "ü".repeat(SYSLOG_LIMIT);
        daemon.client().send(Level::Info, &format_args!("{text}")).unwrap();
        let mut buffer = [0; 2 * SYSLOG_LIMIT];
        assert_eq!(daemon.socket.recv(&mut buffer).unwrap(), SYSLOG_LIMIT);
    }
}
