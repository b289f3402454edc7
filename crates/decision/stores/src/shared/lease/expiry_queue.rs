//! Keys by the time at which their last slice needs a successor.
//!
//! A key that is used a few times per slice may not be used just before the slice expires. Without this queue no
//! request would notice in time, and the next one would wait for the remote. Each key is queued once.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tidegate_algorithms::Timestamp;

use crate::fingerprint::Fingerprint;

/// Keys by the time at which to check them.
#[derive(Debug)]
pub(super) struct ExpiryQueue {
    keys: Mutex<BTreeSet<(Timestamp, Fingerprint)>>,
    keys_max: usize,
}

impl ExpiryQueue {
    /// A queue of at most `keys_max` keys.
    pub(super) fn new(keys_max: usize) -> Self {
        ExpiryQueue { keys: Mutex::default(), keys_max }
    }

    /// Queues a key; returns false if the queue is full. The caller ensures that a key is queued only once.
    pub(super) fn push(&self, key: Fingerprint, at: Timestamp) -> bool {
        let mut keys = self.keys.lock();
        keys.len() < self.keys_max && keys.insert((at, key))
    }

    /// Takes the keys whose time has come, at most `keys_max`.
    pub(super) fn due(&self, keys_max: usize, now: Timestamp) -> Vec<Fingerprint> {
        let mut keys = self.keys.lock();
        let mut due = Vec::new();
        while due.len() < keys_max && keys.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(keys.pop_first().map(|(_, key)| key));
        }
        due
    }

    /// Removes all keys: the clock was set back.
    pub(super) fn clear(&self) {
        self.keys.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Fingerprinter;

    #[test]
    fn keys_come_when_it_is_their_time_and_once() {
        let queue = ExpiryQueue::new(4);
        let key = |number: u64| Fingerprinter::seeded(1).of(1, &number.to_le_bytes());
        for (number, second) in [(3, 3), (1, 1), (2, 3), (4, 4)] {
            assert!(queue.push(key(number), Timestamp::from_secs(second)));
        }
        assert!(!queue.push(key(5), Timestamp::EPOCH), "the queue is full");
        assert_eq!(queue.due(9, Timestamp::EPOCH), []);
        let mut same_time = [key(2), key(3)];
        same_time.sort_unstable();
        assert_eq!(queue.due(2, Timestamp::from_secs(3)), [key(1), same_time[0]]);
        assert_eq!(queue.due(2, Timestamp::from_secs(3)), [same_time[1]]);
        assert!(queue.push(key(5), Timestamp::from_secs(4)));
        queue.clear();
        assert_eq!(queue.due(2, Timestamp::from_secs(9)), []);
    }
}
