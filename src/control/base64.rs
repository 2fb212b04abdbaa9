//! Bytes as JSON can hold them.

use std::fmt::{self, Display};

use serde::{Serialize, Serializer};

/// Shown, and serialized, as base64 (RFC 4648, with padding).
#[derive(Clone, Debug)]
pub(crate) struct Base64(pub(crate) Vec<u8>);

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// How many bytes are written in one piece: a multiple of 3.
const PIECE: usize = 3 * 256;

impl Display for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(PIECE / 3 * 4);
        for piece in self.0.chunks(PIECE) {
            text.clear();
            for group in piece.chunks(3) {
                encode(group, &mut text);
            }
            f.write_str(&text)?;
        }
        Ok(())
    }
}

fn encode(group: &[u8], text: &mut String) {
    let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
    let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    for position in 0..4 {
        if position > group.len() {
            text.push('=');
        } else {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * position) & 63) as usize]));
        }
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_4648() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(Base64(plain.into()).to_string(), encoded);
        }
        assert_eq!(Base64(vec![0xfb, 0xff, 0xfe]).to_string(), "+//+");
    }

    #[test]
    fn long_output_has_padding_at_its_end_alone() {
        let text = Base64(vec![b'x'; 2 * PIECE + 1]).to_string();
        assert_eq!(text.find('='), Some(text.len() - 2));
        assert_eq!(text.len(), (2 * PIECE + 1usize).div_ceil(3) * 4);
    }
}
