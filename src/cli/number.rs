//! Numbers on the command line.

use std::time::Duration;

/// Why a word is no integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntegerError {
    /// There are no digits, or something else beside them.
    Malformed,
    /// It does not fit.
    OutOfRange,
}

/// Reads a whole word as strtoll(3) does in base 0: blanks before it, a sign, `0x` for hexadecimal, `0` for octal.
pub(super) fn integer(word: &[u8]) -> Result<i64, IntegerError> {
    let blanks = word.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let (negative, magnitude) = match &word[blanks..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] | rest => (false, rest),
    };
    let (base, digits) = match magnitude {
        [b'0', b'x' | b'X', rest @ ..] => (16, rest),
        [b'0', ..] => (8, magnitude),
        _ => (10, magnitude),
    };
    if digits.is_empty() {
        return Err(IntegerError::Malformed);
    }
    // A wrong digit counts more than a value that became too large before it.
    let mut value = Some(0_i64);
    for &byte in digits {
        let digit = i64::from(char::from(byte).to_digit(base).ok_or(IntegerError::Malformed)?);
        value = value.and_then(|value| {
            let shifted = value.checked_mul(i64::from(base))?;
            if negative { shifted.checked_sub(digit) } else { shifted.checked_add(digit) }
        });
    }
    value.ok_or(IntegerError::OutOfRange)
}

/// Reads a whole word as seconds, with or without a fraction: `2`, `0.25`. Digits beyond nanoseconds do not count.
pub(super) fn seconds(word: &[u8]) -> Option<Duration> {
    let word = str::from_utf8(word).ok()?;
    let (whole, fraction) = word.split_once('.').unwrap_or((word, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let nanoseconds = format!("{fraction:0<9}")[..9].parse().ok()?;
    Some(Duration::new(whole.parse().ok()?, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_in_base_0() {
        for (word, value) in [
            ("0", 0),
            ("42", 42),
            ("-42", -42),
            ("+42", 42),
            (" \t\n\x0b\x0c\r42", 42),
            ("0x10", 16),
            ("0XfF", 255),
            ("-0x10", -16),
            ("010", 8),
            ("00", 0),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
            ("0x7fffffffffffffff", i64::MAX),
        ] {
            assert_eq!(integer(word.as_bytes()), Ok(value), "{word:?}");
        }
    }

    #[test]
    fn what_is_no_integer_is_told_from_what_does_not_fit() {
        for word in ["", " ", "-", "+", "abc", "12x", "12 ", "- 12", "--12", "0x", "0xg", "08", "1.5", "1e3", "0b1"] {
            assert_eq!(integer(word.as_bytes()), Err(IntegerError::Malformed), "{word:?}");
        }
        assert_eq!(integer(b"\xff"), Err(IntegerError::Malformed));
        for word in ["9223372036854775808", "-9223372036854775809", "0xffffffffffffffff", "99999999999999999999999"] {
            assert_eq!(integer(word.as_bytes()), Err(IntegerError::OutOfRange), "{word:?}");
        }
        assert_eq!(integer(b"99999999999999999999999x"), Err(IntegerError::Malformed));
    }

    #[test]
    fn seconds_may_have_a_fraction() {
        for (word, milliseconds) in [("0", 0), ("2", 2000), ("0.5", 500), ("1.25", 1250), ("0.001", 1), ("007", 7000)] {
            assert_eq!(seconds(word.as_bytes()), Some(Duration::from_millis(milliseconds)), "{word:?}");
        }
        assert_eq!(seconds(b"0.1234567891"), Some(Duration::from_nanos(123_456_789)));
        for word in ["", ".", ".5", "5.", "-1", "+1", "1e3", "inf", "NaN", "1,5", "1 ", "1.2.3", "1s", "1.+5"] {
            assert_eq!(seconds(word.as_bytes()), None, "{word:?}");
        }
        assert_eq!(seconds(b"99999999999999999999"), None);
        assert_eq!(seconds(b"\xff"), None);
    }
}
