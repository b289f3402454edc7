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
    aux: u32,
    word: u64,
}

/// The 96 bits of a slot's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits {
    /// The upper part, its kind in the two topmost bits.
    word: u64,
    /// The lower part.
    aux: u32,
}

impl Bits {
    /// Those of an empty slot.
    pub(super) const NONE: Bits = Bits { word: 0, aux: 0 };
}

/// A state that fits into a slot, mostly.
pub(super) trait Pack: Sized {
    /// The state in these bits, if it is of this kind.
    fn unpack(bits: Bits) -> Option<Self>;

    /// The state as bits, if it fits.
    fn pack(self) -> Option<Bits>;
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
        let Bits { word, aux } = packed.to_bits();
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

    /// The state.
    #[inline]
    pub(super) const fn bits(&self) -> Bits {
        Bits { word: self.word, aux: self.aux }
    }

    /// Puts a state that is another one.
    #[inline]
    pub(super) fn put(&mut self, bits: Bits) {
        (self.word, self.aux) = (bits.word, bits.aux);
    }

    /// Puts a state.
    #[inline]
    pub(super) fn set(&mut self, bits: Bits) {
        // A refusal mostly changes nothing. Not writing then leaves the cache
        // line with all who read it.
        if self.bits() != bits {
            (self.word, self.aux) = (bits.word, bits.aux);
        }
    }

    /// What the slot holds; [`Packed::Shelved`] of nothing for an empty one.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes the packed form apart")]
    pub(super) fn packed(&self) -> Packed {
        let bits = self.bits();
        if let Some(bucket) = BucketState::unpack(bits) {
            Packed::Small(SmallState::Bucket(bucket))
        } else if let Some(window) = WindowState::unpack(bits) {
            Packed::Small(SmallState::Window(window))
        } else {
            Packed::Shelved((self.word & PAYLOAD) as u32)
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
        let bits = match state {
            SmallState::Bucket(bucket) => bucket.pack(),
            SmallState::Window(window) => window.pack(),
        };
        bits.map(|_| Packed::Small(state))
    }

    /// The bits of a state that [`Packed::of`] said has some.
    #[inline]
    pub(super) fn to_bits(self) -> Bits {
        let bits = match self {
            Packed::Small(SmallState::Bucket(bucket)) => bucket.pack(),
            Packed::Small(SmallState::Window(window)) => window.pack(),
            Packed::Shelved(place) => {
                Some(Bits { word: (KIND_SHELVED << KIND_SHIFT) | u64::from(place), aux: 0 })
            }
        };
        bits.unwrap_or_default()
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
