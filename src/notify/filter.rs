//! Which lines of a message may leave the container.

use memchr::memchr;

/// Lines that pass as they are.
const WHOLE: [&[u8]; 5] = [b"READY=1", b"RELOADING=1", b"STOPPING=1", b"WATCHDOG=1", b"WATCHDOG=trigger"];

/// Variables that pass with any value. All that is in neither list speaks for the service itself, such as `MAINPID=`
/// and `FDSTORE=1`, and is no container's to say.
const VARIABLES: [&[u8]; 4] = [b"STATUS=", b"ERRNO=", b"BUSERROR=", b"MONOTONIC_USEC="];

/// Leaves of a message what may pass: its lines, joined by newlines. It ends at a NUL byte, as a C string does.
pub(super) fn filter(message: &mut [u8]) -> &[u8] {
    let end = memchr(0, message).unwrap_or(message.len());
    let mut kept = 0;
    let mut start = 0;
    while start < end {
        let stop = memchr(b'\n', &message[start..end]).map_or(end, |newline| start + newline);
        if passes(&message[start..stop]) {
            // There is room for it: each line that was kept left its own newline.
            if kept > 0 {
                message[kept] = b'\n';
                kept += 1;
            }
            message.copy_within(start..stop, kept);
            kept += stop - start;
        }
        start = stop + 1;
    }
    &message[..kept]
}

fn passes(line: &[u8]) -> bool {
    WHOLE.contains(&line) || VARIABLES.iter().any(|variable| line.starts_with(variable))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(message: &str) -> String {
        let mut message = message.as_bytes().to_vec();
        String::from_utf8(filter(&mut message).to_vec()).unwrap()
    }

    #[test]
    fn what_is_listed_passes() {
        for line in [
            "READY=1",
            "RELOADING=1",
            "STOPPING=1",
            "WATCHDOG=1",
            "WATCHDOG=trigger",
            "STATUS=50 % = half",
            "STATUS=",
            "ERRNO=2",
            "BUSERROR=org.example.Error",
            "MONOTONIC_USEC=123",
        ] {
            assert_eq!(filtered(line), line);
            assert_eq!(filtered(&format!("{line}\n")), line);
        }
    }

    #[test]
    fn all_else_does_not() {
        for line in [
            "",
            "\n\n",
            "MAINPID=1",
            "FDSTORE=1",
            "FDNAME=x",
            "BARRIER=1",
            "WATCHDOG_USEC=1",
            "EXTEND_TIMEOUT_USEC=1",
            "NOTIFYACCESS=all",
            "MAINPIDFDID=3",
            "READY=0",
            "READY=10",
            "READY=1 ",
            " READY=1",
            "XREADY=1",
            "ready=1",
            "READY",
            "STATUS",
            "XSTATUS=x",
            "READY=1\rMAINPID=1",
            "\0READY=1",
        ] {
            assert_eq!(filtered(line), "", "{line:?}");
        }
    }

    #[test]
    fn lines_are_judged_one_by_one_and_joined() {
        for (message, expected) in [
            ("STATUS=a\nMAINPID=1\nREADY=1\n", "STATUS=a\nREADY=1"),
            ("MAINPID=1\nREADY=1", "READY=1"),
            ("READY=1\nMAINPID=1", "READY=1"),
            ("\n\nREADY=1\n\n\nSTATUS=x\n\n", "READY=1\nSTATUS=x"),
            ("READY=1\nREADY=1", "READY=1\nREADY=1"),
            ("READY=1\0", "READY=1"),
            ("STATUS=a\0MAINPID=1\nREADY=1", "STATUS=a"),
            ("STATUS=READY=1 MAINPID=2", "STATUS=READY=1 MAINPID=2"),
        ] {
            assert_eq!(filtered(message), expected, "{message:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_pass_as_they_are() {
        let mut message = b"\xff\xfe\nSTATUS=\xff\xfe\n\x80=1".to_vec();
        assert_eq!(filter(&mut message), b"STATUS=\xff\xfe");
    }
}
