//! The shim is the last process that the kernel may kill for memory; what it starts is not.

use std::fs;

use log::debug;

const FILE: &str = "/proc/self/oom_score_adj";
const LOWEST: i32 = -1000;

/// What the shim was started with, which programs that it starts get back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OomScore {
    /// None where the shim's own was not changed.
    pub(crate) original: Option<i32>,
}

impl OomScore {
    /// Protects this process, if it may (`CAP_SYS_RESOURCE`).
    pub(crate) fn protect() -> Self {
        let original = fs::read_to_string(FILE).ok().and_then(|text| text.trim().parse().ok());
        let protected = original != Some(LOWEST)
            && fs::write(FILE, LOWEST.to_string()).inspect_err(|error| debug!("cannot lower {FILE}: {error}")).is_ok();
        Self { original: original.filter(|_| protected) }
    }
}
