//! Returns freed memory to the system.
//!
//! Compiling rules takes several times the memory of the result, and a growing table of counters frees its old one. The
//! allocator keeps freed memory for a second, and returns it only when a thread that used it ends or a large block is
//! freed. Here that may not happen for days, so a short-lived thread is started now and then; it takes about ten
//! microseconds.

use std::hint::black_box;
use std::thread;

/// Ticks between two threads, at one tick a second: longer than the allocator keeps memory.
const TICKS: u32 = 2;

/// Starts a thread at every other tick.
#[derive(Debug, Default)]
pub(super) struct MemoryTrimmer {
    ticks: u32,
}

impl MemoryTrimmer {
    /// Counts a tick, and returns memory when it is time.
    pub(super) fn tick(&mut self) {
        if self.is_due() {
            let thread = thread::Builder::new().name("tidegate-tidy".to_owned());
            // If no thread can be started, memory is returned later.
            drop(thread.spawn(|| drop(black_box(Box::new(0_u8)))));
        }
    }

    fn is_due(&mut self) -> bool {
        self.ticks = (self.ticks + 1) % TICKS;
        self.ticks == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_at_every_other_tick() {
        let mut trimmer = MemoryTrimmer::default();
        assert_eq!([(); 6].map(|()| trimmer.is_due()), [false, true, false, true, false, true]);
    }
}
