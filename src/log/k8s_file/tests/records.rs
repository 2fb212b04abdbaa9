//! What output becomes, whatever pieces it comes in, and what it costs in memory.

use super::*;

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
