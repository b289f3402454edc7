//! Which of several copies of a counter this thread counts in.
//!
//! Threads that count in one word take it from each other at every request.
//! Here each has a copy, as long as there are enough, and readers add them up.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Copies of every counter. More threads than this share.
pub(crate) const SHARDS: usize = 16;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The copy of the calling thread.
#[inline]
pub(crate) fn shard() -> usize {
    // A thread that is ending has no cell any more, and counts in the first.
    SHARD
        .try_with(|cell| {
            if cell.get() == usize::MAX {
                cell.set(THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS);
            }
            cell.get()
        })
        .unwrap_or(0)
}
