//! The local time zone.

use std::mem::MaybeUninit;

unsafe extern "C" {
    // POSIX; the libc crate has it for other systems only.
    fn tzset();
}

/// By how many seconds local time is ahead of UTC at `seconds` after the epoch, as TZ or /etc/localtime say now.
///
/// Looks at the files again where they may have changed, so not for each time stamp.
#[must_use]
pub fn utc_offset(seconds: libc::time_t) -> i64 {
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
