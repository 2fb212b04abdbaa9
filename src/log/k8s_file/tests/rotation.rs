//! Full files that are kept.

use super::*;

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
