//! Keys by the time at which their last slice needs a successor.
//!
//! A key that is used a few times per slice may not be used just before the slice expires. Without this queue no request
//! would notice in time, and the next one would wait for the remote. Each key is queued once.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tidegate_algorithms::Timestamp;

use crate::fingerprint::Fingerprint;

/// Keys by the time at which to check them. Keys that were renewed in one batch share it.
#[derive(Debug)]
pub(super) struct ExpiryQueue {
    queued: Mutex<QueuedKeys>,
    keys_max: usize,
}

#[derive(Debug, Default)]
struct QueuedKeys {
    keys: BTreeMap<Timestamp, Vec<Fingerprint>>,
    count: usize,
}

impl ExpiryQueue {
    /// A queue of at most `keys_max` keys.
    pub(super) fn new(keys_max: usize) -> Self {
        ExpiryQueue { queued: Mutex::default(), keys_max }
    }

    /// Queues a key; returns false if the queue is full. The caller ensures that a key is queued only once.
    pub(super) fn push(&self, key: Fingerprint, at: Timestamp) -> bool {
        let mut queued = self.queued.lock();
        let fits = queued.count < self.keys_max;
        if fits {
            queued.count += 1;
            queued.keys.entry(at).or_default().push(key);
        }
        fits
    }

    /// Takes the keys whose time has come, at most `keys_max`.
    pub(super) fn due(&self, keys_max: usize, now: Timestamp) -> Vec<Fingerprint> {
        let mut queued = self.queued.lock();
        let mut due = Vec::new();
        while let Some(mut first) = queued.keys.first_entry() {
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
        queued.count = queued.count.saturating_sub(due.len());
        due
    }

    /// Removes all keys: the clock was set back.
    pub(super) fn clear(&self) {
        *self.queued.lock() = QueuedKeys::default();
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
        assert_eq!(queue.due(2, Timestamp::from_secs(3)), [key(1), key(2)]);
        assert_eq!(queue.due(2, Timestamp::from_secs(3)), [key(3)]);
        assert!(queue.push(key(5), Timestamp::from_secs(4)));
        queue.clear();
        assert_eq!(queue.due(2, Timestamp::from_secs(9)), []);
    }
}
