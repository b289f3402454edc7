//! A bounded map by fingerprint, in shards of one lock each.
//!
//! Beside its values each shard keeps a list of marked keys, so that background
//! work visits what has changed and not everything there is.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::fingerprint::Fingerprint;

/// Enough that threads seldom meet at one lock, few enough to visit them all
/// several times a second.
const SHARDS: usize = 32;

/// Values by fingerprint.
#[derive(Debug)]
pub(crate) struct Keyed<V> {
    shards: Box<[Padded<V>]>,
    /// Where the next one who takes turns begins.
    hand: AtomicUsize,
}

/// One part of the values.
#[derive(Debug)]
pub(crate) struct Part<V> {
    pub(crate) values: HashMap<Fingerprint, V, BuildHasherDefault<Plain>>,
    /// Keys that background work should visit; each at most once, which the values' own flags see to.
    pub(crate) marked: Vec<Fingerprint>,
    values_max: usize,
}

/// A part in cache lines of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Padded<V>(Mutex<Part<V>>);

impl<V> Part<V> {
    /// Whether one more value may be put.
    pub(crate) fn has_room(&self) -> bool {
        self.values.len() < self.values_max
    }
}

impl<V> Keyed<V> {
    /// A map for about so many values at the most.
    pub(crate) fn new(values_max: usize) -> Self {
        let values_max = values_max.div_ceil(SHARDS).max(1);
        let part = || Part { values: HashMap::default(), marked: Vec::new(), values_max };
        Keyed {
            shards: (0..SHARDS).map(|_| Padded(Mutex::new(part()))).collect(),
            hand: AtomicUsize::new(0),
        }
    }

    /// The part that a key lies in.
    #[inline]
    pub(crate) fn lock(&self, key: Fingerprint) -> MutexGuard<'_, Part<V>> {
        self.shards[key.shard_bits() as usize % SHARDS].0.lock()
    }

    /// Every part, one after the other.
    pub(crate) fn parts(&self) -> impl Iterator<Item = MutexGuard<'_, Part<V>>> {
        self.shards.iter().map(|shard| shard.0.lock())
    }

    /// Every part, each time beginning with another one: who takes only so
    /// much must not always take it from the first.
    pub(crate) fn parts_in_turn(&self) -> impl Iterator<Item = MutexGuard<'_, Part<V>>> {
        let begin = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let around = self.shards.iter().cycle().skip(begin).take(SHARDS);
        around.map(|shard| shard.0.lock())
    }

    /// Some of the parts: the `turn`th of `turns`.
    pub(crate) fn parts_of_turn(
        &self,
        turn: usize,
        turns: usize,
    ) -> impl Iterator<Item = MutexGuard<'_, Part<V>>> {
        let turns = turns.max(1);
        self.shards.iter().skip(turn % turns).step_by(turns).map(|shard| shard.0.lock())
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.parts().map(|part| part.values.len()).sum()
    }
}

/// A fingerprint is a hash already.
#[derive(Debug, Default)]
pub(crate) struct Plain(u64);

impl Hasher for Plain {
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
        let map = Keyed::new(100);
        let fingerprinter = Fingerprinter::seeded(1);
        for number in 0..10_000_u64 {
            let key = fingerprinter.of(1, &number.to_le_bytes());
            let mut part = map.lock(key);
            if part.has_room() {
                part.values.insert(key, number);
            }
        }
        assert_eq!(map.len(), 4 * SHARDS, "a hundred in 32 parts, rounded up");
    }

    #[test]
    fn turns_visit_every_part_once() {
        let map = Keyed::<()>::new(1);
        let visited: usize = (0..8).map(|turn| map.parts_of_turn(turn, 8).count()).sum();
        assert_eq!(visited, SHARDS);
    }
}
