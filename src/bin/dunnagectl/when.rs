//! Times and durations, in words.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A duration as far as a person wants to know.
pub(crate) fn words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        HOUR..DAY => format!("{} h", seconds / HOUR),
        _ if seconds < 2 * DAY => "1 day".to_owned(),
        _ => format!("{} days", seconds / DAY),
    }
}

/// How long ago a time of the interface was.
pub(crate) fn ago(time: &str, now: SystemTime) -> Option<String> {
    Some(format!("{} ago", since(time, now)?))
}

/// The time since then; none if it is still to come, as when a clock was set.
pub(crate) fn since(time: &str, now: SystemTime) -> Option<String> {
    let then = UNIX_EPOCH + Duration::from_secs(unix_seconds(time)?);
    Some(words(now.duration_since(then).unwrap_or_default()))
}

/// The clock of a time of the interface: that of the monitor's time zone.
pub(crate) fn clock(time: &str) -> &str {
    time.get(11..19).unwrap_or(time)
}

/// RFC 3339, as seconds since 1970.
fn unix_seconds(time: &str) -> Option<u64> {
    let number = |range: Range<usize>| time.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    // What is left are a fraction and the offset.
    let zone = time.get(19..)?.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let offset = match zone.as_bytes() {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), ..] => {
            let minutes = zone.get(1..3)?.parse::<i64>().ok()? * 60 + zone.get(4..6)?.parse::<i64>().ok()?;
            if *sign == b'+' { minutes * 60 } else { minutes * -60 }
        }
        _ => return None,
    };
    // Years begin in March here, so that the day that leap years have more is their last.
    let shifted = if month > 2 { year } else { year - 1 };
    let days_before_month = (153 * ((month + 9) % 12) + 2) / 5;
    let days = 365 * shifted + shifted / 4 - shifted / 100 + shifted / 400 + days_before_month + day - 719_469;
    u64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second - offset).ok()
}

/// Reads `500ms`, `10s`, `2m`, `1h`, or seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let wrong = || format!("{text} is no time: write 10s, 500ms, 2m or 1h");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let millis = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    // Milliseconds of the interface have 32 bits.
    let millis = number.checked_mul(millis).filter(|millis| (1..=u64::from(u32::MAX)).contains(millis));
    millis.map(Duration::from_millis).ok_or_else(|| format!("{text} is not from 1 ms to 49 days"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00.000000000+00:00", 0),
            ("2000-02-29T12:00:00.5Z", 951_825_600),
            ("2024-03-01T00:00:00.000000000+00:00", 1_709_251_200),
            ("2024-12-31T23:59:59.999999999-08:00", 1_735_718_399),
            ("2026-11-30T18:03:37.123456789+01:30", 1_796_056_417),
        ] {
            assert_eq!(unix_seconds(text), Some(seconds), "{text}");
        }
        for text in ["", "yesterday", "2024-03-01T00:00:00", "2024-03-01T00:00:00*01:00"] {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
    }

    #[test]
    fn words_have_one_unit() {
        let day = 24 * 3600;
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3599, "59 min"),
            (7200, "2 h"),
            (day, "1 day"),
            (9 * day, "9 days"),
        ] {
            assert_eq!(words(Duration::from_secs(seconds)), text);
        }
        let now = UNIX_EPOCH + Duration::from_secs(200);
        assert_eq!(ago("1970-01-01T00:00:00Z", now).unwrap(), "3 min ago");
        // A clock that was set back.
        assert_eq!(ago("1970-01-01T00:10:00Z", now).unwrap(), "0 s ago");
    }

    #[test]
    fn durations_have_units() {
        for (text, millis) in [("500ms", 500), ("10s", 10_000), ("10", 10_000), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "0", "s", "-1s", "1.5s", "1d", "99999999h", "4294967296ms"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
