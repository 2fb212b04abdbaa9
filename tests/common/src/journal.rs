//! What listens where journald would, for what is started in one sandbox.

use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::unistd::gettid;

use crate::{Monitor, Sandbox};

/// The most that is received at once.
const DATAGRAM_MAX: usize = 256 * 1024;

/// A journal that keeps every entry.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    reader: JoinHandle<Vec<JournalEntry>>,
}

/// An entry: values by their names. Of what tells where in its source a program made it, nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry(pub BTreeMap<String, Vec<u8>>);

impl Journal {
    /// Listens in a directory of the sandbox.
    pub fn listen(sandbox: &Sandbox) -> Self {
        let dir = sandbox.root().join("journal");
        std::fs::create_dir(&dir).expect("a directory for the journal");
        let socket = UnixDatagram::bind(dir.join("socket")).expect("the journal's socket");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a bound");
        let reader = thread::spawn(move || {
            hurry();
            let mut datagram = vec![0; DATAGRAM_MAX];
            let mut entries = Vec::new();
            loop {
                match socket.recv(&mut datagram).expect("an entry, or the end of them") {
                    0 => return entries,
                    len => entries.push(JournalEntry::parse(&datagram[..len])),
                }
            }
        });
        Self { dir, reader }
    }

    /// Lets a monitor find it, in a mount namespace of its own.
    #[must_use]
    pub fn reached_by<'a>(&self, monitor: Monitor<'a>) -> Monitor<'a> {
        monitor.through(&in_own_run("/run/systemd/journal", &self.dir))
    }

    /// All entries, once nothing is sent any more.
    pub fn entries(self) -> Vec<JournalEntry> {
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.connect(self.dir.join("socket"))?;
            socket.send(b"")
        });
        socket.expect("the end of the journal");
        self.reader.join().expect("the journal's reader")
    }
}

/// Has the calling thread run before all others: a journal that takes nothing in time loses output, and rightly so.
fn hurry() {
    let renice = Command::new("renice").args(["-n", "-20", "-p", &gettid().to_string()]).output();
    assert!(renice.is_ok_and(|output| output.status.success()), "renice");
}

/// A prelude for [`Monitor::through`]: a `/run` of the process's own, with a directory bound into it.
pub fn in_own_run(path: &str, dir: &Path) -> String {
    format!(
        "exec unshare --mount --propagation private sh -ec 'mount -t tmpfs none /run; mkdir -p {path}; \
         mount --bind {} {path}; exec \"$0\" \"$@\"'",
        dir.display()
    )
}

impl JournalEntry {
    /// Panics at what is no entry in the native protocol.
    pub fn parse(mut datagram: &[u8]) -> Self {
        let mut fields = BTreeMap::new();
        while let Some(end) = datagram.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&datagram[..end], &datagram[end + 1..]);
            let (name, value);
            if let Some(equals) = line.iter().position(|byte| *byte == b'=') {
                (name, value, datagram) = (&line[..equals], &line[equals + 1..], rest);
            } else {
                let (len, rest) = rest.split_first_chunk().expect("the length of a value");
                let len = usize::try_from(u64::from_le_bytes(*len)).expect("a length");
                (name, value, datagram) = (line, &rest[..len], &rest[len + 1..]);
            }
            let name = String::from_utf8(name.to_vec()).expect("a name");
            if !name.starts_with("CODE_") {
                assert!(fields.insert(name.clone(), value.to_vec()).is_none(), "{name} twice");
            }
        }
        assert!(datagram.is_empty(), "half a field: {}", datagram.escape_ascii());
        Self(fields)
    }

    /// A field's value, or nothing.
    pub fn field(&self, name: &str) -> &[u8] {
        self.0.get(name).map_or(b"", Vec::as_slice)
    }
}
