//! When slices end: keys to look at again shortly before.
//!
//! A key that is used a few times while a slice lasts may not be used just when
//! the slice is about to end. Whoever waits for a request to notice lets the
//! next one wait for the remote. So each key stands here once, by the moment at
//! which its last slice needs a successor.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tidegate_algorithms::Timestamp;

use crate::fingerprint::Fingerprint;

/// Keys by the moment at which they should be looked at. Keys that were renewed
/// in one batch share theirs.
#[derive(Debug)]
pub(super) struct Ends {
    noted: Mutex<Noted>,
    keys_max: usize,
}

#[derive(Debug, Default)]
struct Noted {
    keys: BTreeMap<Timestamp, Vec<Fingerprint>>,
    count: usize,
}

impl Ends {
    /// A list for so many keys at the most.
    pub(super) fn new(keys_max: usize) -> Self {
        Ends { noted: Mutex::default(), keys_max }
    }

    /// Notes a key, if there is a place; says whether there was. Each should be
    /// noted once, which its lease sees to.
    pub(super) fn note(&self, key: Fingerprint, at: Timestamp) -> bool {
        let mut noted = self.noted.lock();
        let fits = noted.count < self.keys_max;
        if fits {
            noted.count += 1;
            noted.keys.entry(at).or_default().push(key);
        }
        fits
    }

    /// Takes the keys whose moment has come, up to so many.
    pub(super) fn due(&self, keys_max: usize, now: Timestamp) -> Vec<Fingerprint> {
        let mut noted = self.noted.lock();
        let mut due = Vec::new();
        while let Some(mut first) = noted.keys.first_entry() {
            if *first.key() > now || due.len() >= keys_max {
                break;
            }
            let keys = first.get_mut();
            let rest = keys.len().saturating_sub(keys_max - due.len());
            due.extend(keys.drain(rest..));
            if keys.is_empty() {
                first.remove();
            }
        }
        noted.count = noted.count.saturating_sub(due.len());
        due
    }

    /// Forgets all: the clock that they were noted by was put back.
    pub(super) fn clear(&self) {
        *self.noted.lock() = Noted::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Fingerprinter;

    #[test]
    fn keys_come_when_it_is_their_time_and_once() {
        let ends = Ends::new(4);
        let key = |number: u64| Fingerprinter::seeded(1).of(1, &number.to_le_bytes());
        for (number, second) in [(3, 3), (1, 1), (2, 3), (4, 4)] {
            assert!(ends.note(key(number), Timestamp::from_secs(second)));
        }
        assert!(!ends.note(key(5), Timestamp::EPOCH), "there are no more than four places");
        assert_eq!(ends.due(9, Timestamp::EPOCH), []);
        assert_eq!(ends.due(2, Timestamp::from_secs(3)), [key(1), key(2)]);
        assert_eq!(ends.due(2, Timestamp::from_secs(3)), [key(3)]);
        assert!(ends.note(key(5), Timestamp::from_secs(4)));
        ends.clear();
        assert_eq!(ends.due(2, Timestamp::from_secs(9)), []);
    }
}
