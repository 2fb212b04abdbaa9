//! What stands before the text of a record: `2026-11-30T13:02:15.123456789+00:00 stdout F `.

use std::time::{Duration, SystemTime};

use dunnage_records::Prefix;
use dunnage_runtime::sys::utc_offset;

use crate::stream::Stream;

/// The length of the time in it.
const TIME_LEN: usize = 35;

// Both streams have names of six letters.
const TEMPLATE: &Prefix = b"0000-00-00T00:00:00.000000000+00:00 stdout F ";
const QUARTER: i64 = 15 * 60;
const DAY: i64 = 24 * 60 * 60;

/// A clock that writes RFC 3339. Date and seconds are formatted once a second, the offset is asked for once a
/// quarter hour of UTC: zones change theirs at no other time.
pub(super) struct Stamp {
    second: i64,
    quarter: i64,
    offset: i64,
    text: Prefix,
}

impl Stamp {
    pub(super) fn new() -> Self {
        Self { second: -1, quarter: -1, offset: 0, text: *TEMPLATE }
    }

    /// Takes the time.
    pub(super) fn update(&mut self) {
        // Linux lets nobody set its clock to a time before the epoch.
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        self.set(now, utc_offset);
    }

    /// The prefix of a record of `stream` at the time taken last.
    pub(super) fn prefix(&self, stream: Stream) -> Prefix {
        let mut prefix = self.text;
        prefix[36..42].copy_from_slice(stream.name().as_bytes());
        prefix
    }

    fn set(&mut self, since_epoch: Duration, utc_offset: impl FnOnce(i64) -> i64) {
        // A Duration holds more seconds than an i64 only long after the end of every calendar.
        let second = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX / 2);
        if second != self.second {
            self.second = second;
            if second / QUARTER != self.quarter {
                self.quarter = second / QUARTER;
                // RFC 3339 knows whole minutes only.
                self.offset = utc_offset(second) / 60 * 60;
                self.format_offset();
            }
            self.format_second(second + self.offset);
        }
        put_digits(&mut self.text[20..29], u64::from(since_epoch.subsec_nanos()));
    }

    fn format_offset(&mut self) {
        let minutes = self.offset.unsigned_abs() / 60;
        self.text[29] = if self.offset < 0 { b'-' } else { b'+' };
        put_digits(&mut self.text[30..32], minutes / 60);
        put_digits(&mut self.text[33..35], minutes % 60);
    }

    fn format_second(&mut self, local: i64) {
        let (year, month, day) = date(local.div_euclid(DAY));
        let second = local.rem_euclid(DAY).unsigned_abs();
        put_digits(&mut self.text[0..4], year);
        put_digits(&mut self.text[5..7], month);
        put_digits(&mut self.text[8..10], day);
        put_digits(&mut self.text[11..13], second / 3600);
        put_digits(&mut self.text[14..16], second / 60 % 60);
        put_digits(&mut self.text[17..19], second % 60);
    }
}

/// The time as RFC 3339 has it, with nanoseconds.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let mut stamp = Stamp::new();
    stamp.set(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(), utc_offset);
    // It holds digits and marks only.
    String::from_utf8_lossy(&stamp.text[..TIME_LEN]).into_owned()
}

/// Fills `digits` with `number`, zeroes in front.
fn put_digits(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        let value = (number % 10) as u8;
        *digit = b'0' + value;
        number /= 10;
    }
}

/// Year, month and day of the day that is `days` after 1970-01-01.
///
/// Counted in years that begin on 1 March, so that the leap day is the last one: then the months before a day
/// follow from its number by a straight line (five months have 153 days).
fn date(days: i64) -> (u64, u64, u64) {
    const TO_1970: i64 = 719_468; // From 0000-03-01.
    const DAYS_400_YEARS: u64 = 146_097;
    let days = (days + TO_1970).max(0).unsigned_abs();
    let (era, day) = (days / DAYS_400_YEARS, days % DAYS_400_YEARS);
    // Every 4 years (1461 days) a leap day, but not every 100 (36524), yet every 400.
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use dunnage_records::FLAG_AT;

    use super::*;

    fn stamp(seconds: u64, nanos: u32, offset: i64) -> String {
        let mut stamp = Stamp::new();
        stamp.set(Duration::new(seconds, nanos), |_| offset);
        String::from_utf8(stamp.prefix(Stream::Stdout).to_vec()).unwrap()
    }

    #[test]
    fn the_stamp_is_rfc_3339_with_nine_digits_and_never_z() {
        assert_eq!(stamp(0, 0, 0), "1970-01-01T00:00:00.000000000+00:00 stdout F ");
        assert_eq!(stamp(1_796_043_735, 123_456_789, 0), "2026-11-30T13:02:15.123456789+00:00 stdout F ");
        assert_eq!(stamp(1_796_043_735, 7, 5 * 3600 + 1800), "2026-11-30T18:32:15.000000007+05:30 stdout F ");
        assert_eq!(stamp(1_796_043_735, 0, -(9 * 3600 + 1800)), "2026-11-30T03:32:15.000000000-09:30 stdout F ");
        assert_eq!(stamp(1_796_083_199, 0, 1), "2026-11-30T23:59:59.000000000+00:00 stdout F ");
    }

    #[test]
    fn an_offset_moves_the_date() {
        assert_eq!(&stamp(1_709_164_800, 0, -3600)[..35], "2024-02-28T23:00:00.000000000-01:00");
        assert_eq!(&stamp(1_709_251_199, 0, 3600)[..35], "2024-03-01T00:59:59.000000000+01:00");
        assert_eq!(&stamp(0, 0, -3600)[..35], "1969-12-31T23:00:00.000000000-01:00");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1969, 12, 31);
        for days in -1..200 * 366 {
            assert_eq!(date(days), (year, month, day), "day {days}");
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 if leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, last) if last == length => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
    }

    #[test]
    fn the_offset_is_asked_for_once_a_quarter_hour() {
        let mut stamp = Stamp::new();
        let mut asked = Vec::new();
        for second in 1_796_043_600..1_796_043_600 + 2 * QUARTER {
            for nanos in [0, 500] {
                stamp.set(Duration::new(second.unsigned_abs(), nanos), |at| {
                    asked.push(at);
                    3600
                });
            }
        }
        assert_eq!(asked, [1_796_043_600, 1_796_043_600 + QUARTER]);
        stamp.set(Duration::from_secs(1_796_043_600), |_| -3600);
        assert!(stamp.text.starts_with(b"2026-11-30T12:00:00.000000000-01:00"), "a clock set back is followed");
    }

    #[test]
    fn both_streams_have_prefixes_of_one_length() {
        let stamp = Stamp::new();
        assert!(stamp.prefix(Stream::Stderr).ends_with(b" stderr F "));
        assert_eq!(stamp.prefix(Stream::Stdout)[FLAG_AT], b'F');
    }
}
