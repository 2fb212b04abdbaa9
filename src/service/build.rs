//! What is started: an executable, or a bundle.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use dunnage_runtime::driver::Driver;
use dunnage_runtime::event_loop::EventLoop;
use dunnage_runtime::generation::Tier;

use crate::generations::Owner;
use crate::source::Source;
use crate::staged::bundle::{Bundle, Reading};
use crate::staged::{Preparation, Prepared, Staged};

/// Which of them a staged path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Executable,
    Bundle,
}

/// A build that is opened and checked, by a task.
#[derive(Debug)]
pub(super) enum Opening {
    Executable(Preparation),
    Bundle(Reading),
}

/// A build that is open.
#[derive(Debug)]
pub(super) enum Build {
    Executable(Prepared),
    Bundle(Bundle),
}

impl Opening {
    pub(super) fn start(
        kind: Kind,
        driver: &mut Driver,
        event_loop: &EventLoop<Source>,
        staged: Staged,
    ) -> io::Result<Self> {
        match kind {
            Kind::Executable => Preparation::start(driver, event_loop, staged).map(Self::Executable),
            Kind::Bundle => Reading::start(driver, event_loop, staged).map(Self::Bundle),
        }
    }

    /// What came of it, once it is over.
    pub(super) fn advance(&mut self) -> Option<Result<Build, String>> {
        Some(match self {
            Self::Executable(preparation) => preparation.advance()?.map(Build::Executable),
            Self::Bundle(reading) => reading.advance()?.map(Build::Bundle),
        })
    }
}

impl AsFd for Opening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Executable(preparation) => preparation.as_fd(),
            Self::Bundle(reading) => reading.as_fd(),
        }
    }
}

impl Build {
    /// Its own limits (G9).
    pub(super) fn tier(&self) -> Option<Tier> {
        match self {
            Self::Executable(prepared) => prepared.manifest().tier,
            Self::Bundle(bundle) => bundle.tier(),
        }
    }

    /// Who it runs as.
    pub(super) fn owner(&self) -> Owner {
        match self {
            Self::Executable(prepared) => prepared.owner(),
            Self::Bundle(bundle) => bundle.owner(),
        }
    }

    /// Its program is to get these arguments instead of its own.
    pub(super) fn set_args(&mut self, args: &[String]) {
        match self {
            // Checked when the service file was read.
            Self::Executable(prepared) => {
                prepared.set_args(args.iter().filter_map(|arg| CString::new(arg.as_str()).ok()).collect());
            }
            Self::Bundle(bundle) => bundle.set_args(args.to_vec()),
        }
    }
}
