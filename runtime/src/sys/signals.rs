//! Signals as events of the loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Catches signals: they are blocked, and each that is pending makes this readable (signalfd(2)). No handler interrupts
/// what the process does.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
    original_mask: SigSet,
}

impl Signals {
    /// Catches `signals` from now on and for the process's life, also those that it was started with as blocked or ignored.
    pub fn catch(signals: &[Signal]) -> io::Result<Self> {
        let set: SigSet = signals.iter().copied().collect();
        let mut original_mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), Some(&mut original_mask))?;
        // A blocked signal is kept even where it is ignored. But the kernel itself would reap the children of a process
        // that ignores this one, and their statuses be lost.
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: installs no handler.
        unsafe { sigaction(Signal::SIGCHLD, &default)? };
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { fd, original_mask })
    }

    /// Those that arrived since the last time, each once however often it came.
    pub fn pending(&mut self) -> impl Iterator<Item = Signal> + use<> {
        let mut pending = SigSet::empty();
        // A signal's number is always one of a signal.
        while let Ok(Some(info)) = self.fd.read_signal() {
            pending.extend(i32::try_from(info.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok()));
        }
        Signal::iterator().filter(move |&signal| pending.contains(signal))
    }

    /// The mask that programs are started with: the one this process was started with.
    #[must_use]
    pub fn original_mask(&self) -> SigSet {
        self.original_mask
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::signal::{raise, signal};
    use std::process::Command;
    use std::{env, fs};

    use super::*;
    use crate::reaper::ExitStatus;
    use crate::sys::{Environment, Program, Ties};

    fn is_readable(signals: &Signals) -> bool {
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO) == Ok(1)
    }

    #[test]
    fn each_signal_that_came_is_told_once() {
        let mut signals = Signals::catch(&[Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH]).unwrap();
        for signal in [Signal::SIGUSR2, Signal::SIGUSR1, Signal::SIGUSR1] {
            raise(signal).unwrap();
        }
        assert!(is_readable(&signals));
        assert_eq!(signals.pending().collect::<Vec<_>>(), [Signal::SIGUSR1, Signal::SIGUSR2]);
        assert_eq!(signals.pending().count(), 0);
        assert!(!is_readable(&signals));
    }

    #[test]
    fn those_that_were_ignored_are_told_as_well() {
        // SAFETY: installs no handler.
        unsafe { signal(Signal::SIGTTIN, SigHandler::SigIgn).unwrap() };
        let mut signals = Signals::catch(&[Signal::SIGTTIN]).unwrap();
        raise(Signal::SIGTTIN).unwrap();
        assert!(is_readable(&signals));
        assert_eq!(signals.pending().collect::<Vec<_>>(), [Signal::SIGTTIN]);
    }

    #[test]
    fn r2_no_status_is_lost_where_children_were_ignored() {
        const ROLE: &str = "DUNNAGE_TEST_IGNORES_CHILDREN";
        // In a process of its own: other tests have children.
        if env::var_os(ROLE).is_none() {
            let mut child = Command::new(env::current_exe().unwrap());
            child.args(["--exact", "sys::signals::tests::r2_no_status_is_lost_where_children_were_ignored"]);
            let output = child.env(ROLE, "").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            return;
        }
        // SAFETY: installs no handler.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn).unwrap() };
        let signals = Signals::catch(&[Signal::SIGCHLD]).unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        let program = Program {
            path: "/bin/false".as_ref(),
            args: Vec::new(),
            stdio: [null.as_fd(); 3],
            ties: Ties::None,
            mask: signals.original_mask(),
            oom_score_adj: None,
            environment: Environment::Inherited,
        };
        let pidfd = program.spawn().unwrap().pidfd;
        let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(10_000u16)), Ok(1), "it did not end in 10 s");
        assert_eq!(pidfd.try_reap().unwrap(), Some(ExitStatus::Code(1)));
    }
}
