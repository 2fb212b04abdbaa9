//! Clients that never stop asking a service, through its canonical socket.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunnage_testing::wait::{self, Deadline};

/// How many ask at once.
const CLIENTS: usize = 3;

/// A request that is not answered in this time has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Result<Answers, String>>>,
}

/// Of each generation that has answered: how often, and when it was last asked.
pub(crate) type Answers = BTreeMap<u64, (usize, Instant)>;

impl Load {
    /// Begins to ask.
    pub(crate) fn start(canonical: &Path) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |_| {
            let (stop, answered, path) = (Arc::clone(&stop), Arc::clone(&answered), canonical.to_owned());
            thread::spawn(move || ask_on(&path, &stop, &answered))
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self { stop, answered, clients }
    }

    /// Waits until more have been answered.
    pub(crate) fn goes_on(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        let more = || self.answered.load(Ordering::Relaxed) >= before + CLIENTS || self.has_failed();
        wait::eventually(Deadline::usual(), "more answers", more);
    }

    fn has_failed(&self) -> bool {
        self.clients.iter().any(JoinHandle::is_finished)
    }

    /// Ends it, and gives who has answered. None may have failed.
    pub(crate) fn finish(self) -> Answers {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Answers::new();
        for client in self.clients {
            for (generation, (count, last)) in client.join().unwrap().unwrap_or_else(|error| panic!("{error}")) {
                let entry = all.entry(generation).or_insert((0, last));
                *entry = (entry.0 + count, entry.1.max(last));
            }
        }
        all
    }
}

fn ask_on(path: &Path, stop: &AtomicBool, answered: &AtomicUsize) -> Result<Answers, String> {
    let mut answers = Answers::new();
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let generation = get(path).map_err(|error| format!("a request failed after {answers:?}: {error}"))?;
        let entry = answers.entry(generation).or_insert((0, asked));
        *entry = (entry.0 + 1, asked);
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(answers)
}

/// One request: the generation that has answered.
pub(crate) fn get(path: &Path) -> io::Result<u64> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let wrong = || io::Error::other(format!("{answer:?}"));
    let body =
        answer.strip_prefix("HTTP/1.1 200 OK\r\n").and_then(|rest| rest.split_once("\r\n\r\n")).ok_or_else(wrong)?;
    let number = body.1.strip_prefix("generation ").and_then(|rest| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).filter(|_| body.1.ends_with('\n')).ok_or_else(wrong)
}
