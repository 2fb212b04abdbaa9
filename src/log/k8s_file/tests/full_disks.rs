//! Full disks: in a process of their own, as they need one that may mount, or limits that hold for all of it.

use super::*;

#[test]
fn f07_a_full_disk_tears_no_line_and_the_log_says_what_is_missing() {
    let shell = format!("mount -t tmpfs -o size=128k none \"${ROLE}\"");
    let Some(dir) =
        in_own_process("full_disks::f07_a_full_disk_tears_no_line_and_the_log_says_what_is_missing", &shell)
    else {
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
    let test = "full_disks::f07_without_further_output_the_log_speaks_at_its_deadline_reopening_and_sync";
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
    let test = "full_disks::f07_a_file_that_may_not_grow_at_any_byte_holds_whole_records_and_the_rest_is_counted";
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
