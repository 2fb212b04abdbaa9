//! What a child does between fork and exec, whatever it is to become: calls that are safe there, and no allocation.

use std::ffi::c_char;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::Pid;

use super::pidfd::Pidfd;

/// Makes a process with a copy of this one's memory. Returns nothing in the child.
///
/// This is the kernel's fork without libc's, which could not return a pidfd. What libc does around it is for threads, which
/// this program has none of, and for its cached thread id, which the child has no use for. What this process catches
/// ([`Signals`](super::Signals)) is blocked in the child as well: it waits for the child's program.
///
/// # Safety
///
/// The child keeps to async-signal-safe calls, and never returns to what this process was doing.
pub(super) unsafe fn fork() -> io::Result<Option<(Pid, Pidfd)>> {
    let mut pidfd: RawFd = -1;
    let (flags, no_stack) = (libc::c_long::from(libc::CLONE_PIDFD | libc::SIGCHLD), 0);
    let [first, second] = if cfg!(target_arch = "s390x") { [no_stack, flags] } else { [flags, no_stack] };
    let null = ptr::null_mut::<c_char>();
    // SAFETY: without CLONE_VM and with no stack given this is a fork. Where the pidfd goes is third on all architectures,
    // and the last two, whose order differs, are null.
    match unsafe { libc::syscall(libc::SYS_clone, first, second, &raw mut pidfd, null, null) } {
        0 => Ok(None),
        result => made(result, pidfd).map(Some),
    }
}

/// The process that clone(2) or clone3(2) made.
pub(super) fn made(result: libc::c_long, pidfd: RawFd) -> io::Result<(Pid, Pidfd)> {
    // The kernel's PIDs are 32 bits.
    #[expect(clippy::cast_possible_truncation)]
    let pid = Pid::from_raw(Errno::result(result)? as i32);
    // SAFETY: the kernel just made this descriptor (with O_CLOEXEC) and nobody else knows it.
    Ok((pid, Pidfd::from(unsafe { OwnedFd::from_raw_fd(pidfd) })))
}

/// Sets all signals to their defaults.
pub(super) fn reset_signals() {
    // The kernel's sigaction, all zeroes: SIG_DFL. Not libc's, which keeps two signals to itself that a caller may
    // have ignored all the same.
    let default = [0_u64; 4];
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: `default` is as large as the kernel's sigaction; numbers that cannot be set are refused.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0_usize, size_of::<u64>()) };
    }
}

/// Sets the signal mask, which lets in what waited since the fork.
pub(super) fn set_mask(mask: &SigSet) {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(mask), None);
}

/// How likely the kernel is to kill the child where memory is short. Best effort: less than the own value needs
/// `CAP_SYS_RESOURCE`.
pub(super) fn write_oom_score_adj(value: &Decimal) {
    let text = value.as_bytes();
    // SAFETY: the path is NUL-terminated, the text live and as long as said; the descriptor is closed by execve.
    unsafe {
        let fd = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::write(fd, text.as_ptr().cast(), text.len());
        }
    }
}

/// A number as text, without allocation.
pub(super) struct Decimal {
    digits: [u8; 12],
    start: usize,
}

impl Decimal {
    pub(super) fn new(value: i32) -> Self {
        let mut digits = [0; 12];
        let mut start = digits.len();
        let mut rest = value.unsigned_abs();
        loop {
            start -= 1;
            // A remainder by 10 fits.
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            start -= 1;
            digits[start] = b'-';
        }
        Self { digits, start }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals() {
        for value in [0, 7, -1, 1000, -1000, i32::MAX, i32::MIN] {
            assert_eq!(Decimal::new(value).as_bytes(), value.to_string().as_bytes());
        }
    }
}
