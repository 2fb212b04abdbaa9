//! What entries are held to: they are the output, and nothing in it or in the options makes a field of its own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::entry::Fields;
use super::kept::Kept;
use super::text::{TEXT_MAX, default_priority};
use crate::cli::JournaldOptions;
use crate::fuzzing::Input;
use crate::stream::Stream;

/// Output of one stream, read in pieces, for a journal that takes entries when it likes.
pub(crate) fn journal_entries(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let word = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let mut given = || Some(word(input.text())).filter(|word| !word.is_empty());
    let options = JournaldOptions {
        id: given().unwrap_or_else(|| "0123456789abcdef".into()),
        name: given(),
        tag: given(),
        // No `=` in its value: it would be refused.
        labels: given()
            .filter(|value| !value.as_bytes().contains(&b'='))
            .map(|value| label(&value))
            .into_iter()
            .collect(),
        mark_partial: true,
    };
    let stream = *input.one_of(&[Stream::Stdout, Stream::Stderr]);
    let mut sizes = Input::new(input.text());
    let mut refusals = Input::new(input.text());
    let mut output = Vec::new();
    while !input.is_empty() {
        output.extend_from_slice(&input.output());
    }

    let fields = Fields::new(&options);
    let mut kept = Kept::new(stream).expect("a buffer");
    let mut entries = Vec::new();
    let mut take = |kept: &mut Kept, refusals: &mut Input<'_>| {
        let result = kept.take_while(|text| {
            if refusals.byte() > 0x80 {
                return Err(());
            }
            let bytes = fields.entry(text, |parts| parts.iter().map(|part| &**part).collect::<Vec<&[u8]>>().concat());
            entries.push(Entry::parse(&bytes, &options));
            Ok(())
        });
        result.is_ok()
    };
    for mut piece in sizes.pieces(&output) {
        while !piece.is_empty() {
            piece = &piece[kept.push(piece)..];
            while !take(&mut kept, &mut refusals) && !piece.is_empty() {}
        }
    }
    kept.end();
    while !take(&mut kept, &mut refusals) {}
    assert!(!kept.has_grown() || output.len() > 4096);
    check(&entries, &output, stream);
}

fn label(value: &OsStr) -> OsString {
    [OsStr::new("LABEL_1="), value].into_iter().collect()
}

/// Holds the entries against the lines of the output.
fn check(entries: &[Entry], output: &[u8], stream: Stream) {
    let mut entries = entries.iter();
    for line in output.split_inclusive(|&byte| byte == b'\n') {
        let (priority, text) = match line {
            [b'<', digit @ b'0'..=b'7', b'>', text @ ..] => (digit - b'0', text),
            text => (default_priority(stream), text),
        };
        let mut pieces = Vec::new();
        loop {
            let entry = entries.next().expect("an entry for each line");
            assert_eq!(entry.priority, priority);
            assert!(entry.message.len() <= TEXT_MAX + 1);
            assert!(std::str::from_utf8(text).is_err() || std::str::from_utf8(&entry.message).is_ok());
            pieces.extend_from_slice(&entry.message);
            assert_eq!(entry.partial, !entry.message.ends_with(b"\n"));
            if pieces.len() >= text.len() {
                break;
            }
        }
        assert!(pieces == text);
    }
    assert!(entries.next().is_none());
}

/// What of an entry is the output's.
struct Entry {
    message: Vec<u8>,
    priority: u8,
    partial: bool,
}

impl Entry {
    /// Reads it as journald does. Beside the output there is what the options say, and nothing else.
    fn parse(mut bytes: &[u8], options: &JournaldOptions) -> Self {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let end = bytes.iter().position(|&byte| byte == b'\n').expect("a field with an end");
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            if let Some(equals) = line.iter().position(|&byte| byte == b'=') {
                fields.push((&line[..equals], &line[equals + 1..]));
                bytes = rest;
            } else {
                let (len, rest) = rest.split_first_chunk().expect("a value with a length");
                let (value, rest) = rest.split_at(usize::try_from(u64::from_le_bytes(*len)).expect("a length"));
                fields.push((line, value));
                bytes = rest.strip_prefix(b"\n").expect("a value with an end");
            }
        }
        let (id, name, tag) = (options.id.as_bytes(), options.name.as_deref(), options.tag.as_deref());
        let short = &id[..id.len().min(JournaldOptions::SHORT_ID)];
        let mut expected: Vec<(&[u8], &[u8])> = vec![
            (b"CONTAINER_ID_FULL", id),
            (b"CONTAINER_ID", short),
            (b"SYSLOG_IDENTIFIER", tag.or(name).map_or(short, OsStr::as_bytes)),
        ];
        expected.extend(name.map(|name| (&b"CONTAINER_NAME"[..], name.as_bytes())));
        expected.extend(tag.map(|tag| (&b"CONTAINER_TAG"[..], tag.as_bytes())));
        expected.extend(options.labels.iter().map(|label| (&b"LABEL_1"[..], &label.as_bytes()[b"LABEL_1=".len()..])));
        let [(b"MESSAGE", message), (b"PRIORITY", [digit]), given @ ..] = &fields[..] else { panic!("{fields:?}") };
        let partial = given.strip_suffix(&[(&b"CONTAINER_PARTIAL_MESSAGE"[..], &b"true"[..])]);
        assert_eq!(partial.unwrap_or(given), expected);
        Self { message: message.to_vec(), priority: digit - b'0', partial: partial.is_some() }
    }
}
