//! What a child does between fork and exec, whatever it is to become: calls that are safe there, and no allocation.

use std::io;

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

/// Forks by `fork` with all signals blocked, in the child for good.
///
/// What arrives before the child has let go of this process's handlers is so kept for the program: they would note it in
/// memory that nobody looks at.
pub(super) fn fork_without_signals<T>(fork: impl FnOnce() -> T) -> io::Result<T> {
    let mut own_mask = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut own_mask))?;
    let forked = fork();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&own_mask), None)?;
    Ok(forked)
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
