//! The local time zone.

use std::mem::MaybeUninit;

unsafe extern "C" {
    // POSIX; the libc crate has it for other systems only.
    fn tzset();
}

/// By how many seconds local time is ahead of UTC at `seconds` after the epoch, as TZ or /etc/localtime say now.
///
/// Reads /etc/localtime the first time. The zone that the machine is moved to later is that of later processes.
#[must_use]
pub fn utc_offset(seconds: i64) -> i64 {
    let mut local = MaybeUninit::uninit();
    // SAFETY: reads the environment, which a process of one thread does not change meanwhile.
    unsafe { tzset() };
    // SAFETY: both pointers are valid for the call, which fills `local` or returns null.
    let filled = unsafe { libc::localtime_r(&raw const seconds, local.as_mut_ptr()) };
    if filled.is_null() {
        return 0; // A year that does not fit in an int.
    }
    // SAFETY: `localtime_r` filled it.
    let local: libc::tm = unsafe { local.assume_init() };
    local.tm_gmtoff
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use super::*;

    const JANUARY: i64 = 1_799_971_200; // 2027-01-15
    const JULY: i64 = 1_815_609_600; // 2027-07-15
    const ROLE: &str = "DUNNAGE_TEST_OFFSETS";

    #[test]
    fn the_offset_follows_tz_and_summer_time() {
        // TZ has to be there from the start: nothing may change the environment of a process with threads.
        if let Ok(expected) = env::var(ROLE) {
            assert_eq!(format!("{} {}", utc_offset(JANUARY), utc_offset(JULY)), expected);
            return;
        }
        for (zone, expected) in [
            ("UTC0", "0 0"),
            ("IST-5:30", "19800 19800"),
            ("CET-1CEST,M3.5.0,M10.5.0/3", "3600 7200"),
            ("MART9:30", "-34200 -34200"),
            ("no zone", "0 0"),
        ] {
            let mut child = Command::new(env::current_exe().unwrap());
            child.args(["--exact", "sys::local_time::tests::the_offset_follows_tz_and_summer_time"]);
            let output = child.env("TZ", zone).env(ROLE, expected).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "TZ={zone}: {said}");
        }
    }
}
