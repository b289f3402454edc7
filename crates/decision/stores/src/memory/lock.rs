//! The lock of a shard.
//!
//! A shard is held for one lookup and a few additions, and mostly nobody else
//! wants it. So what counts is the way in and out. Out of this lock is a plain
//! store: a second atomic exchange would cost as much as looking up the key.
//!
//! The price: who lets go does not learn that somebody waits, and wakes nobody.
//! Who waits looks again by itself, after pauses that get longer. Then it gives
//! its processor away between two looks, and at last it sleeps, so that a holder
//! that lost its processor gets one, whatever the priorities of both are.

use std::thread;
use std::time::Duration;

use spinning_top::Spinlock;
use spinning_top::guard::SpinlockGuard;

use super::shard::Shard;

/// Pauses of a waiter: the first is about as long as a few decisions, the last
/// about as long as waking a thread takes. One that looks all the time takes
/// the cache line from the holder, who then needs several times as long.
const PAUSE_FIRST: u32 = 8;
const PAUSES: u32 = 6;
/// Looks between which others get the processor, before the waiter sleeps.
const YIELDS: u32 = 16;
/// Less than a shard of a megabyte takes to grow, which is the longest that one is held.
const NAP: Duration = Duration::from_micros(50);

/// A shard in cache lines of its own, so that neighbours do not disturb it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct ShardLock(Spinlock<Shard>);

/// A shard that nobody else can look at.
pub(super) type Held<'s> = SpinlockGuard<'s, Shard>;

impl ShardLock {
    pub(super) const fn new(shard: Shard) -> Self {
        ShardLock(Spinlock::new(shard))
    }

    /// Waits for the shard.
    #[inline(always)]
    pub(super) fn lock(&self) -> Held<'_> {
        match self.look() {
            Some(held) => held,
            None => self.wait(),
        }
    }

    /// Takes the shard if it is free. Looking first takes nothing from a
    /// holder; trying would take the cache line.
    #[inline(always)]
    fn look(&self) -> Option<Held<'_>> {
        if self.0.is_locked() { None } else { self.0.try_lock() }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> Held<'_> {
        look_again(|| self.look())
    }
}

/// Looks until there is something.
fn look_again<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let mut looks: u32 = 0;
    loop {
        pause(looks);
        if let Some(found) = look() {
            return found;
        }
        looks = looks.saturating_add(1);
    }
}

/// The pause before a look, by how many came before it.
#[expect(clippy::disallowed_methods, reason = "who waits for a lock must let its holder run")]
fn pause(looks: u32) {
    if looks < PAUSES {
        for _ in 0..PAUSE_FIRST << looks {
            std::hint::spin_loop();
        }
    } else if looks < PAUSES + YIELDS {
        thread::yield_now();
    } else {
        thread::sleep(NAP);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    #[test]
    fn who_waits_looks_until_the_shard_is_free_however_long_that_takes() {
        let mut looks = 0;
        let found = look_again(|| {
            looks += 1;
            (looks > PAUSES + YIELDS + 3).then_some(looks)
        });
        assert_eq!(found, PAUSES + YIELDS + 4);
    }

    #[test]
    fn a_shard_is_held_by_one_thread_at_a_time_although_the_holder_stops() {
        let lock = ShardLock::new(Shard::new(0));
        let (inside, entered) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let held = lock.lock();
                        assert!(!inside.swap(true, Ordering::Relaxed));
                        // As if the processor were taken from the holder.
                        thread::yield_now();
                        entered.fetch_add(1, Ordering::Relaxed);
                        inside.store(false, Ordering::Relaxed);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(entered.into_inner(), 800);
    }

    #[test]
    fn a_panic_of_the_holder_frees_the_shard() {
        let lock = ShardLock::new(Shard::new(0));
        let panicked = thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _held = lock.lock();
                panic!("the holder fails");
            });
            holder.join().is_err()
        });
        assert!(panicked);
        assert_eq!(lock.lock().keys(), 0);
    }
}
