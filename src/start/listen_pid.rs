//! Socket activation: whose `LISTEN_PID` it is (sd_listen_fds(3)).

use std::env;
use std::ffi::OsStr;

use crate::error::{Error, Result};

/// Whether the runtime's `LISTEN_PID` is to name the runtime: where it named one of `shims`, this process on either side
/// of the fork, or where the caller wants it (`--replace-listen-pid`). Without one there is nothing to replace.
pub(crate) fn passes_to_runtime(replace: bool, shims: [u32; 2]) -> Result<bool> {
    env::var_os("LISTEN_PID").map_or(Ok(false), |value| decide(&value, replace, shims))
}

pub(super) fn decide(value: &OsStr, replace: bool, shims: [u32; 2]) -> Result<bool> {
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(pid) if pid > 0 => Ok(replace || shims.contains(&pid)),
        _ => Err(Error::new(format!("LISTEN_PID is no pid: \"{}\"", value.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j04_listen_pid_is_replaced_where_it_named_the_shim_or_on_request() {
        for (value, replace, wanted) in
            [("10", false, true), ("11", false, true), ("12", false, false), ("12", true, true)]
        {
            assert_eq!(decide(OsStr::new(value), replace, [10, 11]).unwrap(), wanted, "{value} {replace}");
        }
    }

    #[test]
    fn a_listen_pid_that_is_none_starts_nothing() {
        for value in ["", "0", "-1", "x", "10 ", "99999999999"] {
            let error = decide(OsStr::new(value), true, [10, 11]).unwrap_err();
            assert_eq!(error.to_string(), format!("LISTEN_PID is no pid: \"{value}\""));
        }
    }
}
