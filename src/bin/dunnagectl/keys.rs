//! The keys that detach a terminal.

/// Watches what is typed for a sequence of keys.
#[derive(Debug)]
pub(crate) struct DetachKeys {
    sequence: Vec<u8>,
    /// What was typed and may be the beginning of it.
    held: Vec<u8>,
}

impl DetachKeys {
    /// Reads `ctrl-p,ctrl-q`, or `a,b`; nothing for no keys.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let keys = text.split(',').filter(|_| !text.is_empty());
        let sequence = keys.map(|key| key_of(key).ok_or_else(|| format!("{key:?} is no key: write ctrl-p,ctrl-q")));
        Ok(Self { sequence: sequence.collect::<Result<_, _>>()?, held: Vec::new() })
    }

    /// What of the typed is to be passed on, and whether the sequence is complete: what follows it is dropped.
    pub(crate) fn filter(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        if self.sequence.is_empty() {
            return (typed.to_vec(), false);
        }
        let mut passed = Vec::with_capacity(typed.len());
        for &byte in typed {
            self.held.push(byte);
            while !self.sequence.starts_with(&self.held) {
                passed.push(self.held.remove(0));
            }
            if self.held == self.sequence {
                return (passed, true);
            }
        }
        (passed, false)
    }

    /// What is held back when no more will come.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// What a key types.
fn key_of(name: &str) -> Option<u8> {
    let (name, is_control) = match name.strip_prefix("ctrl-") {
        Some(name) => (name, true),
        None => (name, false),
    };
    match (name.as_bytes(), is_control) {
        ([key], false) if key.is_ascii() => Some(*key),
        ([key @ (b'a'..=b'z' | b'A'..=b'Z' | b'@'..=b'_')], true) => Some(key & 0x1f),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> DetachKeys {
        DetachKeys::parse("ctrl-p,ctrl-q").unwrap()
    }

    #[test]
    fn they_may_come_at_once_or_one_by_one() {
        assert_eq!(usual().filter(b"ab\x10\x11cd"), (b"ab".to_vec(), true));
        let mut keys = usual();
        assert_eq!(keys.filter(b"ab\x10"), (b"ab".to_vec(), false));
        assert_eq!(keys.filter(b"\x11"), (Vec::new(), true));
    }

    #[test]
    fn what_only_begins_like_them_is_passed_on() {
        let mut keys = usual();
        assert_eq!(keys.filter(b"\x10"), (Vec::new(), false));
        assert_eq!(keys.filter(b"x\x11"), (b"\x10x\x11".to_vec(), false));
        assert_eq!(keys.filter(b"\x10\x10"), (b"\x10".to_vec(), false));
        assert_eq!(keys.filter(b"\x11"), (Vec::new(), true));
        let mut keys = usual();
        keys.filter(b"\x10");
        assert_eq!(keys.rest(), b"\x10");
    }

    #[test]
    fn a_beginning_may_begin_inside_of_another() {
        let mut keys = DetachKeys::parse("a,a,b").unwrap();
        assert_eq!(keys.filter(b"aaab"), (b"a".to_vec(), true));
    }

    #[test]
    fn they_can_be_chosen_or_none() {
        assert_eq!(DetachKeys::parse("ctrl-a,d,ctrl-[,ctrl-_").unwrap().sequence, b"\x01d\x1b\x1f");
        assert_eq!(DetachKeys::parse("").unwrap().filter(b"\x10\x11"), (b"\x10\x11".to_vec(), false));
        for text in ["ctrl-", "ctrl-pq", "ctrl-p,", "strg-p", "ctrl-1"] {
            assert!(DetachKeys::parse(text).is_err(), "{text}");
        }
    }
}
