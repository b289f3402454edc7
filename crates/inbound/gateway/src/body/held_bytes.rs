//! The memory that responses hold for clients that have not taken them yet.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Frames up to this size are not counted: they are the rule, and each count costs an atomic operation that all workers
/// share.
const SMALL_BYTES: usize = 4 * 1024;

/// Above this sum, upstreams are read in small pieces, so that thousands of clients that do not read hold little each.
const BUDGET_BYTES: usize = 8 * 1024 * 1024;

/// The sum of the large frames that all gateways of the process hold.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Whether responses hold more memory than they should.
pub(crate) fn is_over_budget() -> bool {
    HELD.load(Ordering::Relaxed) > BUDGET_BYTES
}

/// The frame that a body returned last, counted until the next one is asked for.
#[derive(Debug)]
pub(super) struct HeldFrame {
    counted: usize,
}

impl HeldFrame {
    pub(super) const fn new() -> Self {
        HeldFrame { counted: 0 }
    }

    /// Counts a frame of this size instead of the one before.
    pub(super) fn replace(&mut self, bytes: usize) {
        let counted = if bytes > SMALL_BYTES { bytes } else { 0 };
        if self.counted != counted {
            HELD.fetch_add(counted, Ordering::Relaxed);
            HELD.fetch_sub(self.counted, Ordering::Relaxed);
            self.counted = counted;
        }
    }
}

impl Drop for HeldFrame {
    fn drop(&mut self) {
        self.replace(0);
    }
}
