//! The digest of a build.

use std::fmt;
use std::str::FromStr;

/// SHA-256, written `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(pub(crate) [u8; 32]);

const PREFIX: &str = "sha256:";

/// What is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidDigest;

impl fmt::Display for InvalidDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is not {PREFIX} and 64 lower-case hexadecimal digits")
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let digits = text.strip_prefix(PREFIX).ok_or(InvalidDigest)?.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(InvalidDigest);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

fn value(digit: u8) -> Result<u8, InvalidDigest> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(InvalidDigest),
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g4_a_digest_is_written_in_one_way() {
        let text = format!("sha256:{}", "0123456789abcdef".repeat(4));
        let digest: Digest = text.parse().unwrap();
        assert_eq!(digest.0[..3], [0x01, 0x23, 0x45]);
        assert_eq!(digest.to_string(), text);
        for bad in ["", "sha256:", &text[7..], &text[..70], &format!("{text}0"), &text.to_uppercase(), "sha512:00"] {
            assert_eq!(bad.parse::<Digest>(), Err(InvalidDigest), "{bad:?}");
        }
        assert!(format!("sha256:{}", "0123456789ABCDEF".repeat(4)).parse::<Digest>().is_err());
    }
}
