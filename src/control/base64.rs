//! Bytes as JSON can hold them: base64 (RFC 4648, with padding), whose characters JSON never escapes.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes`, encoded. What is encoded in pieces makes one whole if each but the last is a multiple of 3 long.
pub(super) fn encode(bytes: &[u8], text: &mut Vec<u8>) {
    text.reserve(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| group.get(index).copied().unwrap_or(0);
        let bits = u32::from_be_bytes([0, byte(0), byte(1), byte(2)]);
        let digit = |position: usize| ALPHABET[(bits >> (18 - 6 * position) & 63) as usize];
        let mut digits = [digit(0), digit(1), digit(2), digit(3)];
        digits[group.len() + 1..].fill(b'=');
        text.extend_from_slice(&digits);
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
            let mut text = Vec::new();
            encode(plain.as_bytes(), &mut text);
            assert_eq!(text, encoded.as_bytes());
        }
        let mut text = b"before".to_vec();
        encode(&[0xfb, 0xff, 0xfe], &mut text);
        assert_eq!(text, b"before+//+");
    }
}
