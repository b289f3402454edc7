//! One key in 24 bytes.
//!
//! 96 bits of fingerprint, and 96 bits of state. Buckets and fixed windows are packed into them;
//! every other state is in the shard's [`Overflow`](super::overflow::Overflow), and the slot holds
//! its index. A state too large for the packed form (a window that ends after the year 2109, a
//! count above 4.5 × 10¹⁵) goes there too, so packing loses nothing.

use tidegate_algorithms::{BucketState, State, Timestamp, WindowState};

use crate::fingerprint::Fingerprint;

/// One slot of the table. A fingerprint's lower bits are never zero, so zero there means empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    low: u64,
    high: u32,
    aux: u32,
    word: u64,
}

/// The 96 bits of a slot's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits {
    /// The upper part, with the kind of state in the two highest bits.
    word: u64,
    /// The lower part.
    aux: u32,
}

impl Bits {
    /// The bits of an empty slot.
    pub(super) const NONE: Bits = Bits { word: 0, aux: 0 };

    /// The packed form of a state, if it has one.
    #[inline]
    pub(super) fn of(state: &State) -> Option<Bits> {
        match state {
            State::Bucket(bucket) => bucket.pack(),
            State::Window(window) => window.pack(),
            State::Unused | State::Slices(_) | State::Log(_) | State::Slots(_) | State::Soft(_) => {
                None
            }
        }
    }

    /// The index of a state in the overflow area.
    pub(super) fn of_overflow(index: u32) -> Bits {
        Bits { word: (KIND_OVERFLOW << KIND_SHIFT) | u64::from(index), aux: 0 }
    }
}

/// A state that fits into a slot unless its numbers are too large.
pub(super) trait Pack: Sized {
    /// Reads the state, if the bits are of this kind.
    fn unpack(bits: Bits) -> Option<Self>;

    /// Writes the state as bits, if it fits.
    fn pack(self) -> Option<Bits>;
}

/// The meaning of a slot's 96 bits of state.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// The state itself.
    Inline(State),
    /// The index of the state in the overflow area.
    Overflow(u32),
}

const KIND_SHIFT: u32 = 62;
const PAYLOAD: u64 = (1 << KIND_SHIFT) - 1;
const KIND_WINDOW: u64 = 2;
const KIND_OVERFLOW: u64 = 3;

const MILLISECOND: u64 = 1_000_000;
/// A window's end in milliseconds takes 42 bits, its count 52.
const END_BITS: u32 = 42;
const COUNT_BITS: u32 = 52;
const COUNT_HIGH_BITS: u32 = COUNT_BITS - 32;

impl Slot {
    pub(super) const EMPTY: Slot = Slot { low: 0, high: 0, aux: 0, word: 0 };

    #[inline]
    pub(super) const fn new(key: Fingerprint, state: Bits) -> Self {
        let (low, high) = key.stored();
        let Bits { word, aux } = state;
        Slot { low, high, aux, word }
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.low == 0
    }

    #[inline]
    pub(super) const fn holds(&self, key: Fingerprint) -> bool {
        let (low, high) = key.stored();
        self.low == low && self.high == high
    }

    /// The key's first slot in a table of `capacity` slots.
    #[inline]
    pub(super) const fn home(&self, capacity: usize) -> usize {
        home(self.low, capacity)
    }

    /// The state as bits.
    #[inline]
    pub(super) const fn bits(&self) -> Bits {
        Bits { word: self.word, aux: self.aux }
    }

    /// Replaces the state by another one.
    #[inline]
    pub(super) fn overwrite(&mut self, bits: Bits) {
        (self.word, self.aux) = (bits.word, bits.aux);
    }

    /// Replaces the state, if it differs.
    #[inline]
    pub(super) fn write(&mut self, bits: Bits) {
        // Most refusals change nothing. Without a write the cache line stays shared.
        if self.bits() != bits {
            (self.word, self.aux) = (bits.word, bits.aux);
        }
    }

    /// The state; a meaningless [`SlotState::Overflow`] for an empty slot.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes the packed form apart")]
    pub(super) fn state(&self) -> SlotState {
        let bits = self.bits();
        if let Some(bucket) = BucketState::unpack(bits) {
            SlotState::Inline(State::Bucket(bucket))
        } else if let Some(window) = WindowState::unpack(bits) {
            SlotState::Inline(State::Window(window))
        } else {
            SlotState::Overflow((self.word & PAYLOAD) as u32)
        }
    }
}

impl Pack for BucketState {
    #[inline(always)]
    fn unpack(bits: Bits) -> Option<Self> {
        let full_at = Timestamp::from_nanos(bits.word);
        (bits.word <= PAYLOAD).then(|| Self::from_parts(full_at, bits.aux))
    }

    #[inline(always)]
    fn pack(self) -> Option<Bits> {
        let (full_at, aux) = self.to_parts();
        let word = full_at.as_nanos();
        (word <= PAYLOAD).then_some(Bits { word, aux })
    }
}

impl Pack for WindowState {
    #[inline(always)]
    fn unpack(bits: Bits) -> Option<Self> {
        let payload = bits.word & PAYLOAD;
        let high = payload & ((1 << COUNT_HIGH_BITS) - 1);
        let count = (high << 32) | u64::from(bits.aux);
        let end = Timestamp::from_nanos((payload >> COUNT_HIGH_BITS) * MILLISECOND);
        (bits.word >> KIND_SHIFT == KIND_WINDOW).then_some(WindowState { end, count })
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "takes the count apart")]
    fn pack(self) -> Option<Bits> {
        let (end, part) = (self.end.as_nanos() / MILLISECOND, self.end.as_nanos() % MILLISECOND);
        let fits = part == 0 && end < 1 << END_BITS && self.count < 1 << COUNT_BITS;
        let payload = (end << COUNT_HIGH_BITS) | (self.count >> 32);
        let word = (KIND_WINDOW << KIND_SHIFT) | payload;
        fits.then_some(Bits { word, aux: self.count as u32 })
    }
}

/// A key's first slot in a table of `capacity` slots: the upper half of its lower bits, scaled to
/// the capacity, which need not be a power of two.
#[inline]
pub(super) const fn home(low: u64, capacity: usize) -> usize {
    (((low >> 32) * capacity as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_algorithms::{CheckInput, FixedWindow, Limit, Period, TokenBucket, Window};

    use super::*;
    use crate::fingerprint::Fingerprinter;

    /// The state after one check, and what comes back from a slot.
    fn roundtrip(limit: &Limit, cost: u64, now: u64) -> (State, SlotState) {
        let mut state = State::Unused;
        limit.check(&mut state, CheckInput::new(cost, Timestamp::from_nanos(now)));
        let key = Fingerprinter::seeded(1).of(2, b"key");
        let slot = Slot::new(key, Bits::of(&state).expect("fits"));
        assert!(slot.holds(key) && !slot.is_empty());
        (state, slot.state())
    }

    proptest! {
        #[test]
        fn a_bucket_comes_back_as_it_was(
            amount in 1..u64::MAX, cost in 1..1000_u64, now in 0..1_u64 << 61,
        ) {
            let limit = Limit::new(TokenBucket::new(amount, Period::HOUR, 1000));
            let (before, after) = roundtrip(&limit, cost, now);
            prop_assert_eq!(SlotState::Inline(before), after);
        }

        #[test]
        fn a_window_comes_back_as_it_was(
            count in 1..1_u64 << COUNT_BITS, now in 0..1_u64 << 61, millis in 1..10_000_000_u64,
        ) {
            let period = Period::new(std::time::Duration::from_millis(millis)).unwrap();
            let limit = Limit::new(FixedWindow::new(u64::MAX, Window::Every(period)));
            let (before, after) = roundtrip(&limit, count, now);
            prop_assert_eq!(SlotState::Inline(before), after);
        }
    }

    #[test]
    fn states_that_do_not_fit_are_not_packed() {
        let window = |end, count| Bits::of(&State::Window(WindowState { end, count }));
        let far = Timestamp::from_nanos(u64::MAX - u64::MAX % MILLISECOND);
        assert_eq!(window(far, 1), None);
        assert_eq!(window(Timestamp::from_secs(1), 1 << COUNT_BITS), None);
        assert_eq!(window(Timestamp::from_nanos(1_000_001), 1), None);
        let far = BucketState::from_parts(Timestamp::MAX, 0);
        assert_eq!(Bits::of(&State::Bucket(far)), None);
    }
}
