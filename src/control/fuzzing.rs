//! What the control socket is held to.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::call::{Exec, ExecSync, MAX_OUTPUT, MAX_SIZE, Request, parse};
use super::frames::{Frames, MAX_QUEUED, MAX_UNANSWERED, MESSAGE_TIME, Violation};
use super::outbox::{Outbox, Part};
use super::refusal::encode_refusal;
use super::{description_of, reply};
use crate::exec::{Capture, Captured};
use crate::fuzzing::Input;
use crate::relay::Sink;
use crate::stream::Stream;

/// What a client sends, in pieces, with calls taken in between.
pub(crate) fn frames(bytes: &[u8]) {
    let mut input = Input::with_room(bytes, 2 * MAX_UNANSWERED);
    let mut frames = Frames::default();
    let (mut waiting, mut begun) = (VecDeque::<Vec<u8>>::new(), Vec::new());
    let (mut held, mut since) = (0, None);
    let mut now = Instant::now();
    while !input.is_empty() {
        now += Duration::from_secs(1);
        if input.flag() {
            let taken = frames.take();
            held -= taken.as_ref().map_or(0, Vec::len);
            assert!(taken == waiting.pop_front());
            continue;
        }
        let arrived = input.output();
        let mut violation = None;
        for &byte in &arrived {
            if byte == 0 {
                waiting.push_back(std::mem::take(&mut begun));
                since = None;
                violation = violation.or((waiting.len() > MAX_QUEUED).then_some(Violation::TooMany));
            } else {
                begun.push(byte);
                since.get_or_insert(now);
                held += 1;
                violation = violation.or((held > MAX_UNANSWERED).then_some(Violation::TooLong));
            }
        }
        assert_eq!(frames.push(&arrived, now).err(), violation);
        if violation.is_some() {
            return;
        }
        assert_eq!(frames.have_message(), !waiting.is_empty());
        assert_eq!(frames.deadline(), since.map(|since| since + MESSAGE_TIME));
    }
    assert!(std::iter::from_fn(|| frames.take()).eq(waiting));
}

/// A message: a call that can be carried out or answered, or none.
pub(crate) fn calls(message: &[u8]) {
    // A reader without bounds of its own. It gives up on what we pass by: depth, huge numbers, halves of surrogates.
    let read: serde_json::Result<Value> = serde_json::from_slice(message);
    let Some(call) = parse(message) else {
        let fields = read.ok().and_then(|value| value.as_object().map(serde_json::Map::len));
        // More colons than fields are fields of values, or fields that are there twice.
        let colons = message.split(|&byte| byte == b':').skip(1).count();
        assert!(fields.is_none_or(|fields| fields > 32 || colons > fields), "it is a call");
        return;
    };
    let object = read.ok();
    if let Some(object) = &object {
        assert!(object.is_object(), "{object}");
        assert_eq!(call.oneway, object["oneway"] == Value::Bool(true), "{object}");
    }
    match call.request {
        Ok(request) => check(request, object.as_ref()),
        Err(refusal) => {
            let answer = encode_refusal(&refusal);
            assert!(!answer.contains(&0), "a NUL ends a message");
            let answer: Value = serde_json::from_slice(&answer).expect("JSON");
            assert!(answer["error"].is_string() && answer["parameters"].is_object(), "{answer}");
        }
    }
}

fn check(request: Request<'_>, call: Option<&Value>) {
    if let Some(call) = call {
        let name = call["method"].as_str().and_then(|name| name.rsplit_once('.')).expect("a method").1;
        let debug = format!("{request:?}");
        assert!(debug.starts_with(name), "{call}: {debug}");
        assert!(matches!(&call["more"], Value::Null | Value::Bool(_)), "{call}");
    }
    let process = match request {
        Request::ExecSync(ExecSync { process, timeout, max_output, .. }) => {
            assert!(timeout.is_none_or(|timeout| !timeout.is_zero()) && max_output <= MAX_OUTPUT);
            process
        }
        Request::Exec(Exec { process, timeout, .. }) => {
            assert!(timeout.is_none_or(|timeout| !timeout.is_zero()));
            process
        }
        Request::Resize { height, width, .. } => return assert!(height <= MAX_SIZE && width <= MAX_SIZE),
        Request::Shutdown { timeout } => return assert!(!timeout.is_zero()),
        Request::GetInterfaceDescription(name) => {
            if let Err(refusal) = description_of(name) {
                assert!(!encode_refusal(&refusal).contains(&0));
            }
            return;
        }
        _ => return,
    };
    // The runtime is to get what the client meant, and no second document after it.
    assert!(process.starts_with('{') && process.ends_with('}'), "{process}");
    if let Some(call) = call {
        let read: Value = serde_json::from_str(process).expect("JSON, as the whole is");
        assert_eq!(read, call["parameters"]["process"]);
    }
}

/// What an exec wrote, as the answer that a client takes in pieces.
pub(crate) fn answers(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let max_output = input.number();
    let mut capture = Capture::new(max_output);
    let mut written = [Vec::new(), Vec::new()];
    let mut sizes = Input::new(input.text());
    while !input.is_empty() {
        let stream = *input.one_of(&[Stream::Stdout, Stream::Stderr]);
        let output = input.output();
        capture.write(stream, &output);
        written[stream as usize].extend_from_slice(&output);
    }
    let captured = capture.take();
    let kept = written.each_ref().map(|bytes| &bytes[..bytes.len().min(max_output)]);
    let truncated = written.iter().any(|bytes| bytes.len() > max_output);
    assert!(captured == Captured { stdout: kept[0].to_vec(), stderr: kept[1].to_vec(), truncated });

    let mut outbox = Outbox::default();
    outbox.push([Part::Text(b"{}".to_vec())]);
    outbox.push(reply::encode_executed(&reply::Executed { exit_code: -1, timed_out: true }, captured));
    let mut sent = Vec::new();
    while !outbox.is_empty() {
        let all = outbox.unsent().len();
        let count = if sizes.is_empty() { all } else { sizes.number().clamp(1, all) };
        sent.extend_from_slice(&outbox.unsent()[..count]);
        outbox.advance(count);
    }
    assert_eq!(outbox.len(), 0);
    let messages: Vec<&[u8]> = sent.split(|&byte| byte == 0).collect();
    let [b"{}", answer, b""] = messages[..] else { panic!("{} messages", messages.len()) };
    let answer: Value = serde_json::from_slice(answer).expect("JSON");
    let parameters = &answer["parameters"];
    for (name, kept) in ["stdout", "stderr"].into_iter().zip(kept) {
        assert!(decoded(parameters[name].as_str().expect("a text")) == kept, "{name}");
    }
    assert_eq!(parameters["truncated"], truncated);
}

/// Base64 read bit by bit.
fn decoded(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(4) && !text.trim_end_matches('=').contains('='));
    let mut bits = Vec::new();
    for character in text.trim_end_matches('=').bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("{character} is not in the alphabet"),
        };
        bits.extend((0..6).rev().map(|bit| value >> bit & 1));
    }
    let whole = bits.chunks_exact(8);
    assert!(whole.remainder().iter().all(|&bit| bit == 0));
    whole.map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | bit)).collect()
}
