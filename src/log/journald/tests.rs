//! The driver on a socket of the tests' own.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::{fs, thread};

use dunnage_runtime::event_loop::Events;

use super::super::testing::{Entry, Scratch};
use super::kept::KEPT_MAX;
use super::text::TEXT_MAX;
use super::*;

use Stream::{Stderr, Stdout};

const BOUND: Duration = Duration::from_secs(20);

/// Something that listens where journald would.
struct Journal {
    path: PathBuf,
    socket: UnixDatagram,
}

impl Journal {
    fn listen(dir: &Scratch) -> Self {
        let path = dir.path("socket");
        let _ = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { path, socket }
    }

    fn driver(&self) -> Journald {
        open(&self.path)
    }

    /// The next entry, if there is one.
    fn next(&self) -> Option<Entry> {
        let mut datagram = vec![0; 1 << 18];
        let len = self.socket.recv(&mut datagram).ok()?;
        Some(Entry::parse(&datagram[..len]))
    }

    fn entries(&self) -> Vec<Entry> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// All that the driver has to send.
    fn drain(&self, log: &mut Journald) -> Vec<Entry> {
        let mut entries = self.entries();
        while !log.has_room() {
            log.handle_writable();
            entries.append(&mut self.entries());
        }
        entries
    }

    fn texts(&self) -> Vec<String> {
        self.entries().iter().map(|entry| entry.text().to_owned()).collect()
    }
}

fn open(path: &Path) -> Journald {
    let options = JournaldOptions {
        id: "0123456789abcdef".into(),
        name: Some("box".into()),
        tag: None,
        labels: vec![],
        mark_partial: true,
    };
    Journald::open_at(path, &options).unwrap()
}

/// Writes numbered lines until there is no room, and a read more of them; how many.
fn fill(log: &mut Journald) -> usize {
    let line = |number: &usize| format!("{number}\n");
    let mut count = 0;
    while log.has_room() {
        log.write(Stdout, line(&count).as_bytes());
        count += 1;
    }
    let more: String = (count..count + 1000).map(|number| line(&number)).collect();
    log.write(Stdout, more.as_bytes());
    assert!(!log.has_room() && log.deadline().is_some());
    count + 1000
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number}\n")).collect()
}

#[test]
fn lines_are_entries_of_their_stream() {
    let dir = Scratch::new();
    let journal = Journal::listen(&dir);
    let mut log = journal.driver();
    log.write(Stdout, b"one\ntwo\n");
    log.write(Stderr, b"three\n");
    let entries = journal.entries();
    let plain: Vec<_> = entries.iter().map(|entry| (entry.text(), entry.field("PRIORITY"))).collect();
    assert_eq!(plain, [("one\n", &b"6"[..]), ("two\n", b"6"), ("three\n", b"3")]);
    for entry in entries {
        assert_eq!(entry.field("CONTAINER_ID_FULL"), b"0123456789abcdef");
        assert_eq!(entry.field("CONTAINER_NAME"), b"box");
        assert!(!entry.has("CONTAINER_PARTIAL_MESSAGE"));
    }
}

#[test]
fn the_start_of_a_line_waits_for_the_rest_or_the_end() {
    let dir = Scratch::new();
    let journal = Journal::listen(&dir);
    let mut log = journal.driver();
    log.write(Stdout, b"<5>he");
    log.write(Stderr, b"err");
    log.write(Stdout, b"llo\n<4>wor");
    let entries = journal.entries();
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].text(), entries[0].field("PRIORITY")), ("hello\n", &b"5"[..]));
    log.release();
    log.write(Stdout, b"ld");
    assert_eq!(journal.texts(), Vec::<String>::new());
    log.end(Stdout);
    log.end(Stdout);
    log.end(Stderr);
    let entries = journal.entries();
    assert_eq!(entries.iter().map(Entry::text).collect::<Vec<_>>(), ["world", "err"]);
    assert_eq!(entries[0].field("PRIORITY"), b"4");
    assert!(entries.iter().all(|entry| entry.field("CONTAINER_PARTIAL_MESSAGE") == b"true"));
}

#[test]
fn f05_any_output_in_any_reads_joins_to_itself() {
    let dir = Scratch::new();
    let journal = Journal::listen(&dir);
    let output: Vec<u8> = [10, 16_383, 16_384, 50_000, 0, 1]
        .into_iter()
        .flat_map(|len| [vec![b'x'; len], vec![b'\n']].concat())
        .collect();
    for read in [1, 7, 8192, 65_536] {
        let mut log = journal.driver();
        let mut entries = Vec::new();
        for read in output.chunks(read) {
            log.write(Stdout, read);
            entries.append(&mut journal.drain(&mut log));
        }
        let joined: Vec<u8> = entries.iter().flat_map(|entry| entry.field("MESSAGE").to_vec()).collect();
        assert!(joined == output, "reads of {read}");
        let partial = |entry: &Entry| entry.has("CONTAINER_PARTIAL_MESSAGE");
        assert!(entries.iter().all(|entry| partial(entry) != entry.text().ends_with('\n')));
        assert_eq!(entries.len(), 9, "a line of 50000 bytes has 4");
        assert!(entries.iter().all(|entry| entry.text().len() <= TEXT_MAX + 1));
    }
}

#[test]
fn e06_binary_output_arrives_as_it_is() {
    let dir = Scratch::new();
    let journal = Journal::listen(&dir);
    let mut log = journal.driver();
    let output: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let mut joined = Vec::new();
    for read in output.chunks(5000) {
        log.write(Stdout, read);
        joined.extend(journal.drain(&mut log).iter().flat_map(|entry| entry.field("MESSAGE").to_vec()));
    }
    log.end(Stdout);
    joined.extend(journal.entries().iter().flat_map(|entry| entry.field("MESSAGE").to_vec()));
    assert!(joined == output);
}

#[test]
fn a_journald_that_is_behind_is_waited_for_and_nothing_is_lost() {
    let dir = Scratch::new();
    let journal = Journal::listen(&dir);
    let mut log = journal.driver();
    let count = fill(&mut log);
    let mut event_loop = EventLoop::new().unwrap();
    let mut events = Events::with_capacity(8);
    let mut texts = Vec::new();
    let start = Instant::now();
    while texts.len() < count {
        log.watch(&event_loop);
        let before = texts.len();
        texts.append(&mut journal.texts());
        assert!(texts.len() > before, "no progress after {before}");
        if !log.has_room() {
            event_loop.wait(&mut events, Some(start + BOUND)).unwrap();
            assert!(events.iter::<Source>().any(|event| event.source == Source::Journal && event.writable));
            log.handle_writable();
        }
    }
    assert_eq!(texts, numbers(count));
    assert!(log.has_room() && log.deadline().is_none());
    log.watch(&event_loop);
    log.write(Stdout, b"more\n");
    assert_eq!(journal.texts(), ["more\n"]);
    event_loop.wait(&mut events, Some(Instant::now() + Duration::from_millis(1))).unwrap();
    assert_eq!(events.iter::<Source>().count(), 0, "with room it is not watched");
}

#[test]
fn one_that_takes_nothing_for_too_long_loses_what_it_is_told_of_later() {
    let dir = Scratch::new();
    let journal = Journal::listen(&dir);
    let mut log = journal.driver();
    let count = fill(&mut log);
    log.handle_deadline();
    assert!(!log.has_room(), "the deadline has not come yet");
    log.state = State::Full { until: Instant::now() };
    log.handle_deadline();
    assert!(log.has_room() && log.deadline().is_some());
    log.write(Stderr, b"dropped\nbegun");
    let taken = journal.texts();
    assert_eq!(taken, numbers(taken.len()), "what it had taken before");
    let dropped: usize = numbers(count)[taken.len()..].iter().map(String::len).sum::<usize>() + "dropped\n".len();
    let start = Instant::now();
    let entries = loop {
        log.handle_deadline();
        let entries = journal.entries();
        if !entries.is_empty() {
            break entries;
        }
        assert!(start.elapsed() < BOUND);
        thread::yield_now();
    };
    let (bytes, lines, reason) = entries[0].note().unwrap();
    assert_eq!((bytes, lines), (dropped as u64, (count - taken.len()) as u64 + 1));
    assert!(reason.contains("Try again") || reason.contains("unavailable"), "{reason}");
    assert_eq!(entries[0].field("PRIORITY"), b"3");
    log.write(Stderr, b" before\n");
    assert_eq!(journal.texts(), ["begun before\n"], "a line that was begun is whole");
    assert!(log.deadline().is_none());
}

#[test]
fn without_a_journald_output_is_dropped_at_once_until_there_is_one() {
    let dir = Scratch::new();
    let mut log = open(&dir.path("socket"));
    log.write(Stdout, b"one\ntwo\n");
    assert!(log.has_room() && log.deadline().is_some());
    let journal = Journal::listen(&dir);
    log.write(Stdout, b"three\n");
    let entries = journal.entries();
    assert_eq!(entries[0].note(), Some((8, 2, "No such file or directory".to_owned())));
    assert_eq!(entries[1].text(), "three\n");
    assert!(log.deadline().is_none());
}

#[test]
fn a_journald_that_was_restarted_is_found_again() {
    let dir = Scratch::new();
    let journal = Journal::listen(&dir);
    let mut log = journal.driver();
    log.write(Stdout, b"one\n");
    assert_eq!(journal.texts(), ["one\n"]);
    drop(journal);
    let journal = Journal::listen(&dir);
    log.write(Stdout, b"two\n");
    assert_eq!(journal.texts(), ["two\n"]);
    // One that goes without having read all, and with a full queue.
    let count = fill(&mut log);
    drop(journal);
    let journal = Journal::listen(&dir);
    log.handle_writable();
    let texts = journal.texts();
    assert!(!texts.is_empty() && numbers(count).contains(&texts[0]), "{texts:?}");
    drop(journal);
    fs::remove_file(dir.path("socket")).unwrap();
    log.write(Stdout, b"three\n");
    assert!(log.has_room() && log.deadline().is_some());
}

#[test]
fn at_the_end_it_waits_a_moment_for_room_and_no_longer() {
    let dir = Scratch::new();
    let journal = Journal::listen(&dir);
    let mut log = journal.driver();
    let count = fill(&mut log);
    let reader = thread::spawn(move || {
        let start = Instant::now();
        let mut texts = Vec::new();
        while texts.len() < count && start.elapsed() < BOUND {
            texts.append(&mut journal.texts());
            thread::yield_now();
        }
        (journal, texts)
    });
    log.make_room();
    assert!(log.has_room() && log.deadline().is_none());
    let (journal, texts) = reader.join().unwrap();
    assert_eq!(texts, numbers(count));

    fill(&mut log);
    let start = Instant::now();
    log.make_room();
    log.make_room();
    log.write(Stdout, &vec![b'\n'; 3 * KEPT_MAX.get()]);
    log.finish();
    assert!(start.elapsed() < END_STALL_MAX + Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(log.has_room() && log.deadline().is_some());
    drop(journal);
}

#[test]
fn at_the_end_a_journald_that_is_slow_is_given_what_it_takes() {
    let dir = Scratch::new();
    let journal = Journal::listen(&dir);
    let mut log = journal.driver();
    let count = fill(&mut log);
    let reader = thread::spawn(move || {
        let start = Instant::now();
        let mut texts = Vec::new();
        while texts.len() < count && start.elapsed() < BOUND {
            let Some(entry) = journal.next() else { continue };
            texts.push(entry.text().to_owned());
            // How slow it is, is what is tried: longer in all than it may take nothing.
            if texts.len().is_multiple_of(count / 5) {
                thread::sleep(END_STALL_MAX / 3);
            }
        }
        texts
    });
    log.make_room();
    assert!(log.has_room() && log.deadline().is_none());
    assert_eq!(reader.join().unwrap(), numbers(count));
}

#[test]
fn output_beyond_all_room_is_counted() {
    let dir = Scratch::new();
    let journal = Journal::listen(&dir);
    let mut log = journal.driver();
    let output = b"a line of text\n".repeat(100_000);
    log.write(Stdout, &output);
    log.write(Stdout, &output);
    let mut entries = journal.entries();
    assert!(matches!(log.state, State::Losing(_)));
    let start = Instant::now();
    while log.deadline().is_some() {
        log.handle_deadline();
        entries.append(&mut journal.entries());
        assert!(start.elapsed() < BOUND);
    }
    let lost: u64 = entries.iter().filter_map(Entry::note).map(|(bytes, ..)| bytes).sum();
    let logged: usize = entries.iter().filter(|entry| entry.note().is_none()).map(|entry| entry.text().len()).sum();
    assert_eq!(logged as u64 + lost, 2 * output.len() as u64);
    let lines_logged = entries.iter().filter(|entry| entry.note().is_none()).count() as u64;
    assert_eq!(log.totals(), Totals { lines_logged, bytes_dropped: lost });
}

#[test]
fn an_entry_that_is_too_large_is_counted_and_the_next_ones_are_tried() {
    let dir = Scratch::new();
    let journal = Journal::listen(&dir);
    let mut log = journal.driver();
    let labels = vec![format!("A={}", "x".repeat(1 << 20)).into()];
    log.fields = Fields::new(&JournaldOptions { id: "x".into(), name: None, tag: None, labels, mark_partial: true });
    log.write(Stdout, b"one\n");
    let State::Losing(loss) = &log.state else { panic!("it was sent") };
    assert_eq!(loss.to_string(), "4 bytes of output (1 line) were not logged: Message too long");
}

#[test]
fn memory_is_given_back_when_idle_but_for_what_is_kept() {
    let dir = Scratch::new();
    let journal = Journal::listen(&dir);
    let mut log = journal.driver();
    log.write(Stdout, &b"x\n".repeat(5000));
    log.write(Stdout, b"begun");
    log.release();
    journal.drain(&mut log);
    log.release();
    assert!(!log.has_grown(), "the start of a line is kept, maybe for ever");
    log.write(Stdout, b" and ended\n");
    assert!(log.has_grown(), "what was not given back is not forgotten");
    assert_eq!(journal.texts().pop().as_deref(), Some("begun and ended\n"));
}
