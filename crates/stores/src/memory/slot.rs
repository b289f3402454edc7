//! One key in 24 bytes.
//!
//! 96 bits of fingerprint, and 96 bits of state: buckets and fixed windows are
//! packed into them, every other state lies in the shard's [`Shelf`](super::shelf::Shelf)
//! and the slot holds its place. A state too large for the packed form (a
//! window that ends in the year 2109, a count above 4.5 × 10¹⁵) goes to the
//! shelf too, so packing loses nothing.

use tidegate_algorithms::{BucketState, SmallState, Timestamp, WindowState};

use crate::fingerprint::Fingerprint;

/// One place of the table. A fingerprint's lower bits are never zero, so zero there means empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    low: u64,
    high: u32,
    /// The lower part of the state.
    aux: u32,
    /// The upper part of the state, its kind in the two topmost bits.
    word: u64,
}

/// What a slot's 96 bits of state say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packed {
    /// The state itself.
    Small(SmallState),
    /// Its place on the shelf.
    Shelved(u32),
}

const KIND_SHIFT: u32 = 62;
const PAYLOAD: u64 = (1 << KIND_SHIFT) - 1;
const KIND_BUCKET: u64 = 1;
const KIND_WINDOW: u64 = 2;
const KIND_SHELVED: u64 = 3;

const MILLISECOND: u64 = 1_000_000;
/// A window's end in milliseconds takes 42 bits, its count 52.
const END_BITS: u32 = 42;
const COUNT_BITS: u32 = 52;
const COUNT_HIGH_BITS: u32 = COUNT_BITS - 32;

impl Slot {
    pub(super) const EMPTY: Slot = Slot { low: 0, high: 0, aux: 0, word: 0 };

    #[inline]
    pub(super) fn new(key: Fingerprint, packed: Packed) -> Self {
        let (low, high) = key.stored();
        let (word, aux) = packed.to_bits();
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

    /// Where in a table of `capacity` slots the key belongs.
    #[inline]
    pub(super) const fn home(&self, capacity: usize) -> usize {
        home(self.low, capacity)
    }

    #[inline]
    pub(super) fn set(&mut self, packed: Packed) {
        (self.word, self.aux) = packed.to_bits();
    }

    /// Whether this packed state is in the slot.
    #[inline]
    pub(super) const fn has_bits(&self, word: u64, aux: u32) -> bool {
        self.word == word && self.aux == aux
    }

    /// Puts a state that is packed already.
    #[inline]
    pub(super) const fn set_bits(&mut self, word: u64, aux: u32) {
        self.word = word;
        self.aux = aux;
    }

    /// What the slot holds; [`Packed::Shelved`] of nothing for an empty one.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes the packed form apart")]
    pub(super) const fn packed(&self) -> Packed {
        let payload = self.word & PAYLOAD;
        match self.word >> KIND_SHIFT {
            KIND_BUCKET => {
                let full_at = Timestamp::from_nanos(payload);
                Packed::Small(SmallState::Bucket(BucketState::from_parts(full_at, self.aux)))
            }
            KIND_WINDOW => {
                let end = (payload >> COUNT_HIGH_BITS) * MILLISECOND;
                let high = payload & ((1 << COUNT_HIGH_BITS) - 1);
                let count = (high << 32) | self.aux as u64;
                let end = Timestamp::from_nanos(end);
                Packed::Small(SmallState::Window(WindowState { end, count }))
            }
            _ => Packed::Shelved(payload as u32),
        }
    }
}

/// Where in a table of `capacity` slots a key belongs: the upper half of its
/// lower bits, scaled to the capacity, which need not be a power of two.
#[inline]
pub(super) const fn home(low: u64, capacity: usize) -> usize {
    (((low >> 32) * capacity as u64) >> 32) as usize
}

impl Packed {
    /// The packed form of a state, if it has one.
    #[inline]
    pub(super) fn of(state: SmallState) -> Option<Packed> {
        let fits = match state {
            SmallState::Bucket(bucket) => bucket.to_parts().0.as_nanos() <= PAYLOAD,
            SmallState::Window(window) => {
                let end = window.end.as_nanos();
                end.is_multiple_of(MILLISECOND)
                    && end / MILLISECOND < 1 << END_BITS
                    && window.count < 1 << COUNT_BITS
            }
        };
        fits.then_some(Packed::Small(state))
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "`of` has checked that the parts fit")]
    pub(super) fn to_bits(self) -> (u64, u32) {
        let (kind, payload, aux) = match self {
            Packed::Small(SmallState::Bucket(bucket)) => {
                let (full_at, part) = bucket.to_parts();
                (KIND_BUCKET, full_at.as_nanos(), part)
            }
            Packed::Small(SmallState::Window(window)) => {
                let end = window.end.as_nanos() / MILLISECOND;
                let payload = (end << COUNT_HIGH_BITS) | (window.count >> 32);
                (KIND_WINDOW, payload, window.count as u32)
            }
            Packed::Shelved(place) => (KIND_SHELVED, u64::from(place), 0),
        };
        ((kind << KIND_SHIFT) | (payload & PAYLOAD), aux)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_algorithms::{Ask, FixedWindow, Limit, Period, State, TokenBucket, Window};

    use super::*;
    use crate::fingerprint::Fingerprinter;

    /// The state after one check, and what comes back from a slot.
    fn roundtrip(limit: &Limit, cost: u64, now: u64) -> (SmallState, Packed) {
        let mut state = State::Unused;
        limit.check(&mut state, Ask::new(cost, Timestamp::from_nanos(now)));
        let small = state.as_small().expect("buckets and windows are small");
        let key = Fingerprinter::seeded(1).of(2, b"key");
        let slot = Slot::new(key, Packed::of(small).expect("fits"));
        assert!(slot.holds(key) && !slot.is_empty());
        (small, slot.packed())
    }

    proptest! {
        #[test]
        fn a_bucket_comes_back_as_it_was(
            amount in 1..u64::MAX, cost in 1..1000_u64, now in 0..1_u64 << 61,
        ) {
            let limit = Limit::new(TokenBucket::new(amount, Period::HOUR, 1000));
            let (before, after) = roundtrip(&limit, cost, now);
            prop_assert_eq!(Packed::Small(before), after);
        }

        #[test]
        fn a_window_comes_back_as_it_was(
            count in 1..1_u64 << COUNT_BITS, now in 0..1_u64 << 61, millis in 1..10_000_000_u64,
        ) {
            let period = Period::new(std::time::Duration::from_millis(millis)).unwrap();
            let limit = Limit::new(FixedWindow::new(u64::MAX, Window::Every(period)));
            let (before, after) = roundtrip(&limit, count, now);
            prop_assert_eq!(Packed::Small(before), after);
        }
    }

    #[test]
    fn what_does_not_fit_is_not_packed() {
        let window = |end, count| Packed::of(SmallState::Window(WindowState { end, count }));
        let far = Timestamp::from_nanos(u64::MAX - u64::MAX % MILLISECOND);
        assert_eq!(window(far, 1), None);
        assert_eq!(window(Timestamp::from_secs(1), 1 << COUNT_BITS), None);
        assert_eq!(window(Timestamp::from_nanos(1_000_001), 1), None);
        let far = BucketState::from_parts(Timestamp::MAX, 0);
        assert_eq!(Packed::of(SmallState::Bucket(far)), None);
    }
}
