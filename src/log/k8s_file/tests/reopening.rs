//! A new file at the path because somebody asks for it.

use super::*;

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
