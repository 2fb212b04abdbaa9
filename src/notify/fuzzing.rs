//! What the proxy is held to.

use super::filter::filter;

/// A message of the container's.
pub(crate) fn notifications(message: &[u8]) {
    let text = message.split(|&byte| byte == 0).next().unwrap_or_default();
    let lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').filter(|line| may_pass(line)).collect();
    let expected = lines.join(&b'\n');

    let mut buffer = message.to_vec();
    let passed = filter(&mut buffer).to_vec();
    assert_eq!(passed.escape_ascii().to_string(), expected.escape_ascii().to_string());

    let mut again = passed.clone();
    assert_eq!(filter(&mut again), passed, "what may pass, passes");
}

/// As the documentation has it.
fn may_pass(line: &[u8]) -> bool {
    let Some(equals) = line.iter().position(|&byte| byte == b'=') else { return false };
    match (&line[..equals], &line[equals + 1..]) {
        (b"READY" | b"RELOADING" | b"STOPPING", value) => value == b"1",
        (b"WATCHDOG", value) => value == b"1" || value == b"trigger",
        (name, _) => [&b"STATUS"[..], b"ERRNO", b"BUSERROR", b"MONOTONIC_USEC"].contains(&name),
    }
}
