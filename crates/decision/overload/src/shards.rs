//! Counters with a copy for each thread.
//!
//! Threads that count in one word contend for its cache line. So the first sixteen threads own a
//! copy each, and readers add the copies up. Only its owner writes to a copy, so counting is a
//! load and a store, which cost a fraction of an atomic addition. All other threads share one
//! copy and add atomically. When a thread ends, the next one takes over its copy with its counts.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Copies of every counter.
pub(crate) const SHARDS: usize = OWNED + 1;

const OWNED: usize = 16;
/// The copy of all threads without their own.
const SHARED: usize = OWNED;
const UNKNOWN: usize = usize::MAX;

/// A bit for each copy that has an owner.
static TAKEN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(UNKNOWN) };
    static OWNERSHIP: Ownership = Ownership::take();
}

/// The copy of the calling thread. Must not be passed to another thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shard(usize);

impl Shard {
    #[inline]
    pub(crate) fn of_thread() -> Self {
        match SHARD.get() {
            UNKNOWN => Shard::first(),
            shard => Shard(shard),
        }
    }

    #[cold]
    fn first() -> Self {
        // A thread that is ending has no copy any more.
        let shard = OWNERSHIP.try_with(|ownership| ownership.0).unwrap_or(SHARED);
        SHARD.set(shard);
        Shard(shard)
    }

    /// This thread's copy.
    #[inline]
    pub(crate) fn of<T>(self, copies: &[T; SHARDS]) -> &T {
        &copies[self.0]
    }

    /// Adds to a counter of this thread's copy and returns its value before.
    #[inline]
    pub(crate) fn add(self, count: &AtomicU64, more: u64) -> u64 {
        if self.0 == SHARED {
            return count.fetch_add(more, Ordering::Relaxed);
        }
        let before = count.load(Ordering::Relaxed);
        count.store(before.wrapping_add(more), Ordering::Relaxed);
        before
    }

    /// Adds one to a 32-bit counter of this thread's copy and returns its value before.
    #[inline]
    pub(crate) fn add_one(self, count: &AtomicU32) -> u32 {
        if self.0 == SHARED {
            return count.fetch_add(1, Ordering::Relaxed);
        }
        let before = count.load(Ordering::Relaxed);
        count.store(before.wrapping_add(1), Ordering::Relaxed);
        before
    }
}

/// Owns a copy while the thread lives.
struct Ownership(usize);

impl Ownership {
    fn take() -> Self {
        let lowest = |taken: u32| taken.trailing_ones();
        // The next owner must see the counts of the last one.
        let taken = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, |taken| {
            ((lowest(taken) as usize) < OWNED).then(|| taken | 1 << lowest(taken))
        });
        Ownership(taken.map_or(SHARED, |before| lowest(before) as usize))
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        // Other thread-local destructors may still count.
        SHARD.set(SHARED);
        if self.0 != SHARED {
            TAKEN.fetch_and(!(1 << self.0), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// More than there are copies.
    const THREADS: usize = OWNED + 8;
    const EACH: u64 = 10_000;

    #[test]
    fn nothing_is_lost_whoever_counts_and_however_many_threads_come_and_go() {
        let copies: [AtomicU64; SHARDS] = std::array::from_fn(|_| AtomicU64::new(0));
        let small: [AtomicU32; SHARDS] = std::array::from_fn(|_| AtomicU32::new(0));
        for _ in 0..3 {
            let all_there = Barrier::new(THREADS);
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        let shard = Shard::of_thread();
                        all_there.wait();
                        for _ in 0..EACH {
                            shard.add(shard.of(&copies), 2);
                            shard.add_one(shard.of(&small));
                        }
                    });
                }
            });
        }
        let expected = 3 * EACH * THREADS as u64;
        let sum: u64 = copies.iter().map(|copy| copy.load(Ordering::Relaxed)).sum();
        let small: u64 = small.iter().map(|copy| u64::from(copy.load(Ordering::Relaxed))).sum();
        assert_eq!((sum, small), (2 * expected, expected));
    }

    #[test]
    fn no_two_threads_own_the_same_copy() {
        let (all_there, all_seen) = (Barrier::new(THREADS), Barrier::new(THREADS));
        let shards: Vec<usize> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        all_there.wait();
                        let shard = Shard::of_thread().0;
                        all_seen.wait();
                        shard
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for owned in 0..OWNED {
            assert!(shards.iter().filter(|shard| **shard == owned).count() <= 1, "{shards:?}");
        }
        assert!(shards.contains(&SHARED), "there are more threads than copies");
    }

    #[test]
    fn a_thread_keeps_its_copy() {
        let first = Shard::of_thread().0;
        assert!((0..100).all(|_| Shard::of_thread().0 == first));
    }
}
