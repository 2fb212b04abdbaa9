//! A file at its size limit, and all files at the limit of them together.

use super::*;

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
