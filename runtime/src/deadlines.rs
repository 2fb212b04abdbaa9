//! A queue of deadlines, at most one per key.

use std::time::Instant;

/// What is due when: a sorted list, as there are rarely more than a handful.
///
/// Kept latest first, so that taking the due ones off the end moves nothing.
#[derive(Debug)]
pub struct Deadlines<K> {
    entries: Vec<(Instant, K)>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K: Copy + Eq> Deadlines<K> {
    /// Makes `key` due at `when`, in place of any deadline it had.
    pub fn set(&mut self, key: K, when: Instant) {
        self.cancel(key);
        let position = self.entries.partition_point(|&(other, _)| other > when);
        self.entries.insert(position, (when, key));
    }

    /// Forgets the deadline of `key`, if it has one.
    pub fn cancel(&mut self, key: K) {
        self.entries.retain(|&(_, other)| other != key);
    }

    /// The deadline of `key`.
    #[must_use]
    pub fn get(&self, key: K) -> Option<Instant> {
        self.entries.iter().find(|&&(_, other)| other == key).map(|&(when, _)| when)
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.entries.last().map(|&(when, _)| when)
    }

    /// Gives up memory that is not needed now.
    pub fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Takes off one key that is due at `now`, the earliest first.
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
        let &(when, key) = self.entries.last()?;
        if when > now {
            return None;
        }
        self.entries.pop();
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn due_keys_come_earliest_first_and_only_when_due() {
        let start = Instant::now();
        let mut deadlines = Deadlines::default();
        deadlines.set('b', start + Duration::from_secs(2));
        deadlines.set('a', start + Duration::from_secs(1));
        deadlines.set('c', start + Duration::from_secs(3));
        assert_eq!(deadlines.next(), Some(start + Duration::from_secs(1)));
        assert_eq!(deadlines.pop_due(start), None);
        let later = start + Duration::from_secs(2);
        assert_eq!(deadlines.pop_due(later), Some('a'));
        assert_eq!(deadlines.pop_due(later), Some('b'));
        assert_eq!(deadlines.pop_due(later), None);
    }

    #[test]
    fn a_key_has_one_deadline() {
        let start = Instant::now();
        let mut deadlines = Deadlines::default();
        deadlines.set('a', start + Duration::from_secs(1));
        deadlines.set('a', start + Duration::from_secs(5));
        assert_eq!(deadlines.next(), Some(start + Duration::from_secs(5)));
        assert_eq!(deadlines.get('a'), Some(start + Duration::from_secs(5)));
        deadlines.cancel('a');
        assert_eq!(deadlines.next(), None);
    }
}
