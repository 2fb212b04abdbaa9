//! A monitor of a service that answers as a test wants it to, whatever it is asked.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use dunnage_testing::{Sandbox, wait};
use serde_json::{Value, json};

/// What one call is answered with.
pub(crate) type Answer = fn(&Fake, &mut Client, &Value);

/// Its socket is there until the test ends; its threads end with the test's process.
#[derive(Clone)]
pub(crate) struct Fake {
    path: PathBuf,
    calls: Arc<Mutex<Vec<(String, Value)>>>,
}

/// Who has called.
pub(crate) struct Client(UnixStream);

impl Client {
    /// Answers; more may follow.
    pub(crate) fn reply(&mut self, parameters: &Value) {
        self.send(&json!({"parameters": parameters, "continues": true}));
    }

    /// Answers with an error.
    pub(crate) fn refuse(&mut self, error: &str, parameters: &Value) {
        self.send(&json!({"error": format!("org.dunnage.shim.{error}"), "parameters": parameters}));
    }

    fn send(&mut self, message: &Value) {
        // One that has gone does not listen.
        let _ = self.0.write_all(format!("{message}\0").as_bytes());
    }
}

impl Fake {
    /// Answers calls of each method as these say; others with nothing.
    pub(crate) fn start(sandbox: &Sandbox, answers: &'static [(&'static str, Answer)]) -> Self {
        let path = sandbox.control_dir().join("web");
        fs::create_dir_all(sandbox.control_dir()).expect("a directory");
        let listener = UnixListener::bind(&path).expect("a socket");
        let fake = Self { path, calls: Arc::default() };
        let server = fake.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (server, stream) = (server.clone(), stream.expect("a client"));
                thread::spawn(move || server.serve(stream, answers));
            }
        });
        fake
    }

    fn serve(&self, stream: UnixStream, answers: &[(&str, Answer)]) {
        let mut client = Client(stream.try_clone().expect("a descriptor"));
        for message in BufReader::new(stream).split(0) {
            let Ok(message) = message else { return };
            let call: Value = serde_json::from_slice(&message).expect("a call");
            let method = call["method"].as_str().unwrap_or_default().trim_start_matches("org.dunnage.shim.").to_owned();
            self.calls.lock().expect("the calls").push((method.clone(), call["parameters"].clone()));
            match answers.iter().find(|(name, _)| *name == method) {
                Some((_, answer)) => answer(self, &mut client, &call["parameters"]),
                None => client.reply(&json!({})),
            }
        }
    }

    /// Its socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The parameters of the calls of a method until now.
    pub(crate) fn calls(&self, method: &str) -> Vec<Value> {
        let calls = self.calls.lock().expect("the calls");
        calls.iter().filter(|(name, _)| name == method).map(|(_, parameters)| parameters.clone()).collect()
    }

    /// Waits for so many calls of a method, and gives the last.
    pub(crate) fn wait_for(&self, method: &str, count: usize) -> Value {
        wait::eventually(wait::Deadline::usual(), &format!("{count} calls of {method}"), || {
            self.calls(method).len() >= count
        });
        self.calls(method).remove(count - 1)
    }
}
