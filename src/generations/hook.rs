//! The switch hook: a program that hears of each switch (G17).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dunnage_runtime::generation::Number;

/// What runs after a switch. It cannot undo or delay it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SwitchHook {
    /// Absolute.
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
    /// When it is killed.
    pub(crate) timeout: Duration,
}

/// All the environment that it has.
pub(crate) fn environment(service: &OsString, number: Number, socket: &Path) -> [(&'static str, OsString); 3] {
    [
        ("DUNNAGE_SERVICE", service.clone()),
        ("DUNNAGE_GENERATION", number.to_string().into()),
        ("DUNNAGE_SOCKET", socket.into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g17_the_hook_is_told_service_generation_and_socket() {
        let told = environment(&"web".into(), Number::new(7).unwrap(), Path::new("/run/web.g7.sock"));
        let told = told.map(|(name, value)| format!("{name}={}", value.display()));
        assert_eq!(told, ["DUNNAGE_SERVICE=web", "DUNNAGE_GENERATION=7", "DUNNAGE_SOCKET=/run/web.g7.sock"]);
    }
}
