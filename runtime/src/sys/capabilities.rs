//! The capabilities of a thread (capabilities(7)), by calls that are safe in the child of a fork.

use std::ffi::c_int;

use caps::Capability;
use nix::errno::Errno;

/// A set of capabilities, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub(super) u64);

impl Capabilities {
    /// Whether it has those of `other` and maybe more.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    pub(super) fn has(self, number: u8) -> bool {
        self.0 & 1 << number != 0
    }

    /// The half of it that one word holds.
    #[expect(clippy::cast_possible_truncation)]
    fn half(self, upper: bool) -> u32 {
        (if upper { self.0 >> 32 } else { self.0 }) as u32
    }
}

impl FromIterator<Capability> for Capabilities {
    fn from_iter<I: IntoIterator<Item = Capability>>(capabilities: I) -> Self {
        Self(capabilities.into_iter().fold(0, |bits, capability| bits | capability.bitmask()))
    }
}

/// What a thread has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapabilitySets {
    /// What the kernel looks at.
    pub effective: Capabilities,
    /// What can be put in effect.
    pub permitted: Capabilities,
    /// What programs may keep whose files say so.
    pub inheritable: Capabilities,
}

/// `struct __user_cap_header_struct` of linux/capability.h. The PID 0 is the calling thread.
#[repr(C)]
struct Header {
    version: u32,
    pid: c_int,
}

/// `_LINUX_CAPABILITY_VERSION_3`
const HEADER: Header = Header { version: 0x2008_0522, pid: 0 };

/// Half a set each: effective, permitted, inheritable.
type Data = [[u32; 3]; 2];

impl CapabilitySets {
    /// Those of this thread.
    pub fn get() -> Result<Self, Errno> {
        let mut data = Data::default();
        let header = HEADER;
        // SAFETY: both are as this version of the call has them, and `data` is writable.
        Errno::result(unsafe { libc::syscall(libc::SYS_capget, &raw const header, &raw mut data) })?;
        let [effective, permitted, inheritable] =
            [0, 1, 2].map(|set| Capabilities(u64::from(data[0][set]) | u64::from(data[1][set]) << 32));
        Ok(Self { effective, permitted, inheritable })
    }

    /// Makes them those of this thread.
    pub fn set(self) -> Result<(), Errno> {
        let half = |upper| [self.effective, self.permitted, self.inheritable].map(|set| set.half(upper));
        let data: Data = [half(false), half(true)];
        let header = HEADER;
        // SAFETY: both are as this version of the call has them.
        Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, &raw const data) }).map(drop)
    }
}
