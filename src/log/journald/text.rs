//! From output to the texts of entries: pure code.

use memchr::memchr;

use crate::stream::Stream;

/// The most text an entry holds: as with conmon, two reads of its.
pub(super) const TEXT_MAX: usize = 2 * 8192;

/// The text of an entry, and where it ends in the output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Text<'a> {
    /// The line with its newline, or a piece of one.
    pub(super) bytes: &'a [u8],
    /// As syslog numbers them, from 0, an emergency, to 7, for debugging.
    pub(super) priority: u8,
    /// Whether the line goes on, or ended without a newline.
    pub(super) partial: bool,
    /// How much of the output this is; a priority that stood before the text counts.
    pub(super) len: usize,
}

/// The next entry's text in `output`, if there is a whole line, or one too long for an entry, or nothing follows
/// (`ended`). A line that was begun has its priority already.
pub(super) fn next(output: &[u8], stream: Stream, begun: Option<u8>, ended: bool) -> Option<Text<'_>> {
    let window = &output[..output.len().min(TEXT_MAX + 1)];
    let (len, partial) = match memchr(b'\n', window) {
        Some(newline) => (newline + 1, false),
        None if window.len() > TEXT_MAX => (whole_characters(&window[..TEXT_MAX]), true),
        None if ended && !window.is_empty() => (window.len(), true),
        None => return None,
    };
    let text = &output[..len];
    let (priority, text) = match (begun, text) {
        (Some(priority), _) => (priority, text),
        (None, [b'<', digit @ b'0'..=b'7', b'>', text @ ..]) => (digit - b'0', text),
        (None, _) => (default_priority(stream), text),
    };
    Some(Text { bytes: text, priority, partial, len })
}

/// An information from stdout, an error from stderr: the only ones that Podman's reader knows.
pub(super) fn default_priority(stream: Stream) -> u8 {
    match stream {
        Stream::Stdout => 6,
        Stream::Stderr => 3,
    }
}

/// How much of `text` to take so that no UTF-8 character is cut at the end. What is no UTF-8 is cut anywhere.
fn whole_characters(text: &[u8]) -> usize {
    let last = text.iter().rev().take(4).position(|byte| byte & 0b1100_0000 != 0b1000_0000);
    match last {
        // A first byte says with its leading ones how many bytes the character has.
        Some(following) if text[text.len() - 1 - following].leading_ones() as usize > following + 1 => {
            text.len() - 1 - following
        }
        _ => text.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Stream::{Stderr, Stdout};

    /// Texts with priority and mark.
    fn texts(output: &[u8], stream: Stream) -> Vec<(u8, bool, Vec<u8>)> {
        let (mut rest, mut begun, mut texts) = (output, None, Vec::new());
        while let Some(found) = next(rest, stream, begun, true) {
            begun = found.partial.then_some(found.priority);
            rest = &rest[found.len..];
            texts.push((found.priority, found.partial, found.bytes.to_vec()));
        }
        assert_eq!(rest, b"");
        texts
    }

    #[test]
    fn a_line_keeps_its_newline_and_the_last_piece_is_partial() {
        let expected = [(6, false, b"one\n".to_vec()), (6, false, b"\n".to_vec()), (6, true, b"two".to_vec())];
        assert_eq!(texts(b"one\n\ntwo", Stdout), expected);
        assert_eq!(texts(b"", Stdout), []);
        assert_eq!(next(b"two", Stdout, None, false), None, "more may follow");
    }

    #[test]
    fn a_priority_at_the_start_of_a_line_is_taken_off() {
        for (output, priority, text) in [
            (&b"<0>x\n"[..], 0, &b"x\n"[..]),
            (b"<7>\n", 7, b"\n"),
            (b"<4><5>x\n", 4, b"<5>x\n"),
            (b"<8>x\n", 3, b"<8>x\n"),
            (b"<12>x\n", 3, b"<12>x\n"),
            (b"<>x\n", 3, b"<>x\n"),
            (b"<6\n", 3, b"<6\n"),
            (b" <6>x\n", 3, b" <6>x\n"),
            (b"x<6>\n", 3, b"x<6>\n"),
        ] {
            assert_eq!(texts(output, Stderr), [(priority, false, text.to_vec())], "{}", output.escape_ascii());
        }
        assert_eq!(texts(b"<2>", Stdout), [(2, true, vec![])]);
    }

    #[test]
    fn all_pieces_of_a_line_have_its_priority_and_a_priority_within_it_is_text() {
        let line = [&b"<5>"[..], &[b'x'; TEXT_MAX - 3], b"<1>rest\n<4>next\n"].concat();
        let found = texts(&line, Stdout);
        let priorities: Vec<_> = found.iter().map(|(priority, partial, _)| (*priority, *partial)).collect();
        assert_eq!(priorities, [(5, true), (5, false), (4, false)]);
        assert_eq!(found[1].2, b"<1>rest\n");
    }

    #[test]
    fn f05_long_lines_are_cut_and_all_pieces_but_the_last_are_partial() {
        for (len, pieces) in [(10, 1), (16_383, 1), (16_384, 1), (16_385, 2), (50_000, 4)] {
            let mut output = vec![b'x'; len];
            output.push(b'\n');
            let found = texts(&output, Stdout);
            assert_eq!(found.len(), pieces, "{len}");
            for (number, (_, partial, text)) in found.iter().enumerate() {
                assert_eq!(*partial, number + 1 < pieces);
                assert!(text.len() <= TEXT_MAX + 1);
            }
            assert_eq!(found.into_iter().flat_map(|(.., text)| text).collect::<Vec<_>>(), output);
        }
    }

    #[test]
    fn f05_no_character_is_cut() {
        for character in ["é", "€", "🚢"] {
            for shift in 0..5 {
                let output = "x".repeat(shift) + &character.repeat(20_000);
                let found = texts(output.as_bytes(), Stdout);
                assert!(found.iter().all(|(.., text)| str::from_utf8(text).is_ok()), "{character} after {shift}");
                assert_eq!(found.into_iter().flat_map(|(.., text)| text).collect::<Vec<_>>(), output.as_bytes());
            }
        }
        for byte in [0x80, 0xc3, 0xff] {
            let output = vec![byte; 40_000];
            assert_eq!(texts(&output, Stdout).into_iter().flat_map(|(.., text)| text).collect::<Vec<_>>(), output);
        }
    }
}
