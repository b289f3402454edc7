//! One key in 24 bytes.
//!
//! 96 bits of fingerprint, and 96 bits of state: buckets and fixed windows are
//! packed into them, every other state lies in the shard's [`Shelf`](super::shelf::Shelf)
//! and the slot holds its place. A state too large for the packed form (a
//! window that ends in the year 2109, a count above 4.5 × 10¹⁵) goes to the
//! shelf too, so packing loses nothing.

use tidegate_algorithms::{BucketState, Scale, State, Timestamp, WindowState};

use crate::fingerprint::Fingerprint;

/// One place of the table.
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
    Bucket(BucketState),
    Window(WindowState),
    Shelved(u32),
}

const KIND_SHIFT: u32 = 62;
const PAYLOAD: u64 = (1 << KIND_SHIFT) - 1;
const KIND_BUCKET: u64 = 1;
const KIND_WINDOW: u64 = 2;
const KIND_SHELVED: u64 = 3;

/// Ticks of a bucket are 2⁻¹⁴ ns.
const FRACTION_BITS: u32 = 14;
const MILLISECOND: u64 = 1_000_000;
/// A window's end in milliseconds takes 42 bits, its count 52.
const END_BITS: u32 = 42;
const COUNT_BITS: u32 = 52;
const COUNT_HIGH_BITS: u32 = COUNT_BITS - 32;

impl Slot {
    pub(super) const EMPTY: Slot = Slot {
        low: 0,
        high: 0,
        aux: 0,
        word: 0,
    };

    #[inline]
    pub(super) fn new(key: Fingerprint, packed: Packed) -> Self {
        let (low, high) = key.stored();
        let (word, aux) = packed.to_bits();
        Slot {
            low,
            high,
            aux,
            word,
        }
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.word == 0
    }

    #[inline]
    pub(super) const fn holds(&self, key: Fingerprint) -> bool {
        let (low, high) = key.stored();
        self.low == low && self.high == high && self.word != 0
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

    /// What the slot holds; [`Packed::Shelved`] of nothing for an empty one.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "takes the packed form apart"
    )]
    pub(super) const fn packed(&self) -> Packed {
        let payload = self.word & PAYLOAD;
        match self.word >> KIND_SHIFT {
            KIND_BUCKET => {
                let fraction = self.aux >> Scale::BITS;
                let full_at = ((payload as u128) << FRACTION_BITS) | fraction as u128;
                Packed::Bucket(BucketState::from_parts(full_at, Scale::from_bits(self.aux)))
            }
            KIND_WINDOW => {
                let end = (payload >> COUNT_HIGH_BITS) * MILLISECOND;
                let high = payload & ((1 << COUNT_HIGH_BITS) - 1);
                let count = (high << 32) | self.aux as u64;
                Packed::Window(WindowState {
                    end: Timestamp::from_nanos(end),
                    count,
                })
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
    pub(super) fn of(state: &State) -> Option<Packed> {
        match state {
            State::Bucket(bucket) => {
                let (full_at, _) = bucket.to_parts();
                (full_at >> FRACTION_BITS <= u128::from(PAYLOAD)).then_some(Packed::Bucket(*bucket))
            }
            State::Window(window) => {
                let end = window.end.as_nanos();
                let fits = end.is_multiple_of(MILLISECOND)
                    && end / MILLISECOND < 1 << END_BITS
                    && window.count < 1 << COUNT_BITS;
                fits.then_some(Packed::Window(*window))
            }
            _ => None,
        }
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "`of` has checked that the parts fit"
    )]
    fn to_bits(self) -> (u64, u32) {
        let (kind, payload, aux) = match self {
            Packed::Bucket(bucket) => {
                let (full_at, scale) = bucket.to_parts();
                let fraction = (full_at as u32) & ((1 << FRACTION_BITS) - 1);
                let nanos = (full_at >> FRACTION_BITS) as u64;
                (
                    KIND_BUCKET,
                    nanos,
                    (fraction << Scale::BITS) | scale.to_bits(),
                )
            }
            Packed::Window(window) => {
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
    use tidegate_algorithms::{Ask, FixedWindow, Limit, Period, TokenBucket, Window};

    use super::*;
    use crate::fingerprint::Fingerprinter;

    fn roundtrip(state: &State) -> Option<Packed> {
        let key = Fingerprinter::seeded(1).of(2, b"key");
        let slot = Slot::new(key, Packed::of(state)?);
        assert!(slot.holds(key) && !slot.is_empty());
        Some(slot.packed())
    }

    proptest! {
        #[test]
        fn a_bucket_comes_back_as_it_was(
            amount in 1..u64::MAX, cost in 1..1000_u64, now in 0..1_u64 << 61,
        ) {
            let limit = Limit::new(TokenBucket::new(amount, Period::HOUR, 1000));
            let mut state = State::Unused;
            limit.check(&mut state, Ask::new(cost, Timestamp::from_nanos(now)));
            let State::Bucket(bucket) = state else { panic!("a bucket keeps a bucket's state") };
            prop_assert_eq!(roundtrip(&state), Some(Packed::Bucket(bucket)));
        }

        #[test]
        fn a_window_comes_back_as_it_was(
            count in 1..1_u64 << COUNT_BITS, now in 0..1_u64 << 61, millis in 1..10_000_000_u64,
        ) {
            let period = Period::new(std::time::Duration::from_millis(millis)).unwrap();
            let limit = Limit::new(FixedWindow::new(u64::MAX, Window::Every(period)));
            let mut state = State::Unused;
            limit.check(&mut state, Ask::new(count, Timestamp::from_nanos(now)));
            let State::Window(window) = state else { panic!("a window keeps a window's state") };
            prop_assert_eq!(roundtrip(&state), Some(Packed::Window(window)));
        }
    }

    #[test]
    fn what_does_not_fit_is_not_packed() {
        let end = Timestamp::from_nanos(u64::MAX - u64::MAX % MILLISECOND);
        assert_eq!(
            Packed::of(&State::Window(WindowState { end, count: 1 })),
            None
        );
        let end = Timestamp::from_secs(1);
        assert_eq!(
            Packed::of(&State::Window(WindowState {
                end,
                count: 1 << COUNT_BITS
            })),
            None
        );
        let end = Timestamp::from_nanos(1_000_001);
        assert_eq!(
            Packed::of(&State::Window(WindowState { end, count: 1 })),
            None
        );
        let far = BucketState::from_parts(u128::MAX, Scale::default());
        assert_eq!(Packed::of(&State::Bucket(far)), None);
    }
}
