//! The driver on real files.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, thread};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::super::testing::{Records, Scratch};
use super::*;
use dunnage_records::{PREFIX_LEN, TEXT_MAX};

use Stream::{Stderr, Stdout};

const BOUND: Duration = Duration::from_secs(10);

fn open(path: &Path) -> K8sFile {
    open_with(path, |_| ())
}

fn open_limited(path: &Path, size_max: u64) -> K8sFile {
    open_with(path, |options| options.size_max = Some(size_max))
}

fn open_with(path: &Path, change: impl FnOnce(&mut K8sFileOptions)) -> K8sFile {
    let mut options = K8sFileOptions { path: path.to_owned(), ..K8sFileOptions::default() };
    change(&mut options);
    K8sFile::open(&options).unwrap()
}

/// What is beside the log in its directory.
fn others(log: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(log.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path != log).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Repeats `step` until it says that what is waited for has come.
fn until(what: &str, mut step: impl FnMut() -> bool) {
    let start = Instant::now();
    while !step() {
        assert!(start.elapsed() < BOUND, "{what} did not come");
        thread::yield_now();
    }
}

/// Marsaglia's xorshift: the same numbers for the same seed.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    /// Output with lines of all lengths.
    fn output(&mut self, len: usize) -> Vec<u8> {
        let newlines = [2, 20, 100, 5_000, 40_000][self.below(5)];
        let byte =
            |random: &mut Self| if random.below(newlines) == 0 { b'\n' } else { random.below(256).to_le_bytes()[0] };
        (0..len).map(|_| byte(self)).collect()
    }
}

#[test]
fn pieces_of_both_streams_stand_in_the_order_they_came_in() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open(&path);
    for (stream, output) in
        [(Stdout, "abc"), (Stderr, "err\n"), (Stdout, "def\nhalf"), (Stdout, "\n\n"), (Stderr, "end")]
    {
        log.write(stream, output.as_bytes());
    }
    let expected = [
        ("stdout", 'P', "abc"),
        ("stderr", 'F', "err"),
        ("stdout", 'F', "def"),
        ("stdout", 'P', "half"),
        ("stdout", 'F', ""),
        ("stdout", 'F', ""),
        ("stderr", 'P', "end"),
    ];
    assert_eq!(Records::of(&path).plain(), expected, "no empty record is added at the end");
}

#[test]
fn f06_single_bytes_are_written_at_once_and_join_to_the_same_text() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open(&path);
    for (count, byte) in b"hello\n".iter().enumerate() {
        log.write(Stdout, &[*byte]);
        assert_eq!(Records::of(&path).len(), count + 1);
    }
    assert_eq!(Records::of(&path).joined("stdout"), b"hello\n");
}

#[test]
fn one_read_has_one_stamp() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open(&path);
    log.write(Stdout, &b"x\n".repeat(100_000));
    log.write(Stdout, b"y\n");
    let records = Records::of(&path);
    assert_eq!(records.len(), 100_001);
    assert!(records[..100_000].iter().all(|record| record.stamp == records[0].stamp));
    assert!(records[100_000].stamp > records[0].stamp);
}

#[test]
fn an_empty_read_writes_nothing() {
    let dir = Scratch::new();
    let path = dir.path("log");
    open(&path).write(Stdout, b"");
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn a_new_log_has_mode_0640_and_an_old_one_is_appended_to() {
    let dir = Scratch::new();
    let path = dir.path("log");
    open(&path).write(Stdout, b"one\n");
    assert_eq!(mode(&path), 0o640);
    open(&path).write(Stdout, b"two\n");
    assert_eq!(Records::of(&path).joined("stdout"), b"one\ntwo\n");
}

#[test]
fn a_line_torn_by_an_earlier_crash_is_ended_first() {
    let dir = Scratch::new();
    let path = dir.path("log");
    fs::write(&path, "2026-11-").unwrap();
    open(&path).write(Stdout, b"one\n");
    let log = fs::read(&path).unwrap();
    assert_eq!(Records::parse(log.strip_prefix(b"2026-11-\n").unwrap()).joined("stdout"), b"one\n");
}

#[test]
fn a_log_that_is_emptied_by_others_goes_on_at_its_start() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open_limited(&path, 1000);
    log.write(Stdout, &[b'x'; 800]);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    log.write(Stdout, &[b'y'; 800]);
    assert_eq!(Records::of(&path).joined("stdout"), [b'y'; 800]);
    assert_eq!(fs::metadata(&path).unwrap().ino(), file.metadata().unwrap().ino(), "there was room: not replaced");
}

#[test]
fn d10_a_log_deleted_with_its_directory_fails_nothing() {
    let dir = Scratch::new();
    fs::create_dir(dir.path("gone")).unwrap();
    let path = dir.path("gone/log");
    let mut log = open_limited(&path, 200);
    let mut kept = File::open(&path).unwrap();
    fs::remove_dir_all(dir.path("gone")).unwrap();
    let output = (0..100).map(|number| format!("line {number}\n")).collect::<Vec<_>>().concat();
    for line in output.split_inclusive('\n') {
        log.write(Stdout, line.as_bytes());
    }
    log.reopen();
    log.finish();
    let mut content = Vec::new();
    kept.read_to_end(&mut content).unwrap();
    assert_eq!(Records::parse(&content).joined("stdout"), output.as_bytes(), "what could be kept was kept");
}

// Size limits.

#[test]
fn the_file_is_replaced_before_the_record_that_would_pass_the_limit() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let record = PREFIX_LEN + 10;
    let mut log = open_limited(&path, 3 * record as u64);
    let first = File::open(&path).unwrap();
    log.write(Stdout, b"1 - line.\n2 - line.\n");
    log.write(Stdout, b"3 - line.\n");
    assert_eq!(Records::of(&path).len(), 3, "exactly full is not above");
    log.write(Stdout, b"4 - line.\n");
    assert_eq!(Records::of(&path).joined("stdout"), b"4 - line.\n");
    assert_eq!(mode(&path), 0o640);
    assert_eq!(first.metadata().unwrap().nlink(), 0);
    log.write(Stdout, b"5 - line.\n6 - line.\n7 - line.\n8 - line.\n9 - line.\n");
    assert_eq!(Records::of(&path).joined("stdout"), b"7 - line.\n8 - line.\n9 - line.\n", "also within one read");
    assert_eq!(others(&path), Vec::<PathBuf>::new());
}

#[test]
fn the_end_of_a_torn_line_counts_towards_the_limit() {
    let dir = Scratch::new();
    let path = dir.path("log");
    for room in [0, 1] {
        fs::write(&path, "torn").unwrap();
        let record = PREFIX_LEN + "text\n".len();
        let mut log = open_limited(&path, ("torn".len() + record + room) as u64);
        log.write(Stdout, b"text\n");
        let expected = record + if room == 1 { "torn\n".len() } else { 0 };
        assert_eq!(fs::metadata(&path).unwrap().size(), expected as u64, "{room}");
    }
}

#[test]
fn a_record_above_the_limit_is_alone_in_its_file() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open_limited(&path, 100);
    let first = fs::metadata(&path).unwrap().ino();
    log.write(Stdout, &[b'x'; 500]);
    assert_eq!(fs::metadata(&path).unwrap().ino(), first, "an empty file is as good as a new one");
    for output in [&b"small\n"[..], &[b'x'; 500], b"small\n", b"tiny\n", &[b'y'; 501]] {
        log.write(Stdout, output);
        assert!(Records::of(&path).joined("stdout").ends_with(output));
        assert!(Records::of(&path).len() == 1 || fs::metadata(&path).unwrap().len() <= 100);
    }
    log.write(Stdout, b"1\n2\n");
    assert_eq!(Records::of(&path).joined("stdout"), b"1\n2\n");
}

#[test]
fn what_the_file_held_at_the_start_counts() {
    let dir = Scratch::new();
    let path = dir.path("log");
    open(&path).write(Stdout, b"before\n");
    open_limited(&path, 100).write(Stdout, b"after\n");
    assert_eq!(Records::of(&path).joined("stdout"), b"after\n");
}

#[test]
fn f01_every_line_parses_over_many_replacements() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open_limited(&path, 20_480);
    let mut sent = [Vec::new(), Vec::new()];
    let (mut replaced, mut inode) = (0, fs::metadata(&path).unwrap().ino());
    for round in 0..400_usize {
        let stream = if round % 3 == 0 { Stderr } else { Stdout };
        let output = match round % 8 {
            0 => vec![b'x'; 100_000].into_iter().chain([b'\n']).collect(),
            1 | 5 => format!("partial {round} ").into_bytes(),
            _ => format!("short {round}\n").repeat(round % 40).into_bytes(),
        };
        for read in output.chunks(65_536) {
            log.write(stream, read);
            let records = Records::of(&path);
            assert!(records.len() == 1 || fs::metadata(&path).unwrap().len() <= 20_480);
            sent[stream as usize].extend_from_slice(read);
            assert!(sent[0].ends_with(&records.joined("stdout")) && sent[1].ends_with(&records.joined("stderr")));
            let now = fs::metadata(&path).unwrap().ino();
            replaced += u32::from(now != inode);
            inode = now;
        }
    }
    assert!(replaced >= 50, "{replaced} replacements");
}

#[test]
fn if_replacing_fails_the_old_file_grows_on_until_it_works_again() {
    let dir = Scratch::new();
    let path = dir.path("log");
    // Where the new file would be made.
    fs::create_dir(dir.path(".log.new")).unwrap();
    let mut log = open_limited(&path, 100);
    let first = fs::metadata(&path).unwrap().ino();
    let output = b"a line of text\n".repeat(1000);
    log.write(Stdout, &output);
    log.write(Stdout, b"more\n");
    assert_eq!(Records::of(&path).joined("stdout"), [&output[..], b"more\n"].concat());
    fs::remove_dir(dir.path(".log.new")).unwrap();
    until("a new file", || {
        log.write(Stdout, b"last\n");
        fs::metadata(&path).unwrap().ino() != first
    });
    assert_eq!(Records::of(&path).joined("stdout"), b"last\n");
}

// Reopening.

#[test]
fn f13_reopening_puts_a_new_file_at_the_path_at_once() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open_limited(&path, 100);
    let mut old = File::open(&path).unwrap();
    log.write(Stdout, b"before\n");
    log.reopen();
    assert_eq!((fs::metadata(&path).unwrap().len(), mode(&path)), (0, 0o640));
    log.write(Stdout, b"after\n");
    log.write(Stdout, b"more\n");
    let mut content = Vec::new();
    old.read_to_end(&mut content).unwrap();
    assert_eq!(Records::parse(&content).joined("stdout"), b"before\n");
    assert_eq!(
        Records::of(&path).joined("stdout"),
        b"more\n",
        "the size began anew and passed 100 at the third record"
    );
    assert_eq!(others(&path), Vec::<PathBuf>::new());
}

#[test]
fn f13_a_log_that_was_renamed_away_keeps_what_it_holds() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open(&path);
    log.write(Stdout, b"one\n");
    fs::rename(&path, dir.path("log.1")).unwrap();
    log.write(Stdout, b"two\n");
    log.reopen();
    assert!(path.exists());
    log.write(Stdout, b"three\n");
    assert_eq!(Records::of(dir.path("log.1")).joined("stdout"), b"one\ntwo\n");
    assert_eq!(Records::of(&path).joined("stdout"), b"three\n");
}

#[test]
fn a_file_that_others_put_at_the_path_is_appended_to() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open(&path);
    fs::rename(&path, dir.path("log.1")).unwrap();
    let mut theirs = OpenOptions::new().append(true).create(true).mode(0o600).open(&path).unwrap();
    theirs.write_all(b"theirs\n").unwrap();
    log.reopen();
    log.write(Stdout, b"ours\n");
    let content = fs::read(&path).unwrap();
    assert_eq!(Records::parse(content.strip_prefix(b"theirs\n").unwrap()).joined("stdout"), b"ours\n");
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn if_reopening_fails_the_old_file_stays_in_use() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open(&path);
    for obstacle in [dir.path(".log.new"), path.clone()] {
        let old = dir.path("old");
        fs::hard_link(&path, &old).unwrap();
        if obstacle == path {
            fs::remove_file(&path).unwrap();
        }
        fs::create_dir(&obstacle).unwrap();
        log.reopen();
        log.write(Stdout, b"a line\n");
        assert!(Records::of(&old).joined("stdout").ends_with(b"a line\n"));
        fs::remove_dir(&obstacle).unwrap();
        fs::remove_file(&old).unwrap();
    }
    log.reopen();
    log.write(Stdout, b"again\n");
    assert_eq!(Records::of(&path).joined("stdout"), b"again\n");
}

#[test]
fn the_file_behind_a_link_is_replaced_and_the_link_stays() {
    let dir = Scratch::new();
    fs::create_dir(dir.path("disk")).unwrap();
    symlink("disk/real", dir.path("log")).unwrap();
    let mut log = open(&dir.path("log"));
    log.write(Stdout, b"one\n");
    log.reopen();
    log.write(Stdout, b"two\n");
    assert!(fs::symlink_metadata(dir.path("log")).unwrap().is_symlink());
    assert_eq!(Records::of(dir.path("disk/real")).joined("stdout"), b"two\n");
    assert_eq!(others(&dir.path("disk/real")), Vec::<PathBuf>::new());
    fs::rename(dir.path("log"), dir.path("log.1")).unwrap();
    log.reopen();
    log.write(Stdout, b"three\n");
    assert_eq!(
        Records::of(dir.path("log")).joined("stdout"),
        b"three\n",
        "a link that was renamed away is not followed"
    );
}

#[test]
fn a_name_of_any_length_can_be_replaced_and_leftovers_are() {
    for name in ["log", &"n".repeat(250), &"n".repeat(255)] {
        let dir = Scratch::new();
        let path = dir.path(name);
        let mut log = open(&path);
        fs::write(dir.path(".log.new"), "left by a crash").unwrap();
        log.write(Stdout, b"one\n");
        log.reopen();
        assert_eq!(fs::read(&path).unwrap(), b"", "{name}");
    }
}

// What is no regular file.

#[test]
fn f02_devices_are_never_replaced() {
    // Bound into a directory of the test's own: a fault here must not take the machine's /dev/null away.
    let shell =
        format!(r#"for name in null full; do touch "${ROLE}/$name"; mount --bind /dev/$name "${ROLE}/$name"; done"#);
    let Some(dir) = in_own_process("f02_devices_are_never_replaced", &shell) else {
        return;
    };
    for device in [dir.join("null"), dir.join("full")] {
        for size_max in [None, Some(10)] {
            let before = fs::metadata(&device).unwrap().ino();
            let mut log = open_with(&device, |options| options.size_max = size_max);
            log.write(Stdout, &b"a line\n".repeat(1000));
            assert!(log.replace_failed.is_none() && log.file.replace().is_ok(), "no attempt, so no failure");
            log.write(Stdout, b"a line\n");
            log.finish();
            assert_eq!(fs::metadata(&device).unwrap().ino(), before);
            assert_eq!(log.loss.is_some(), device.ends_with("full"));
        }
    }
}

#[test]
fn d10_c04_a_fifo_never_blocks_and_says_what_it_did_not_take() {
    let dir = Scratch::new();
    let path = dir.path("fifo");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let mut log = open_limited(&path, 1000);
    let mut random = XorShift(42);
    let (mut sent, mut read) = (0, Vec::new());
    let mut reader = None;
    for round in 0..400 {
        let output = [random.output(3000), b"\n".to_vec()].concat();
        log.write(Stdout, &output);
        sent += output.len() as u64;
        if round == 100 {
            log.reopen();
            reader = Some(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap());
        }
        if let Some(reader) = &mut reader
            && round % 20 == 0
        {
            // Some bytes, so that there is room for a part of a record only.
            let mut some = vec![0; 1 + random.below(20_000)];
            let count = reader.read(&mut some).unwrap_or(0); // Nothing there for now.
            read.extend_from_slice(&some[..count]);
        }
    }
    let mut reader = reader.unwrap();
    until("the end", || {
        let _ = reader.read_to_end(&mut read);
        log.tell_loss();
        log.loss.is_none() && log.file.finish().is_ok()
    });
    let _ = reader.read_to_end(&mut read);
    let records = Records::parse(&read);
    let lost: u64 = records.notes().iter().map(|(bytes, ..)| bytes).sum();
    assert!(!records.notes().is_empty());
    assert_eq!(records.joined("stdout").len() as u64 + lost, sent);
    assert_eq!(log.totals(), Totals { lines_logged: records.lines(), bytes_dropped: lost });
}

#[test]
fn e19_a_reader_that_leaves_is_waited_for() {
    let dir = Scratch::new();
    let path = dir.path("fifo");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    let mut log = open(&path);
    log.write(Stdout, b"unread\n");
    drop(reader);
    log.write(Stdout, b"nobody reads\n");
    let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    log.write(Stdout, b"read\n");
    let mut read = Vec::new();
    let _ = reader.read_to_end(&mut read);
    assert_eq!(Records::parse(&read).joined("stdout"), b"unread\nnobody reads\nread\n");
}

// Memory.

#[test]
fn memory_is_given_back_when_idle() {
    let dir = Scratch::new();
    let mut log = open(&dir.path("log"));
    log.write(Stdout, b"a line\n");
    assert!(!log.has_grown(), "one page is kept");
    // Short lines need more room in the log than in a pipe.
    log.write(Stdout, &b"a line\n".repeat(500));
    assert!(log.has_grown());
    assert!(!log.has_grown(), "it is told once");
    log.release();
    assert!(log.buffer.iter().all(|&byte| byte == 0));
    log.write(Stdout, b"and on\n");
    assert_eq!(Records::of(log.file.path()).len(), 502);
}

// Full disks: in a process of their own, as they need one that may mount, or limits that hold for all of it.

const ROLE: &str = "DUNNAGE_LOG_TEST_DIR";

/// Runs `test` again in a process of its own that `shell` prepares. In that process: the directory it was given.
fn in_own_process(test: &str, shell: &str) -> Option<PathBuf> {
    if let Some(dir) = env::var_os(ROLE) {
        return Some(dir.into());
    }
    let dir = Scratch::new();
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--propagation", "private", "sh", "-ec"]).arg(format!("{shell}\nexec \"$@\"")).arg("sh");
    command.arg(env::current_exe().unwrap()).args(["--exact", "--nocapture"]);
    command.arg(format!("log::k8s_file::tests::{test}")).env(ROLE, dir.path(""));
    let output = command.output().unwrap();
    let [said, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    None
}

#[test]
fn f07_a_full_disk_tears_no_line_and_the_log_says_what_is_missing() {
    let shell = format!("mount -t tmpfs -o size=128k none \"${ROLE}\"");
    let Some(dir) = in_own_process("f07_a_full_disk_tears_no_line_and_the_log_says_what_is_missing", &shell) else {
        return;
    };
    let (path, filler) = (dir.join("log"), dir.join("filler"));
    fs::write(&filler, vec![0; 64 * 1024]).unwrap();
    let mut random = XorShift(7);
    let mut log = open(&path);
    let mut sent = 0;
    while sent < 1 << 20 {
        let output = random.output(5000);
        log.write(if sent % 2 == 0 { Stdout } else { Stderr }, &output);
        sent += output.len() as u64;
        Records::of(&path);
    }
    assert_eq!(Records::of(&path).notes(), [], "no room for any");
    log.finish();
    fs::remove_file(&filler).unwrap();
    until("a note", || {
        log.write(Stdout, b"a line\n");
        sent += 7;
        !Records::of(&path).notes().is_empty()
    });
    let records = Records::of(&path);
    let [(lost, lines, reason)] = &records.notes()[..] else { panic!("{:?}", records.notes()) };
    assert_eq!(reason, "No space left on device");
    assert!(*lines > 0);
    let logged = records.joined("stdout").len() + records.joined("stderr").len();
    assert_eq!(logged as u64 + lost, sent);
    assert_eq!(log.totals(), Totals { lines_logged: records.lines(), bytes_dropped: *lost });
    assert_eq!(records.last().unwrap().text, b"a line", "the line that was written with the note");
}

#[test]
fn f07_without_further_output_the_log_speaks_at_its_deadline_reopening_and_sync() {
    let shell = format!("mount -t tmpfs -o size=128k none \"${ROLE}\"");
    let test = "f07_without_further_output_the_log_speaks_at_its_deadline_reopening_and_sync";
    let Some(dir) = in_own_process(test, &shell) else {
        return;
    };
    let (path, filler) = (dir.join("log"), dir.join("filler"));
    for speak in [K8sFile::tell_loss, K8sFile::reopen, |log: &mut K8sFile| log.finish()] {
        let mut log = open(&path);
        assert_eq!(log.deadline(), None);
        fs::write(&filler, vec![0; 64 * 1024]).unwrap();
        log.write(Stdout, &b"a line\n".repeat(20_000));
        assert!(log.deadline().is_some());
        fs::hard_link(&path, dir.join("old")).unwrap(); // So that a new file alone makes no room.
        speak(&mut log);
        assert!(log.deadline().is_some());
        fs::remove_file(&filler).unwrap();
        speak(&mut log);
        assert_eq!(Records::of(&path).notes().len(), 1);
        assert_eq!(log.deadline(), None);
        fs::remove_file(&path).unwrap();
        fs::remove_file(dir.join("old")).unwrap();
    }
}

#[test]
fn f07_a_file_that_may_not_grow_at_any_byte_holds_whole_records_and_the_rest_is_counted() {
    let test = "f07_a_file_that_may_not_grow_at_any_byte_holds_whole_records_and_the_rest_is_counted";
    let Some(dir) = in_own_process(test, "trap '' XFSZ") else {
        return;
    };
    let path = dir.join("log");
    let output = b"first\nand the second\n\nthe fourth one has no end";
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    let whole = 4 * PREFIX_LEN + output.len() + 1;
    for room in 0..=whole {
        let mut log = open(&path);
        setrlimit(Resource::RLIMIT_FSIZE, room as u64, hard).unwrap();
        log.write(Stdout, output);
        let before = Records::of(&path);
        setrlimit(Resource::RLIMIT_FSIZE, hard, hard).unwrap();
        log.write(Stderr, b"next\n");
        let after = Records::of(&path);
        assert_eq!(after[..before.len()], before[..]);
        assert_eq!(after.joined("stderr"), b"next\n");
        let lost = output.len() - before.joined("stdout").len();
        let expected = (lost as u64, 4 - before.len() as u64, "File too large".to_owned());
        assert_eq!(after.notes(), if room < whole { vec![expected] } else { vec![] }, "room for {room} bytes");
        assert!(output.starts_with(&before.joined("stdout")));
        fs::remove_file(&path).unwrap();
    }
}

// All together.

#[test]
fn any_output_in_any_reads_over_any_reopenings_joins_to_itself() {
    for seed in 1..=25 {
        let mut random = XorShift(seed << 32 | 0x9e37_79b9);
        let dir = Scratch::new();
        let path = dir.path("log");
        let mut log = open(&path);
        let outputs = [random.output(200_000), random.output(200_000)];
        let mut rest = [&outputs[0][..], &outputs[1][..]];
        let mut whole = Vec::new();
        while rest != [b"", b""] {
            let which = random.below(2);
            let most = [1, 100, 10_000, TEXT_MAX + 2, 100_000][random.below(5)];
            let (read, left) = rest[which].split_at(rest[which].len().min(1 + random.below(most)));
            rest[which] = left;
            log.write([Stdout, Stderr][which], read);
            if random.below(20) == 0 {
                if random.below(2) == 0 {
                    fs::rename(&path, dir.path("old")).unwrap();
                } else {
                    fs::hard_link(&path, dir.path("old")).unwrap();
                }
                log.reopen();
                whole.extend(fs::read(dir.path("old")).unwrap());
                fs::remove_file(dir.path("old")).unwrap();
            }
            if random.below(50) == 0 {
                log.release();
            }
        }
        whole.extend(fs::read(&path).unwrap());
        let records = Records::parse(&whole);
        assert_eq!(records.notes(), []);
        assert!(records.joined("stdout") == outputs[0] && records.joined("stderr") == outputs[1], "seed {seed}");
    }
}

// Rotation.

fn open_rotated(path: &Path, size_max: Option<u64>, backups: u32) -> K8sFile {
    open_with(path, |options| (options.size_max, options.backups) = (size_max, NonZeroU32::new(backups)))
}

fn backup(log: &Path, number: u32) -> PathBuf {
    PathBuf::from(format!("{}.{number}", log.display()))
}

#[test]
fn f03_the_newest_lines_are_kept_without_gap_or_double() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open_rotated(&path, Some(4096), 3);
    let lines = (0..10_000).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat();
    for read in lines.as_bytes().chunks(777) {
        log.write(Stdout, read);
    }
    let mut kept = Vec::new();
    for file in [backup(&path, 3), backup(&path, 2), backup(&path, 1), path.clone()] {
        assert!(fs::metadata(&file).unwrap().len() <= 4096);
        assert_eq!(mode(&file), 0o640);
        kept.extend(Records::of(&file).joined("stdout"));
    }
    assert!(lines.as_bytes().ends_with(&kept) && kept.len() > 1000, "{}", kept.escape_ascii());
    assert_eq!(others(&path).len(), 3, "{:?}", others(&path));
}

#[test]
fn r22_a_flood_of_empty_lines_makes_no_more_files_than_are_kept() {
    for backups in 0..3 {
        let dir = Scratch::new();
        let path = dir.path("log");
        let mut log = open_rotated(&path, Some(100), backups);
        log.write(Stdout, b"\n\n");
        let made = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        made.add_watch(path.parent().unwrap(), AddWatchFlags::IN_CREATE).unwrap();
        log.write(Stdout, &b"\n".repeat(64 << 10));
        // Each new file has another name first; a backup's is a second one.
        let new = made.read_events().unwrap().into_iter().filter_map(|event| event.name);
        let new = new.filter(|name| name.as_bytes().starts_with(b".")).count();
        assert_eq!(u32::try_from(new), Ok(backups + 1));
        for file in (1..=backups).map(|number| backup(&path, number)).chain([path.clone()]) {
            assert_eq!(Records::of(file).len(), 2);
        }
        assert_eq!(log.totals().lines_logged, (64 << 10) + 2);
    }
}

#[test]
fn f13_reopening_keeps_the_old_file_as_the_first() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open_rotated(&path, None, 2);
    for text in ["one\n", "two\n", "three\n", "four\n"] {
        log.write(Stdout, text.as_bytes());
        log.reopen();
        assert_eq!(fs::read(&path).unwrap(), b"");
        assert_eq!(Records::of(backup(&path, 1)).joined("stdout"), text.as_bytes());
    }
    assert_eq!(Records::of(backup(&path, 2)).joined("stdout"), b"three\n");
    assert_eq!(others(&path).len(), 2);
}

#[test]
fn a_log_that_was_renamed_away_is_not_rotated() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open_rotated(&path, None, 2);
    log.write(Stdout, b"one\n");
    fs::rename(&path, dir.path("log.20261130")).unwrap();
    log.reopen();
    log.write(Stdout, b"two\n");
    assert_eq!(Records::of(&path).joined("stdout"), b"two\n");
    assert_eq!(others(&path), [dir.path("log.20261130")]);
}

#[test]
fn if_rotating_fails_the_old_file_grows_on_and_loses_nothing() {
    let dir = Scratch::new();
    let path = dir.path("log");
    let mut log = open_rotated(&path, Some(100), 1);
    fs::create_dir(backup(&path, 1)).unwrap();
    let output = b"a line of text\n".repeat(100);
    log.write(Stdout, &output);
    log.reopen();
    log.write(Stdout, b"more\n");
    assert_eq!(Records::of(&path).joined("stdout"), [&output[..], b"more\n"].concat());
    assert_eq!(others(&path), [backup(&path, 1)], "nothing else is left");
    fs::remove_dir(backup(&path, 1)).unwrap();
    until("a rotation", || {
        log.write(Stdout, b"last\n");
        backup(&path, 1).exists()
    });
    assert_eq!(Records::of(&path).joined("stdout"), b"last\n");
}

#[test]
fn a_rotation_cut_short_by_a_crash_is_taken_back() {
    let dir = Scratch::new();
    let path = dir.path("log");
    open(&path).write(Stdout, b"one\n");
    fs::hard_link(&path, backup(&path, 1)).unwrap();
    fs::write(dir.path(".log.new"), "").unwrap();
    let mut log = open_rotated(&path, None, 3);
    assert!(!backup(&path, 1).exists());
    log.write(Stdout, b"two\n");
    log.reopen();
    assert_eq!(Records::of(backup(&path, 1)).joined("stdout"), b"one\ntwo\n");
    assert_eq!(others(&path), [backup(&path, 1)]);
}

#[test]
fn the_file_behind_a_link_is_rotated_beside_it() {
    let dir = Scratch::new();
    fs::create_dir(dir.path("disk")).unwrap();
    symlink("disk/real", dir.path("log")).unwrap();
    let mut log = open_rotated(&dir.path("log"), None, 1);
    log.write(Stdout, b"one\n");
    log.reopen();
    log.write(Stdout, b"two\n");
    assert!(fs::symlink_metadata(dir.path("log")).unwrap().is_symlink());
    assert_eq!(Records::of(dir.path("disk/real.1")).joined("stdout"), b"one\n");
    assert_eq!(Records::of(dir.path("disk/real")).joined("stdout"), b"two\n");
}

#[test]
fn what_is_no_regular_file_is_not_rotated() {
    let dir = Scratch::new();
    let path = dir.path("fifo");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let mut log = open_rotated(&path, Some(10), 2);
    log.write(Stdout, b"one\ntwo\n");
    log.reopen();
    assert_eq!(others(&path), Vec::<PathBuf>::new());
}

// All that is ever logged.

fn open_capped(path: &Path, total_max: u64) -> K8sFile {
    open_with(path, |options| options.total_max = Some(total_max))
}

#[test]
fn n01_the_log_ends_with_the_record_that_passes_the_limit() {
    let dir = Scratch::new();
    let record = PREFIX_LEN + 10;
    for (limit, records) in [(1, 1), (record, 1), (record + 1, 2), (3 * record - 1, 3), (3 * record, 3), (1000, 19)] {
        for read in [1, 3, 100] {
            let path = dir.path(format!("{limit}-{read}"));
            let mut log = open_capped(&path, limit as u64);
            let output = b"ten bytes\n".repeat(100);
            output.chunks(10 * read).for_each(|output| log.write(Stdout, output));
            assert_eq!(Records::of(&path).len(), records, "limit {limit}, {read} lines a read");
            log.reopen();
            log.write(Stderr, b"more\n");
            assert_eq!(fs::read(&path).unwrap(), b"", "a new file does not begin anew");
            assert_eq!(log.deadline(), None);
        }
    }
}

#[test]
fn n01_what_the_file_held_counts_and_rotated_files_too() {
    let dir = Scratch::new();
    let path = dir.path("log");
    open(&path).write(Stdout, b"before\n");
    let mut log = open_capped(&path, 10);
    log.write(Stdout, b"after\n");
    assert_eq!(Records::of(&path).joined("stdout"), b"before\n");

    let path = dir.path("rotated");
    let mut log = open_with(&path, |options| {
        (options.size_max, options.total_max, options.backups) = (Some(100), Some(400), NonZeroU32::new(10));
    });
    log.write(Stdout, &b"ten bytes\n".repeat(100));
    let sizes: u64 = others(&path)
        .iter()
        .filter(|file| file.display().to_string().contains("rotated"))
        .map(|file| fs::metadata(file).unwrap().len())
        .sum();
    assert_eq!(sizes, 440 - fs::metadata(&path).unwrap().len());
}

// Where it may be.

#[test]
fn n02_no_file_is_made_or_written_outside_the_allowed_directories() {
    let dir = Scratch::new();
    let allowed = dir.path("allowed");
    fs::create_dir(&allowed).unwrap();
    fs::create_dir(dir.path("outside")).unwrap();
    symlink(dir.path("outside/file"), allowed.join("dangling")).unwrap();
    symlink(dir.path("outside"), allowed.join("dir")).unwrap();
    symlink("real", allowed.join("link")).unwrap();
    let try_open = |path: PathBuf| {
        K8sFile::open(&K8sFileOptions { path, allowlist: vec![allowed.clone()], ..K8sFileOptions::default() })
    };
    for path in ["outside/log", "allowed/../outside/log", "allowed/dangling", "allowed/dir/log", "allowed/../log"] {
        let error = try_open(dir.path(path)).err().unwrap();
        assert!(error.to_string().contains("--log-allowlist-dir"), "{path}: {error}");
    }
    assert_eq!(others(&allowed), [dir.path("outside")]);
    assert_eq!(fs::read_dir(dir.path("outside")).unwrap().count(), 0);
    for path in ["allowed/log", "allowed/link", "outside/../allowed/log"] {
        try_open(dir.path(path)).unwrap().write(Stdout, b"a line\n");
    }
    assert_eq!(Records::of(allowed.join("real")).joined("stdout"), b"a line\n");
    assert_eq!(Records::of(allowed.join("log")).joined("stdout"), b"a line\na line\n");
}

#[test]
fn n02_reopening_and_rotating_hold_to_them_too() {
    let dir = Scratch::new();
    for (name, backups, rename_away) in
        [("a", None, false), ("b", NonZeroU32::new(2), false), ("c", None, true), ("d", NonZeroU32::new(2), true)]
    {
        let (allowed, outside) = (dir.path(name).join("allowed"), dir.path(name).join("outside"));
        fs::create_dir_all(allowed.join("sub")).unwrap();
        fs::create_dir(&outside).unwrap();
        let path = allowed.join("sub/log");
        let mut log = open_with(&path, |options| {
            (options.backups, options.allowlist, options.size_max) = (backups, vec![allowed.clone()], Some(100));
        });
        log.write(Stdout, b"one\n");
        // Somebody puts a link in the directory's place, with the very log behind it or without.
        fs::rename(allowed.join("sub"), allowed.join("old")).unwrap();
        symlink(&outside, allowed.join("sub")).unwrap();
        if !rename_away {
            fs::hard_link(allowed.join("old/log"), outside.join("log")).unwrap();
        }
        let before = fs::read_dir(&outside).unwrap().count();
        log.reopen();
        log.write(Stdout, b"two\nthree\nfour\n");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), before, "{name}");
        assert_eq!(Records::of(allowed.join("old/log")).joined("stdout"), b"one\ntwo\nthree\nfour\n", "{name}");
    }
}

#[test]
fn a_log_in_a_directory_of_others_leads_nowhere_else() {
    let dir = Scratch::new();
    let shared = dir.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
    let (log, victim) = (shared.join("log"), dir.path("victim"));
    fs::write(&victim, "secret").unwrap();
    let done = AtomicBool::new(false);
    let mut opened = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = symlink(&victim, &log);
                let _ = fs::remove_file(&log);
                // Time for the other one to find nothing, or its own file.
                thread::yield_now();
            }
        });
        for _ in 0..2000 {
            let Ok(mut file) = K8sFile::open(&K8sFileOptions { path: log.clone(), ..K8sFileOptions::default() }) else {
                continue;
            };
            opened += 1;
            file.write(Stdout, b"output\n");
            file.reopen();
            file.write(Stdout, b"more\n");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read(&victim).unwrap(), b"secret");
    assert!(opened > 0, "the attacker was always quicker, so nothing was tried");
}
