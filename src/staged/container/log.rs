//! What a runtime writes of its failures, with `--log-format json`.

use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use crate::json::Fields;
use crate::messages::OneLine;

/// How much of its end is looked at (R15).
const TAIL: u64 = 8 << 10;

/// The last error in the log at `path`, as one line; nothing if there is none.
pub(super) fn last_error(path: &Path) -> Option<String> {
    // Whatever is there is not waited for.
    let mut file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).ok()?;
    let length = file.seek(SeekFrom::End(0)).ok()?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail).ok()?;
    last_error_in(&tail)
}

/// The message of the last line that is an error, or else the last line, whatever it is.
pub(super) fn last_error_in(log: &[u8]) -> Option<String> {
    let mut lines = log.split(|&byte| byte == b'\n').rev().map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let last = lines.clone().next()?;
    let message = lines.find_map(message);
    let text = message.unwrap_or_else(|| String::from_utf8_lossy(last));
    Some(OneLine(text.trim()).to_string())
}

fn message(line: &[u8]) -> Option<Cow<'_, str>> {
    let mut fields = Fields::parse(line).ok()?;
    let level: String = fields.optional("level").ok()??;
    let is_error = ["error", "fatal", "panic"].contains(&&*level);
    let text: String = fields.optional("msg").ok()?.filter(|_| is_error)?;
    Some(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r15_the_last_error_of_a_runtime_is_told() {
        for (log, expected) in [
            (&b""[..], None),
            (b"\n \n", None),
            (b"cannot execute /usr/bin/runc: No such file\n", Some("cannot execute /usr/bin/runc: No such file")),
            (
                b"{\"level\":\"error\",\"msg\":\"first\"}\n{\"level\":\"error\",\"msg\":\"second\\nline\",\"time\":\"x\"}\n\
                  {\"level\":\"warning\",\"msg\":\"third\"}\n",
                Some("second\\nline"),
            ),
            // Cut at its beginning.
            (b"rror\",\"msg\":\"first\"}\n{\"msg\":\"no level\"}", Some("{\"msg\":\"no level\"}")),
            (b"\xff\x1b[2J", Some("\u{fffd}\\u{1b}[2J")),
        ] {
            assert_eq!(last_error_in(log).as_deref(), expected, "{}", log.escape_ascii());
        }
    }

    #[test]
    fn r15_no_more_than_the_end_of_a_log_is_read() {
        let path = std::env::temp_dir().join(format!("dunnage-runtime-log-{}", std::process::id()));
        let long = format!("{{\"level\":\"error\",\"msg\":\"old\"}}\n{}", "x".repeat(20 << 10));
        std::fs::write(&path, long).unwrap();
        let error = last_error(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.map(|error| error.len()), Some(8 << 10));
        assert_eq!(last_error(&path), None);
    }
}
