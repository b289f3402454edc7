//! The lock of a shard.
//!
//! A shard is locked for one lookup and a few additions, mostly without contention, so the cost of
//! locking and unlocking matters. Unlocking is a plain store: a second atomic exchange would cost
//! as much as looking up the key.
//!
//! The price: unlocking wakes no waiter. A waiter polls, with pauses that get longer, then yields
//! its processor between polls, and at last sleeps, so that a preempted lock holder gets a
//! processor whatever the priorities of both threads are.

use std::thread;
use std::time::Duration;

use spinning_top::Spinlock;
use spinning_top::guard::SpinlockGuard;

use super::shard::Shard;

/// Spins of a waiter's first pause, about as long as a few decisions; each pause is twice as long
/// as the one before. Polling without pauses takes the cache line from the lock holder, which is
/// then several times slower.
const PAUSE_FIRST: u32 = 8;
/// The number of pauses; the last is about as long as waking a thread takes.
const PAUSES: u32 = 6;
/// Polls with a yield before each, before the waiter sleeps.
const YIELDS: u32 = 16;
/// Shorter than growing a shard of a megabyte, the longest time that a shard is locked.
const SLEEP: Duration = Duration::from_micros(50);

/// A shard in cache lines of its own, to prevent false sharing.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct ShardLock(Spinlock<Shard>);

/// A locked shard; dropping it unlocks.
pub(super) type LockedShard<'s> = SpinlockGuard<'s, Shard>;

impl ShardLock {
    pub(super) const fn new(shard: Shard) -> Self {
        ShardLock(Spinlock::new(shard))
    }

    /// Locks the shard, waiting as long as necessary.
    #[inline(always)]
    pub(super) fn lock(&self) -> LockedShard<'_> {
        match self.try_lock() {
            Some(shard) => shard,
            None => self.wait(),
        }
    }

    /// Locks the shard if it is free. Reading first leaves the cache line to the lock holder; an
    /// atomic exchange would take it.
    #[inline(always)]
    fn try_lock(&self) -> Option<LockedShard<'_>> {
        if self.0.is_locked() { None } else { self.0.try_lock() }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> LockedShard<'_> {
        poll(|| self.try_lock())
    }
}

/// Tries until it succeeds.
fn poll<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let mut attempts: u32 = 0;
    loop {
        pause(attempts);
        if let Some(found) = attempt() {
            return found;
        }
        attempts = attempts.saturating_add(1);
    }
}

/// The pause after so many failed attempts.
#[expect(
    clippy::disallowed_methods,
    reason = "a thread that waits for a lock must let its holder run"
)]
fn pause(attempts: u32) {
    if attempts < PAUSES {
        for _ in 0..PAUSE_FIRST << attempts {
            std::hint::spin_loop();
        }
    } else if attempts < PAUSES + YIELDS {
        thread::yield_now();
    } else {
        thread::sleep(SLEEP);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_waiter_polls_until_the_shard_is_free_however_long_that_takes() {
        let mut attempts = 0;
        let found = poll(|| {
            attempts += 1;
            (attempts > PAUSES + YIELDS + 3).then_some(attempts)
        });
        assert_eq!(found, PAUSES + YIELDS + 4);
    }

    #[test]
    fn only_one_thread_has_the_shard_at_a_time_although_it_is_preempted() {
        let lock = ShardLock::new(Shard::new(0));
        let (inside, entered) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let shard = lock.lock();
                        assert!(!inside.swap(true, Ordering::Relaxed));
                        // As if the lock holder were preempted.
                        thread::yield_now();
                        entered.fetch_add(1, Ordering::Relaxed);
                        inside.store(false, Ordering::Relaxed);
                        drop(shard);
                    }
                });
            }
        });
        assert_eq!(entered.into_inner(), 800);
    }

    #[test]
    fn a_panic_of_the_lock_holder_unlocks_the_shard() {
        let lock = ShardLock::new(Shard::new(0));
        let panicked = thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _shard = lock.lock();
                panic!("the lock holder fails");
            });
            holder.join().is_err()
        });
        assert!(panicked);
        assert_eq!(lock.lock().keys(), 0);
    }
}
