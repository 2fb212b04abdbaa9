//! `cgroup.events`.
//!
//! The kernel notifies of its changes by POLLPRI and POLLERR, also to an edge-triggered epoll, and whether or not the
//! last change was read; and by inotify, of which a user has 128 by default, so not here. A read of the file resets it; a
//! change between a read and the registration is reported by the registration. A removal wakes nobody, and takes along
//! the notification of the last exit if that had not been delivered; afterwards reads fail with ENODEV. (Seen on 6.1 and
//! 6.18.)

/// What the file says of a cgroup and all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events {
    /// Whether there is a process that has not exited. Zombies do not count.
    pub populated: bool,
    /// Whether all is frozen, also by a cgroup above. Of an empty cgroup it tells whether what enters would freeze.
    pub frozen: bool,
}

impl Events {
    /// Nothing if the text is not such a file's.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (mut populated, mut frozen) = (None, None);
        for line in text.lines() {
            let (key, value) = line.split_once(' ')?;
            let field = match key {
                "populated" => &mut populated,
                "frozen" => &mut frozen,
                _ => continue,
            };
            *field = Some(match value {
                "0" => false,
                "1" => true,
                _ => return None,
            });
        }
        // Kernels before 5.2 cannot freeze.
        Some(Self { populated: populated?, frozen: frozen.unwrap_or(false) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g20_only_a_clear_populated_0_reads_as_empty() {
        let events = |populated, frozen| Some(Events { populated, frozen });
        for (text, expected) in [
            ("populated 0\nfrozen 0\n", events(false, false)),
            ("populated 1\nfrozen 1\n", events(true, true)),
            ("frozen 1\npopulated 0\n", events(false, true)),
            ("populated 1\n", events(true, false)),
            ("new 7\npopulated 0\n", events(false, false)),
            ("", None),
            ("frozen 0\n", None),
            ("populated", None),
            ("populated 2\n", None),
            ("populated  0\n", None),
            ("unpopulated 0\n", None),
        ] {
            assert_eq!(Events::parse(text), expected, "{text:?}");
        }
    }
}
