//! The last of what the runtime said on stderr, for the message that a failed call gets.

/// How much is kept.
pub(super) const LIMIT: usize = 8192;

/// The last bytes of a stream.
#[derive(Debug, Default)]
pub(super) struct Tail(Vec<u8>);

impl Tail {
    /// Adds output; what is too old goes.
    pub(super) fn push(&mut self, output: &[u8]) {
        let output = &output[output.len().saturating_sub(LIMIT)..];
        let excess = (self.0.len() + output.len()).saturating_sub(LIMIT);
        self.0.drain(..excess);
        self.0.extend_from_slice(output);
    }

    /// What was kept.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail_of(outputs: &[&[u8]]) -> Vec<u8> {
        let mut tail = Tail::default();
        for output in outputs {
            tail.push(output);
        }
        tail.into_bytes()
    }

    #[test]
    fn little_is_kept_whole() {
        assert_eq!(tail_of(&[b"runc: ", b"no such file\n"]), b"runc: no such file\n");
    }

    #[test]
    fn of_much_the_end_is_kept() {
        let long: Vec<u8> = (0..LIMIT + 10).map(|n| (n % 251).to_le_bytes()[0]).collect();
        assert_eq!(tail_of(&[b"old", &long]), &long[10..]);
        assert_eq!(tail_of(&[&long, b"end"]), [&long[13..], b"end"].concat());
    }
}
