//! What generations say of themselves by sd_notify(3), and whose words reach the host (G19).

use std::collections::BTreeMap;
use std::io;

use dunnage_runtime::generation::Number;
use nix::sys::socket::UnixAddr;

use crate::error::Error;
use crate::notify::{Arrived, Inbox, MAX_MESSAGE};

/// Lines that are remembered.
const READY: &[u8] = b"READY=1";
const STATUS: &[u8] = b"STATUS=";

/// Who speaks for the service. Decides only; messages are those that the filter has let pass.
#[derive(Debug, Default)]
pub(crate) struct Voices {
    /// The one whose messages are the service's.
    current: Option<Number>,
    last: BTreeMap<Number, Last>,
}

/// What one said last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Last {
    ready: bool,
    /// `STATUS=` and its text.
    status: Option<Vec<u8>>,
}

impl Voices {
    /// Of a shim started anew, where the link tells who is current (G16).
    pub(crate) fn new(current: Option<Number>) -> Self {
        Self { current, last: BTreeMap::new() }
    }

    /// Takes note of what a generation says, and tells whether the host is to hear it.
    pub(crate) fn hear(&mut self, from: Number, message: &[u8]) -> bool {
        let last = self.last.entry(from).or_default();
        for line in message.split(|&byte| byte == b'\n') {
            if line == READY {
                last.ready = true;
            } else if line.starts_with(STATUS) {
                last.status = Some(line.to_vec());
            }
        }
        self.current == Some(from)
    }

    /// From here on it is this one's messages that the host hears. What it said last the host is told now.
    #[must_use]
    pub(crate) fn switch(&mut self, to: Number) -> Option<Vec<u8>> {
        self.current = Some(to);
        let last = self.last.get(&to)?;
        let lines: Vec<&[u8]> = [last.ready.then_some(READY), last.status.as_deref()].into_iter().flatten().collect();
        (!lines.is_empty()).then(|| lines.join(&b'\n'))
    }

    /// The text of what it said last of its status.
    pub(crate) fn status(&self, of: Number) -> Option<String> {
        let status = self.last.get(&of)?.status.as_deref()?;
        Some(String::from_utf8_lossy(&status[STATUS.len()..]).into_owned())
    }

    /// That one is gone.
    pub(crate) fn forget(&mut self, gone: Number) {
        self.last.remove(&gone);
        self.current.take_if(|current| *current == gone);
    }
}

/// How many messages of one generation are taken in one turn.
const MESSAGES_PER_TURN: usize = 8;

/// What came of taking in messages.
#[derive(Debug)]
pub(crate) struct Received {
    /// There may be more.
    pub(crate) more: bool,
    /// The last failure. What could not be passed on is lost; nothing waits for it.
    pub(crate) failure: Option<Error>,
}

/// Takes what a generation has sent: the host hears it if it is its turn, subscribers in any case.
pub(crate) fn receive(
    inbox: &Inbox,
    from: Number,
    voices: &mut Voices,
    host: Option<&UnixAddr>,
    mut tell: impl FnMut(&[u8]),
) -> Received {
    let mut failure = None;
    let mut buffer = [0; MAX_MESSAGE + 1];
    for _ in 0..MESSAGES_PER_TURN {
        let message = match inbox.receive(&mut buffer) {
            Ok(Arrived::Message(message)) => message,
            Ok(Arrived::TooLong | Arrived::Nothing) => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Received { more: false, failure },
            Err(error) => {
                let failure = Error::new(format!("cannot receive what generation {from} notifies: {error}"));
                return Received { more: false, failure: Some(failure) };
            }
        };
        tell(message);
        if let (true, Some(host)) = (voices.hear(from, message), host)
            && let Err(error) = inbox.send(message, host)
        {
            failure = Some(Error::new(format!("cannot pass on what generation {from} notifies: {}", error.desc())));
        }
    }
    Received { more: true, failure }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixDatagram;

    use super::super::entry::tests::Scratch;
    use super::*;

    fn bound(scratch: &Scratch, name: &str) -> UnixDatagram {
        let socket = UnixDatagram::bind(scratch.path.join(name)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    fn arrived(host: &UnixDatagram) -> Vec<String> {
        let mut buffer = [0; 2 * MAX_MESSAGE];
        let messages = std::iter::from_fn(|| host.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec()));
        messages.map(|message| String::from_utf8(message).unwrap()).collect()
    }

    #[test]
    fn g19_a_message_that_waits_while_the_other_is_switched_to_does_not_land() {
        let scratch = Scratch::new();
        let host = bound(&scratch, "host");
        let address = UnixAddr::new(&scratch.path.join("host")).unwrap();
        let inboxes = ["old", "new"].map(|name| Inbox(bound(&scratch, name).into()));
        let send = |to: &str, message: &str| {
            UnixDatagram::unbound().unwrap().send_to(message.as_bytes(), scratch.path.join(to)).unwrap();
        };
        let mut voices = Voices::new(Some(generation(1)));
        let mut events = Vec::new();
        let mut receive_all = |voices: &mut Voices| {
            for (inbox, number) in inboxes.iter().zip([1, 2]) {
                let tell = |message: &[u8]| events.push((number, String::from_utf8_lossy(message).into_owned()));
                let received = receive(inbox, generation(number), voices, Some(&address), tell);
                assert!(!received.more && received.failure.is_none());
            }
        };
        send("old", "STATUS=old\nMAINPID=1");
        send("new", "READY=1\nFDSTORE=1");
        send("new", "MAINPID=1");
        receive_all(&mut voices);
        send("old", "STATUS=late");
        let passed_on = voices.switch(generation(2)).unwrap();
        inboxes[1].send(&passed_on, &address).unwrap();
        send("new", "STATUS=new");
        receive_all(&mut voices);
        assert_eq!(arrived(&host), ["STATUS=old", "READY=1", "STATUS=new"]);
        let told = [(1, "STATUS=old"), (2, "READY=1"), (1, "STATUS=late"), (2, "STATUS=new")];
        assert_eq!(events, told.map(|(number, text)| (number, text.to_owned())));
        fs::remove_file(scratch.path.join("host")).unwrap();
    }

    #[test]
    fn g19_a_host_that_is_gone_keeps_nobody_from_being_heard() {
        let scratch = Scratch::new();
        let inbox = Inbox(bound(&scratch, "control").into());
        let client = UnixDatagram::unbound().unwrap();
        client.connect(scratch.path.join("control")).unwrap();
        client.send(b"READY=1").unwrap();
        client.send(b"STATUS=well").unwrap();
        let mut voices = Voices::new(Some(generation(1)));
        let nobody = UnixAddr::new(&scratch.path.join("host")).unwrap();
        let mut count = 0;
        let received = receive(&inbox, generation(1), &mut voices, Some(&nobody), |_| count += 1);
        assert!(!received.more && count == 2);
        let failure = received.failure.unwrap().to_string();
        assert_eq!(failure, "cannot pass on what generation 1 notifies: No such file or directory");
    }

    #[test]
    fn g19_a_flood_is_taken_in_turns() {
        let scratch = Scratch::new();
        let inbox = Inbox(bound(&scratch, "control").into());
        let client = UnixDatagram::unbound().unwrap();
        client.connect(scratch.path.join("control")).unwrap();
        for _ in 0..=MESSAGES_PER_TURN {
            client.send(b"WATCHDOG=1").unwrap();
        }
        let mut voices = Voices::default();
        let mut count = 0;
        assert!(receive(&inbox, generation(1), &mut voices, None, |_| count += 1).more);
        assert_eq!(count, MESSAGES_PER_TURN);
        assert!(!receive(&inbox, generation(1), &mut voices, None, |_| count += 1).more);
        assert_eq!(count, MESSAGES_PER_TURN + 1);
    }

    fn generation(number: u64) -> Number {
        Number::new(number).unwrap()
    }

    #[test]
    fn g19_before_the_switch_only_the_incumbent_is_heard() {
        let mut voices = Voices::new(Some(generation(1)));
        assert!(voices.hear(generation(1), b"WATCHDOG=1"));
        assert!(!voices.hear(generation(2), b"READY=1\nSTATUS=warm"));
        assert_eq!(voices.status(generation(2)).as_deref(), Some("warm"));
    }

    #[test]
    fn g19_the_switch_passes_on_what_the_successor_said_last_and_then_only_its_messages() {
        let mut voices = Voices::new(Some(generation(1)));
        voices.hear(generation(1), b"READY=1\nSTATUS=old");
        for message in [b"STATUS=warming".as_slice(), b"READY=1", b"STATUS=warm\nWATCHDOG=1"] {
            assert!(!voices.hear(generation(2), message));
        }
        assert_eq!(voices.switch(generation(2)).as_deref(), Some(b"READY=1\nSTATUS=warm".as_slice()));
        // Sent before the switch, or after: it is one of another generation.
        assert!(!voices.hear(generation(1), b"STATUS=draining"));
        assert!(voices.hear(generation(2), b"WATCHDOG=1"));
        // And back.
        assert_eq!(voices.switch(generation(1)).as_deref(), Some(b"READY=1\nSTATUS=draining".as_slice()));
        assert!(voices.hear(generation(1), b"WATCHDOG=1") && !voices.hear(generation(2), b"WATCHDOG=1"));
    }

    #[test]
    fn g19_a_successor_that_said_nothing_has_nothing_passed_on() {
        let mut voices = Voices::default();
        assert_eq!(voices.switch(generation(1)), None);
        assert!(!voices.hear(generation(2), b"WATCHDOG=1\nERRNO=1"));
        assert_eq!(voices.switch(generation(2)), None);
        assert!(!voices.hear(generation(3), b"STATUS="));
        assert_eq!(voices.switch(generation(3)).as_deref(), Some(b"STATUS=".as_slice()));
    }

    #[test]
    fn g19_one_that_is_gone_speaks_for_nobody() {
        let mut voices = Voices::default();
        voices.hear(generation(1), b"READY=1");
        assert!(voices.switch(generation(1)).is_some());
        voices.forget(generation(1));
        assert!(!voices.hear(generation(1), b"STATUS=ghost"));
        voices.forget(generation(1));
        assert_eq!(voices.switch(generation(1)), None);
    }
}
