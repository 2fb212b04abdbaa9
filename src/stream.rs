//! The two streams of a container's output.

/// One of the output streams. A terminal has only `Stdout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output, or all that a terminal shows.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// The stream's name in a k8s-file log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    /// The first byte of each packet to an attach client (conmon: STDOUT_PIPE, STDERR_PIPE).
    pub(crate) fn packet_tag(self) -> u8 {
        match self {
            Self::Stdout => 2,
            Self::Stderr => 3,
        }
    }
}
