//! A bounded map by fingerprint, in shards with one lock each.
//!
//! Each shard also keeps a list of marked keys, so that background work visits the entries that changed instead of all.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::fingerprint::Fingerprint;

/// Enough that threads seldom contend for a lock; few enough to visit all several times a second.
const SHARDS: usize = 32;

/// Values by fingerprint.
#[derive(Debug)]
pub(crate) struct ShardedMap<V> {
    shards: Box<[PaddedShard<V>]>,
    /// Where the next [`Self::shards_in_rotation`] starts.
    next_start: AtomicUsize,
}

/// One shard.
#[derive(Debug)]
pub(crate) struct MapShard<V> {
    pub(crate) values: HashMap<Fingerprint, V, BuildHasherDefault<FingerprintHasher>>,
    /// Keys that background work should visit; a flag in the value ensures that each is listed once.
    pub(crate) marked: Vec<Fingerprint>,
    values_max: usize,
}

/// A shard in its own cache lines.
#[derive(Debug)]
#[repr(align(64))]
struct PaddedShard<V>(Mutex<MapShard<V>>);

impl<V> MapShard<V> {
    /// Whether one more value may be inserted.
    pub(crate) fn has_room(&self) -> bool {
        self.values.len() < self.values_max
    }

    /// The value of a key, inserted if it is new; `None` if it is new and there is no room.
    pub(crate) fn get_or_insert(
        &mut self,
        key: Fingerprint,
        new: impl FnOnce() -> V,
    ) -> Option<&mut V> {
        if !self.has_room() && !self.values.contains_key(&key) {
            return None;
        }
        Some(self.values.entry(key).or_insert_with(new))
    }
}

impl<V> ShardedMap<V> {
    /// A map of about `values_max` values.
    pub(crate) fn new(values_max: usize) -> Self {
        let values_max = values_max.div_ceil(SHARDS).max(1);
        let shard = || MapShard { values: HashMap::default(), marked: Vec::new(), values_max };
        ShardedMap {
            shards: (0..SHARDS).map(|_| PaddedShard(Mutex::new(shard()))).collect(),
            next_start: AtomicUsize::new(0),
        }
    }

    /// Locks the shard of a key.
    #[inline]
    pub(crate) fn lock(&self, key: Fingerprint) -> MutexGuard<'_, MapShard<V>> {
        self.shards[key.shard_bits() as usize % SHARDS].0.lock()
    }

    /// Changes the value of a key, if there is one.
    #[inline]
    pub(crate) fn with<T>(&self, key: Fingerprint, act: impl FnOnce(&mut V) -> T) -> Option<T> {
        self.lock(key).values.get_mut(&key).map(act)
    }

    /// Locks every shard, one after the other.
    pub(crate) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, MapShard<V>>> {
        self.shards.iter().map(|shard| shard.0.lock())
    }

    /// Like [`Self::shards`], but starts at another shard each time, so that work with a maximum does not always come
    /// from the first.
    pub(crate) fn shards_in_rotation(&self) -> impl Iterator<Item = MutexGuard<'_, MapShard<V>>> {
        let begin = self.next_start.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let around = self.shards.iter().cycle().skip(begin).take(SHARDS);
        around.map(|shard| shard.0.lock())
    }

    /// Locks every `turns`th shard, starting at number `turn`.
    pub(crate) fn shards_of_turn(
        &self,
        turn: usize,
        turns: usize,
    ) -> impl Iterator<Item = MutexGuard<'_, MapShard<V>>> {
        let turns = turns.max(1);
        self.shards.iter().skip(turn % turns).step_by(turns).map(|shard| shard.0.lock())
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.shards().map(|shard| shard.values.len()).sum()
    }
}

/// Uses the bits of a fingerprint, which is a hash already.
#[derive(Debug, Default)]
pub(crate) struct FingerprintHasher(u64);

impl Hasher for FingerprintHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write_u64(&mut self, bits: u64) {
        self.0 = self.0.rotate_left(32) ^ bits;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Fingerprinter;

    #[test]
    fn holds_no_more_than_it_may() {
        let map = ShardedMap::new(100);
        let fingerprinter = Fingerprinter::seeded(1);
        for number in 0..10_000_u64 {
            let key = fingerprinter.of(1, &number.to_le_bytes());
            let mut shard = map.lock(key);
            if shard.has_room() {
                shard.values.insert(key, number);
            }
        }
        assert_eq!(map.len(), 4 * SHARDS, "a hundred in 32 shards, rounded up");
    }

    #[test]
    fn turns_visit_every_shard_once() {
        let map = ShardedMap::<()>::new(1);
        let visited: usize = (0..8).map(|turn| map.shards_of_turn(turn, 8).count()).sum();
        assert_eq!(visited, SHARDS);
    }
}
