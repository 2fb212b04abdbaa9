//! What command lines are held to.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use super::number::{self, IntegerError};
use super::options::{LONGEST, Opt, SHORTEST};
use super::table::GROUPS;
use super::words;
use super::{Command, Config, Job, parse};
use crate::fuzzing::Input;
use crate::whole_file::NAME_MAX;

/// Words in any order, each ended by a NUL as in `/proc/PID/cmdline`; then options one by one, in all the ways that each
/// can be written.
pub(crate) fn options(bytes: &[u8]) {
    let words = bytes.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    match parse(words) {
        Ok(Command::Run(config)) => check(&config),
        Ok(Command::Version | Command::Help | Command::Serve(_)) => {}
        Err(error) => {
            let line = error.to_string();
            assert!(!line.is_empty() && !line.contains(char::is_control), "no line: {line:?}");
        }
    }

    let mut input = Input::new(bytes);
    let (mut several, mut one) = (Vec::new(), Vec::new());
    let options: Vec<&Opt> = GROUPS.iter().flat_map(|group| group.options).collect();
    while !input.is_empty() {
        let option = *input.one_of(&options);
        let value = if option.is_bare() { None } else { Some(OsStr::from_bytes(input.text())) };
        several.append(&mut spelled(option, value, input.byte()));
        one.push(joined(&format!("--{}", option.name), "=", value));
    }
    // Messages name the option as it was spelled.
    let read = |words: Vec<OsString>| words::read(words).map(|words| format!("{words:?}")).map_err(|_| ());
    assert_eq!(read(several.clone()), read(one), "{several:?}");
}

/// An option as one or two words.
fn spelled(option: &Opt, value: Option<&OsStr>, manner: u8) -> Vec<OsString> {
    let long = format!("--{}", option.name);
    let short = option.short.map_or_else(|| long.clone(), |short| format!("-{}", char::from(short)));
    let is_flag = |short: &u8| Opt::short_named(*short).is_some_and(Opt::is_bare);
    // What could be more flags is no value, and what begins like this is a mistake.
    let can_follow = |value: &OsStr| !value.as_bytes().iter().all(is_flag) && !value.as_bytes().starts_with(b"=");
    match manner % 3 {
        0 if option.short.is_some() && value.is_some_and(can_follow) => vec![joined(&short, "", value)],
        1 => [long.into()].into_iter().chain(value.map(OsStr::to_owned)).collect(),
        _ => [short.into()].into_iter().chain(value.map(OsStr::to_owned)).collect(),
    }
}

fn joined(option: &str, by: &str, value: Option<&OsStr>) -> OsString {
    let mut word = OsString::from(option);
    if let Some(value) = value {
        word.push(by);
        word.push(value);
    }
    word
}

/// What holds for whatever is to be started.
fn check(config: &Config) {
    let is_name =
        |name: &OsStr| name.len() <= NAME_MAX && !name.as_bytes().contains(&b'/') && name != "." && name != "..";
    assert!(!config.id.is_empty() && is_name(&config.id), "{config:?}");
    assert!(is_name(&config.uuid) && (!config.uuid.is_empty() || config.is_exec()), "{config:?}");
    assert!(config.bundle().map_or(config.is_exec(), Path::is_absolute), "{config:?}");
    let directories = [&config.exit.dir, &config.exit.persist_dir, &config.attach.link_dir, &config.control_socket];
    assert!(directories.into_iter().flatten().all(|path| path.is_absolute()), "{config:?}");
    assert!(!config.container_pid_file.as_os_str().is_empty(), "{config:?}");
    assert!(config.timeout.is_none_or(|timeout| !timeout.is_zero()), "{config:?}");
    let stall = config.attach.stall_timeout;
    assert!(stall.is_none_or(|time| (SHORTEST..=LONGEST).contains(&time)), "{config:?}");
    assert!(config.timing.validate().is_ok(), "{config:?}");
    let file = config.log.file.as_ref();
    assert!(file.is_none_or(|file| file.size_max != Some(0) && file.total_max != Some(0)), "{config:?}");
    assert!(file.is_none_or(|file| !file.path.as_os_str().is_empty()), "{config:?}");
    if let Job::Exec { attach: true, .. } = config.job {
        assert!(config.control_socket.is_none(), "{config:?}");
    }
}

/// A word as a number.
pub(crate) fn numbers(word: &[u8]) {
    let expected = slow_integer(word);
    assert_eq!(number::integer(word), expected, "{}", word.escape_ascii());

    let found = number::seconds(word);
    assert_eq!(found, slow_seconds(word), "{}", word.escape_ascii());
}

/// strtoll(3) of a whole word.
fn slow_integer(word: &[u8]) -> Result<i64, IntegerError> {
    let text = std::str::from_utf8(word).map_err(|_| IntegerError::Malformed)?;
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (base, digits) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if text.starts_with('0') => (8, text),
        None => (10, text),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(base)) {
        return Err(IntegerError::Malformed);
    }
    i64::from_str_radix(&format!("{sign}{digits}"), base).map_err(|_| IntegerError::OutOfRange)
}

/// Counted digit by digit.
fn slow_seconds(word: &[u8]) -> Option<Duration> {
    let mut parts = word.split(|&byte| byte == b'.');
    let (whole, fraction) = (parts.next()?, parts.next());
    let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if parts.next().is_some() || !is_number(whole) || !fraction.is_none_or(is_number) {
        return None;
    }
    let digit = |byte: &u8| u64::from(byte - b'0');
    let seconds = whole.iter().try_fold(0_u64, |sum, byte| sum.checked_mul(10)?.checked_add(digit(byte)))?;
    let fraction = fraction.unwrap_or_default().iter().chain(std::iter::repeat(&b'0'));
    let nanoseconds = fraction.take(9).fold(0, |sum, byte| sum * 10 + digit(byte));
    Some(Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds))
}
