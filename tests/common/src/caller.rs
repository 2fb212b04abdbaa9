//! A client of a control socket that says exactly what it is told to.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::wait::{self, Deadline};
use serde_json::{Value, json};

/// A connection to a control socket.
#[derive(Debug)]
pub struct Caller {
    /// The connection itself.
    pub stream: UnixStream,
    received: Vec<u8>,
}

impl Caller {
    /// Connects to the socket there.
    pub fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { stream, received: Vec::new() }
    }

    /// Sends bytes; whether somebody took them.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends a message.
    pub fn send(&mut self, message: &Value) {
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        assert!(self.send_bytes(&bytes), "the connection is closed: not sent {message}");
    }

    /// Calls a method of the shim's interface, whose answer is still to come.
    pub fn ask(&mut self, method: &str, parameters: &Value) {
        self.send(&json!({"method": format!("org.dunnage.shim.{method}"), "parameters": parameters}));
    }

    /// Calls a method that answers more than once.
    pub fn ask_for_more(&mut self, method: &str, parameters: &Value) {
        let method = format!("org.dunnage.shim.{method}");
        self.send(&json!({"method": method, "parameters": parameters, "more": true}));
    }

    /// The next message; none at the end of the connection.
    pub fn message(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == 0) {
                let message: Vec<u8> = self.received.drain(..=end).collect();
                let message = serde_json::from_slice(&message[..end]);
                return Some(message.unwrap_or_else(|error| panic!("no JSON: {error}")));
            }
            wait::readable(self.stream.as_fd(), Deadline::usual(), "an answer, or the end of the connection");
            let mut bytes = [0; 16384];
            match self.stream.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
            }
        }
    }

    /// The next answer, whole.
    pub fn answer(&mut self) -> Value {
        self.message().expect("an answer")
    }

    /// Calls a method, and gives what it answers.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.ask(method, parameters);
        let answer = self.answer();
        assert!(answer.get("error").is_none(), "{method} {parameters}: {answer}");
        answer["parameters"].clone()
    }

    /// Calls a method, and gives the error that it answers: name and parameters.
    pub fn refusal(&mut self, method: &str, parameters: &Value) -> (String, Value) {
        self.ask(method, parameters);
        let answer = self.answer();
        let name = answer["error"].as_str().unwrap_or_else(|| panic!("{method} {parameters}: {answer}"));
        (name.to_owned(), answer["parameters"].clone())
    }

    /// Waits for the other side to close.
    pub fn is_closed(&mut self) {
        while let Some(message) = self.message() {
            assert!(message.get("error").is_none(), "{message}");
        }
    }

    /// The next event.
    pub fn event(&mut self) -> Value {
        let answer = self.answer();
        assert_eq!(answer["continues"], true, "{answer}");
        answer["parameters"]["event"].clone()
    }

    /// The next event of a kind; others are passed over.
    pub fn event_of(&mut self, kind: &str) -> Value {
        loop {
            let event = self.event();
            if event["kind"] == kind {
                return event;
            }
        }
    }
}

/// What base64 stands for.
pub fn decode(text: &Value) -> String {
    let text = text.as_str().expect("base64 is text");
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("no base64: {text}"),
    };
    let mut bytes = Vec::new();
    for group in text.as_bytes().chunks(4) {
        let digits: Vec<u8> = group.iter().copied().take_while(|&byte| byte != b'=').map(value).collect();
        let bits = digits.iter().fold(0_u32, |bits, &digit| bits << 6 | u32::from(digit));
        let bits = bits << (6 * (4 - digits.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..digits.len()]);
    }
    String::from_utf8(bytes).expect("text")
}
