//! An entry in the journal's native protocol: `NAME=VALUE` lines, or `NAME`, a length and a value of any bytes.

use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt;

use super::text::Text;
use crate::cli::JournaldOptions;

const PARTIAL: &[u8] = b"CONTAINER_PARTIAL_MESSAGE=true\n";

/// What is the same in all entries.
pub(super) struct Fields {
    bytes: Vec<u8>,
    mark_partial: bool,
}

impl Fields {
    pub(super) fn new(options: &JournaldOptions) -> Self {
        let id = options.id.as_bytes();
        let short_id = OsStr::from_bytes(&id[..id.len().min(JournaldOptions::SHORT_ID)]);
        let identifier = options.tag.as_deref().or(options.name.as_deref()).unwrap_or(short_id);
        let mut bytes = Vec::new();
        push(&mut bytes, b"CONTAINER_ID_FULL", id);
        push(&mut bytes, b"CONTAINER_ID", short_id.as_bytes());
        push(&mut bytes, b"SYSLOG_IDENTIFIER", identifier.as_bytes());
        for (name, value) in [(&b"CONTAINER_NAME"[..], &options.name), (b"CONTAINER_TAG", &options.tag)] {
            if let Some(value) = value {
                push(&mut bytes, name, value.as_bytes());
            }
        }
        for label in &options.labels {
            let mut parts = label.as_bytes().splitn(2, |&byte| byte == b'=');
            if let (Some(name), Some(value)) = (parts.next(), parts.next()) {
                push(&mut bytes, name, value);
            }
        }
        Self { bytes, mark_partial: options.mark_partial }
    }

    /// Calls `send` with the parts of the entry of a text.
    pub(super) fn entry<T>(&self, text: &Text<'_>, send: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
        let len = (text.bytes.len() as u64).to_le_bytes();
        let priority = [b'0' + text.priority, b'\n'];
        let partial = if text.partial && self.mark_partial { PARTIAL } else { b"" };
        let parts: [&[u8]; 7] = [b"MESSAGE\n", &len, text.bytes, b"\nPRIORITY=", &priority, &self.bytes, partial];
        send(&parts.map(IoSlice::new))
    }
}

fn push(bytes: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    bytes.extend_from_slice(name);
    if value.contains(&b'\n') {
        bytes.push(b'\n');
        bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        bytes.push(b'=');
    }
    bytes.extend_from_slice(value);
    bytes.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::Entry;
    use super::*;

    fn options() -> JournaldOptions {
        JournaldOptions { id: "0123456789abcdef".into(), name: None, tag: None, labels: vec![], mark_partial: true }
    }

    fn entry(options: &JournaldOptions, text: &Text<'_>) -> Vec<u8> {
        Fields::new(options).entry(text, |parts| parts.iter().flat_map(|part| part.to_vec()).collect())
    }

    const LINE: &Text<'static> = &Text { bytes: b"one\n", priority: 6, partial: false, len: 4 };

    #[test]
    fn the_bytes_of_an_entry() {
        let expected = b"MESSAGE\n\x04\0\0\0\0\0\0\0one\n\nPRIORITY=6\nCONTAINER_ID_FULL=0123456789abcdef\n\
            CONTAINER_ID=0123456789ab\nSYSLOG_IDENTIFIER=0123456789ab\n";
        assert_eq!(entry(&options(), LINE).escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    #[test]
    fn the_identifier_is_the_tag_or_the_name_or_the_short_id() {
        let identifier = |options| Entry::parse(&entry(&options, LINE)).field("SYSLOG_IDENTIFIER").to_owned();
        let (name, tag) = (Some("box".into()), Some("t".into()));
        assert_eq!(identifier(options()), b"0123456789ab");
        assert_eq!(identifier(JournaldOptions { name: name.clone(), ..options() }), b"box");
        assert_eq!(identifier(JournaldOptions { tag: tag.clone(), ..options() }), b"t");
        let both = JournaldOptions { name, tag, ..options() };
        let entry = Entry::parse(&entry(&both, LINE));
        assert_eq!(entry.field("SYSLOG_IDENTIFIER"), b"t");
        assert_eq!((entry.field("CONTAINER_NAME"), entry.field("CONTAINER_TAG")), (&b"box"[..], &b"t"[..]));
    }

    #[test]
    fn labels_are_fields_of_any_value() {
        let labels = ["A_1=b", "B=", "C=two\nPRIORITY=0"].map(Into::into).to_vec();
        let entry = Entry::parse(&entry(&JournaldOptions { labels, ..options() }, LINE));
        assert_eq!((entry.field("A_1"), entry.field("B")), (&b"b"[..], &b""[..]));
        assert_eq!((entry.field("C"), entry.field("PRIORITY")), (&b"two\nPRIORITY=0"[..], &b"6"[..]));
    }

    #[test]
    fn a_piece_is_marked_unless_told_otherwise() {
        let marked = |mark_partial, partial| {
            let text = Text { partial, ..*LINE };
            Entry::parse(&entry(&JournaldOptions { mark_partial, ..options() }, &text)).has("CONTAINER_PARTIAL_MESSAGE")
        };
        assert!(marked(true, true));
        assert!(!marked(true, false) && !marked(false, true) && !marked(false, false));
    }
}
