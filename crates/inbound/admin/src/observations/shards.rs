//! State that many threads change briefly.
//!
//! A verdict must not wait for its observer. A thread that finds its shard locked spins for about as long as a change
//! takes, then gives up; lost changes are counted.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

const SHARDS: usize = 8;
/// A change takes about a hundred nanoseconds; so do this many spins.
const SPINS_MAX: u32 = 64;

/// Shards of a state, each for a part of the hashes.
#[derive(Debug)]
pub(super) struct Shards<T> {
    shards: [PaddedShard<T>; SHARDS],
    missed: AtomicU64,
}

/// A shard in cache lines of its own, to avoid false sharing.
#[derive(Debug)]
#[repr(align(64))]
struct PaddedShard<T>(Mutex<T>);

impl<T> Shards<T> {
    pub(super) fn new(mut shard: impl FnMut() -> T) -> Self {
        Shards {
            shards: std::array::from_fn(|_| PaddedShard(Mutex::new(shard()))),
            missed: AtomicU64::new(0),
        }
    }

    /// One shard's part of a total, rounded up.
    pub(super) const fn share_of(whole: usize) -> usize {
        whole.div_ceil(SHARDS)
    }

    /// Changes the shard of this hash, or counts a miss.
    pub(super) fn change(&self, hash: u64, change: impl FnOnce(&mut T)) {
        let [first, ..] = hash.to_be_bytes();
        let Some(PaddedShard(shard)) = self.shards.get(usize::from(first) % SHARDS) else { return };
        for _ in 0..SPINS_MAX {
            if let Some(mut shard) = shard.try_lock() {
                return change(&mut shard);
            }
            std::hint::spin_loop();
        }
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `look` with every shard; waits for each lock.
    pub(super) fn each(&self, mut look: impl FnMut(&mut T)) {
        for PaddedShard(shard) in &self.shards {
            look(&mut shard.lock());
        }
    }

    /// How many changes were lost.
    pub(super) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_all_threads_are_there_or_counted_as_missed() {
        const EACH: u64 = 20_000;
        let shards: Shards<u64> = Shards::new(|| 0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let shards = &shards;
                scope.spawn(move || {
                    for number in 0..EACH {
                        let hash = (number ^ thread).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        shards.change(hash, |count| *count += 1);
                    }
                });
            }
        });
        let mut counted = 0;
        shards.each(|count| counted += *count);
        assert_eq!(counted + shards.missed(), 4 * EACH);
        assert!(counted > 0);
    }

    #[test]
    fn a_shard_that_stays_taken_is_missed_rather_than_waited_for() {
        let shards: Shards<u64> = Shards::new(|| 0);
        let held = shards.shards[0].0.lock();
        shards.change(0, |count| *count += 1);
        drop(held);
        assert_eq!(shards.missed(), 1);
        shards.change(0, |count| *count += 1);
        let mut counted = 0;
        shards.each(|count| counted += *count);
        assert_eq!(counted, 1);
    }
}
