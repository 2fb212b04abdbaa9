//! What reading a runtime's log is held to.

use serde_json::Value;

use super::log::last_error_in;

/// A log, or its end.
pub(crate) fn runtime_log(log: &[u8]) {
    let error = last_error_in(log);
    let blank = log.iter().all(u8::is_ascii_whitespace);
    assert_eq!(error.is_none(), blank);
    let Some(error) = error else { return };
    assert!(!error.contains(char::is_control), "it is one line, and harmless to a terminal");

    // The last line, if a whole reader takes it for an error whose text needs no escapes.
    let last = log.rsplit(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).find(|line| !line.is_empty());
    let entry: Value = serde_json::from_slice(last.unwrap_or_default()).unwrap_or_default();
    if let (Some("error"), Some(text)) = (entry["level"].as_str(), entry["msg"].as_str())
        && entry
            .as_object()
            .is_some_and(|fields| fields.len() == last.map_or(0, |line| line.split(|&byte| byte == b':').count() - 1))
        && !text.contains(char::is_control)
    {
        assert_eq!(error, text.trim());
    }
}
