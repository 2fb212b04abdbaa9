//! The shim is the last process that the kernel may kill for memory; what it starts is not.

use std::fs::File;
use std::io::{self, Read, Write};

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
        let protected = lower().inspect_err(|error| debug!("cannot lower {FILE}: {error}"));
        Self { original: protected.unwrap_or_default() }
    }
}

/// Gives what it was before, if it was another.
fn lower() -> io::Result<Option<i32>> {
    let mut file = File::options().read(true).write(true).open(FILE)?;
    // A sign, four digits and a newline.
    let mut text = [0; 16];
    let length = file.read(&mut text)?;
    let original = str::from_utf8(&text[..length]).ok().and_then(|text| text.trim().parse().ok());
    if original != Some(LOWEST) {
        file.write_all(LOWEST.to_string().as_bytes())?;
    }
    Ok(original.filter(|&score| score != LOWEST))
}
