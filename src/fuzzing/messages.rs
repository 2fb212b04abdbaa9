//! What the shim's own messages are held to.

use super::Input;
use crate::messages::OneLine;

/// A text with anything in it, in two pieces.
pub(crate) fn messages(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let [first, second] = [input.text(), input.rest()].map(String::from_utf8_lossy);
    let shown = OneLine(format_args!("{first}{second}")).to_string();
    let escaped = |character: char| match character {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        control if control.is_control() => format!("\\u{{{:x}}}", u32::from(control)),
        other => other.to_string(),
    };
    assert_eq!(shown, first.chars().chain(second.chars()).map(escaped).collect::<String>());
}
