//! What is no regular file.

use super::*;

#[test]
fn f02_devices_are_never_replaced() {
    // Bound into a directory of the test's own: a fault here must not take the machine's /dev/null away.
    let shell =
        format!(r#"for name in null full; do touch "${ROLE}/$name"; mount --bind /dev/$name "${ROLE}/$name"; done"#);
    let Some(dir) = in_own_process("special_files::f02_devices_are_never_replaced", &shell) else {
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
