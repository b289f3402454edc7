//! Gives memory back to the system.
//!
//! Compiling rules takes several times the memory of what comes out of it, and
//! a table of counters that grows frees what it had. The allocator keeps
//! what was freed for a second, in case it is wanted again, and looks at what it
//! kept only when a thread ends that has used it, or when a large block is
//! freed. Here that may not happen for days. So now and then a thread is started
//! for just that; it takes some ten microseconds.

use std::hint::black_box;
use std::thread;

/// Looks from one time to the next. Longer than the allocator keeps memory,
/// where a look is taken each second.
const LOOKS: u32 = 2;

/// Counts looks.
#[derive(Debug, Default)]
pub(super) struct Tidying {
    looks: u32,
}

impl Tidying {
    /// Takes a look, and gives memory back when it is time.
    pub(super) fn look(&mut self) {
        if self.is_due() {
            let thread = thread::Builder::new().name("tidegate-tidy".to_owned());
            // Without a thread to be had, memory stays for longer. That is all.
            drop(thread.spawn(|| drop(black_box(Box::new(0_u8)))));
        }
    }

    fn is_due(&mut self) -> bool {
        self.looks = (self.looks + 1) % LOOKS;
        self.looks == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_at_every_other_look() {
        let mut tidying = Tidying::default();
        assert_eq!([(); 6].map(|()| tidying.is_due()), [false, true, false, true, false, true]);
    }
}
