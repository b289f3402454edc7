//! The state of one key under one limit.

use crate::bucket::BucketState;
use crate::check_input::Holder;
use crate::concurrency::SlotsState;
use crate::fixed_window::WindowState;
use crate::sliding_log::LogState;
use crate::sliding_window::SlicesState;
use crate::soft::SoftState;
use crate::time::Timestamp;

/// The state of one key under one limit.
///
/// A limit that finds the state of another algorithm treats the key as unused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing: the key was never used, or was reset.
    #[default]
    Unused,
    /// A token bucket or a leaky bucket.
    Bucket(BucketState),
    /// A fixed window.
    Window(WindowState),
    /// A sliding window.
    Slices(SlicesState),
    /// A sliding log.
    Log(LogState),
    /// A concurrency limit.
    Slots(SlotsState),
    /// Any of these with a soft allowance.
    Soft(Box<SoftState>),
}

impl State {
    /// From when on the state is as good as [`State::Unused`] and may be dropped;
    /// [`Timestamp::MAX`] if never.
    pub fn idle_at(&self) -> Timestamp {
        match self {
            State::Unused => Timestamp::EPOCH,
            State::Bucket(state) => state.idle_at(),
            State::Window(state) if state.count == 0 => Timestamp::EPOCH,
            State::Window(state) => state.end,
            State::Slices(state) => state.idle_at(),
            State::Log(state) => state.idle_at(),
            State::Slots(state) => state.idle_at(),
            State::Soft(state) => state.idle_at(),
        }
    }

    /// Whether it is the state of a concurrency limit without a soft allowance.
    pub const fn is_slots(&self) -> bool {
        matches!(self, State::Slots(_))
    }

    /// Gives back up to `count` slots of a holder, whatever the limit is by now. Needs no more
    /// memory.
    pub fn release(&mut self, holder: Holder, count: u64) {
        let state = match self {
            State::Soft(soft) => &mut soft.inner,
            hard => hard,
        };
        if let State::Slots(state) = state {
            state.release(holder, count);
        }
    }

    /// Bytes that the state has on the heap.
    pub fn heap_bytes(&self) -> usize {
        match self {
            State::Unused | State::Bucket(_) | State::Window(_) => 0,
            State::Slices(state) => state.heap_bytes(),
            State::Log(state) => state.heap_bytes(),
            State::Slots(state) => state.heap_bytes(),
            State::Soft(state) => state.heap_bytes(),
        }
    }

    /// Heap bytes that the next charge may add.
    pub fn growth_bytes(&self) -> usize {
        match self {
            State::Unused | State::Bucket(_) | State::Window(_) | State::Slices(_) => 0,
            State::Log(state) => state.growth_bytes(),
            State::Slots(state) => state.growth_bytes(),
            State::Soft(state) => state.inner.growth_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::period::Period;
    use crate::tests::harness::{Harness, ms};
    use crate::{Concurrency, FixedWindow, SlidingLog, SlidingWindow, TokenBucket, Window};

    /// The figures of `docs/algorithms.md`.
    #[test]
    fn a_state_takes_the_documented_bytes() {
        assert_eq!(size_of::<State>(), 48);
        let heap = |limit: Limit| {
            let mut t = Harness::new(limit);
            for _ in 0..64 {
                t.spend(1);
                t.advance(ms(1));
            }
            t.state.heap_bytes()
        };
        let minute = Period::MINUTE;
        assert_eq!(heap(Limit::new(TokenBucket::new(64, minute, 64))), 0);
        assert_eq!(heap(Limit::new(FixedWindow::new(64, Window::Every(minute)))), 0);
        let window = |slices| Limit::new(SlidingWindow::new(64, minute, slices).unwrap());
        assert_eq!(heap(window(1)), 0);
        assert_eq!(heap(window(64)), 65 * 8);
        assert_eq!(heap(Limit::new(SlidingLog::new(64, minute).unwrap())), 64 * 16);
        assert_eq!(heap(Limit::new(Concurrency::new(64, minute).unwrap())), 64 * 24);
    }
}
