//! Gives memory back to the system after rules were read.
//!
//! Compiling rules takes several times the memory of what comes out of it. The
//! allocator keeps what was freed for a second, in case it is wanted again, and
//! looks at what it kept only when a thread ends that has used it, or when a
//! large block is freed. Here that may not happen for days. So once the rules
//! have settled a thread is started for just that.

use std::hint::black_box;
use std::thread;

/// Looks to wait after rules were read. Longer than the allocator keeps memory
/// where a look is taken each second.
const SETTLED_AFTER: u32 = 3;

/// Notices that rules were read.
#[derive(Debug, Default)]
pub(super) struct Tidying {
    /// How often rules had been read at the last look.
    reads: u64,
    /// Looks to wait for; none while there is nothing to give back.
    wait: Option<u32>,
}

impl Tidying {
    /// Looks at how often rules were read, and gives memory back when it is time.
    pub(super) fn look(&mut self, reads: u64) {
        if self.is_due(reads) {
            let thread = thread::Builder::new().name("tidegate-tidy".to_owned());
            // Without a thread to be had, memory stays for longer. That is all.
            drop(thread.spawn(|| drop(black_box(Box::new(0_u8)))));
        }
    }

    fn is_due(&mut self, reads: u64) -> bool {
        if reads != self.reads {
            self.reads = reads;
            self.wait = Some(SETTLED_AFTER);
            return false;
        }
        let Some(wait) = self.wait.take() else { return false };
        self.wait = wait.checked_sub(1).filter(|wait| *wait > 0);
        self.wait.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_the_rules_have_settled() {
        let mut tidying = Tidying::default();
        let due = [0, 0, 1, 1, 1, 1, 1, 1].map(|reads| tidying.is_due(reads));
        assert_eq!(due, [false, false, false, false, false, true, false, false]);
    }

    #[test]
    fn rules_that_keep_changing_put_it_off() {
        let mut tidying = Tidying::default();
        let due = [1, 1, 2, 2, 3, 3, 3, 3].map(|reads| tidying.is_due(reads));
        assert_eq!(due, [false, false, false, false, false, false, false, true]);
    }
}
