//! The k8s-file, read strictly.

use std::fmt;

use crate::script::Out;

/// A log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Its records.
    pub entries: Vec<Entry>,
}

/// A record.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// When, as it is written.
    pub time: String,
    /// Which stream.
    pub stream: Out,
    /// `P`: the line goes on in this stream's next record.
    pub partial: bool,
    /// Without its newline.
    pub text: Vec<u8>,
}

impl Log {
    /// Panics at the first line that is no record.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut entries = Vec::new();
        if let Some(lines) = bytes.strip_suffix(b"\n") {
            for line in lines.split(|byte| *byte == b'\n') {
                let entry = Entry::parse(line);
                let entry = entry.unwrap_or_else(|| panic!("no record: {:?}", String::from_utf8_lossy(line)));
                entries.push(entry);
            }
        } else {
            assert!(bytes.is_empty(), "the log does not end with a newline");
        }
        Self { entries }
    }

    /// A stream's bytes: what was written by the container.
    pub fn stream(&self, stream: Out) -> Vec<u8> {
        let mut joined = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.stream == stream) {
            joined.extend_from_slice(&entry.text);
            if !entry.partial {
                joined.push(b'\n');
            }
        }
        joined
    }

    /// Whether both streams are as given.
    pub fn is(&self, stdout: &[u8], stderr: &[u8]) -> bool {
        self.stream(Out::Stdout) == stdout && self.stream(Out::Stderr) == stderr
    }

    /// Each record as stream, tag and text, joined pieces aside: what two logs of the same output have in common.
    pub fn lines(&self) -> Vec<String> {
        [Out::Stdout, Out::Stderr]
            .into_iter()
            .flat_map(|stream| {
                let text = self.stream(stream);
                text.split_inclusive(|byte| *byte == b'\n')
                    .map(|line| format!("{stream:?} {}", line.escape_ascii()))
                    .collect::<Vec<_>>()
            })
            .collect()
    }
}

impl Entry {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.splitn(4, |byte| *byte == b' ');
        let time = std::str::from_utf8(words.next()?).ok().filter(|time| is_time(time))?.to_owned();
        let stream = match words.next()? {
            b"stdout" => Out::Stdout,
            b"stderr" => Out::Stderr,
            _ => return None,
        };
        let partial = match words.next()? {
            b"F" => false,
            b"P" => true,
            _ => return None,
        };
        Some(Self { time, stream, partial, text: words.next()?.to_vec() })
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tag = if self.partial { 'P' } else { 'F' };
        write!(f, "{} {:?} {tag} {}", self.time, self.stream, self.text.escape_ascii())
    }
}

/// `2026-11-30T13:02:15.123456789+00:00`.
fn is_time(time: &str) -> bool {
    let pattern = b"0000-00-00T00:00:00.000000000+00:00";
    time.len() == pattern.len()
        && time.bytes().zip(pattern).all(|(byte, wanted)| match wanted {
            b'0' => byte.is_ascii_digit(),
            b'+' => byte == b'+' || byte == b'-',
            _ => byte == *wanted,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "2026-11-30T13:02:15.123456789+00:00";

    #[test]
    fn joins_the_pieces_of_each_stream() {
        let text = format!("{TIME} stdout P a\n{TIME} stderr F x\n{TIME} stdout F b\n{TIME} stdout P \n");
        let log = Log::parse(text.as_bytes());
        assert!(log.is(b"ab\n", b"x\n"), "{log:?}");
    }

    #[test]
    #[should_panic(expected = "no record")]
    fn takes_no_torn_line() {
        Log::parse(format!("{TIME} stdout P a\n{TIME} std\n").as_bytes());
    }
}
