//! The keys whose counts a destination lacks.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::sharded_map::FingerprintHasher;
use crate::fingerprint::Fingerprint;

/// The keys whose counts are to be reported to one destination. There are no more than keys that are counted.
#[derive(Debug, Default)]
pub(crate) struct PendingKeys {
    keys: Mutex<HashSet<Fingerprint, BuildHasherDefault<FingerprintHasher>>>,
    /// Keys that were taken and are not done yet.
    in_flight: AtomicUsize,
    /// The connections that the remote had opened at the last beat.
    connections: AtomicU64,
    /// Whether an answer revealed that the remote has lost counts.
    has_lost: AtomicBool,
}

impl PendingKeys {
    /// Adds keys.
    pub(crate) fn extend(&self, keys: impl IntoIterator<Item = Fingerprint>) {
        self.keys.lock().extend(keys);
    }

    /// Takes up to `most` keys. The caller must pass them to [`Self::finish`]. They are removed before they are
    /// reported, so that a key that changes meanwhile is added again.
    pub(crate) fn take(&self, most: usize) -> Vec<Fingerprint> {
        let mut keys = self.keys.lock();
        let taken: Vec<Fingerprint> = keys.iter().take(most).copied().collect();
        for key in &taken {
            keys.remove(key);
        }
        self.in_flight.fetch_add(taken.len(), Ordering::Relaxed);
        taken
    }

    /// Ends the report of `taken` keys; those that are not done stay pending.
    pub(crate) fn finish(&self, taken: usize, unfinished: impl IntoIterator<Item = Fingerprint>) {
        self.extend(unfinished);
        self.in_flight.fetch_sub(taken, Ordering::Relaxed);
    }

    /// How many keys are pending or in flight.
    pub(crate) fn len(&self) -> usize {
        self.keys.lock().len() + self.in_flight.load(Ordering::Relaxed)
    }

    /// Notes that the remote has lost counts.
    pub(crate) fn note_loss(&self) {
        self.has_lost.store(true, Ordering::Relaxed);
    }

    /// Whether everything has to be reported once more: the remote has lost counts, or may have, because it has had a
    /// new connection since.
    pub(crate) fn take_repeat(&self, connections: u64) -> bool {
        let before = self.connections.swap(connections, Ordering::Relaxed);
        self.has_lost.swap(false, Ordering::Relaxed) || (before > 0 && before != connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Fingerprinter;

    fn keys(count: u64) -> Vec<Fingerprint> {
        (0..count).map(|number| Fingerprinter::seeded(1).of(1, &number.to_le_bytes())).collect()
    }

    #[test]
    fn a_key_that_changes_while_it_is_reported_is_pending_again() {
        let pending = PendingKeys::default();
        pending.extend(keys(3));
        let taken = pending.take(10);
        assert_eq!((taken.len(), pending.len()), (3, 3), "in flight");
        pending.extend([taken[0]]);
        pending.finish(taken.len(), []);
        assert_eq!(pending.take(10), [taken[0]]);
    }

    #[test]
    fn keys_that_were_not_confirmed_stay() {
        let pending = PendingKeys::default();
        pending.extend(keys(3));
        let taken = pending.take(2);
        assert_eq!(taken.len(), 2);
        pending.finish(2, taken);
        assert_eq!(pending.take(10).len(), 3);
    }

    #[test]
    fn everything_is_repeated_after_a_loss_and_after_a_new_connection() {
        let pending = PendingKeys::default();
        assert!(!pending.take_repeat(1), "the first connection");
        assert!(!pending.take_repeat(1));
        assert!(pending.take_repeat(2));
        assert!(!pending.take_repeat(2));
        pending.note_loss();
        assert!(pending.take_repeat(2));
        assert!(!pending.take_repeat(2));
    }
}
