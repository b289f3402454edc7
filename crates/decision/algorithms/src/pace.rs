//! How the two bucket algorithms count time.
//!
//! A bucket spends time: one unit of cost takes `period / amount` of it, and a
//! bucket of so many units holds so much time. What a key has used is kept as
//! the instant at which nothing will be owed any more.
//!
//! Whole nanoseconds are too coarse for that once an amount nears a billion a
//! second (bytes), so time is counted in ticks of down to 2⁻¹⁴ ns: as fine as
//! the bucket's capacity leaves room for in 62 bits. The time of one unit is
//! rounded up, so a bucket never admits more than its parameters say.

mod unit;

use crate::ask::Ask;
use crate::decision::{Decision, Retry};
use crate::period::Period;
use crate::time::{Nanos, Timestamp};
pub use unit::Taken;
use unit::Unit;

/// The finest tick is this power of a half nanosecond.
const FINEST: u32 = 14;
/// The most ticks that a bucket holds: sums of two stay far from overflow.
const TICKS_MAX: u64 = 1 << 62;

/// A clock that shows a later instant than this, in the year 2262, is broken:
/// it is taken to stand still, so that what is owed can always be added to it.
const LATEST: Timestamp = Timestamp::from_nanos(1 << 63);

/// What a bucket remembers of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BucketState {
    /// When nothing will be owed any more, in whole nanoseconds.
    full_at: Timestamp,
    /// The part of a nanosecond beyond that, 14 bits, and the [`Scale`], 18 bits.
    part: u32,
}

impl BucketState {
    /// When the state stops mattering.
    #[inline]
    pub const fn idle_at(self) -> Timestamp {
        let beyond = (self.part >> Scale::BITS != 0) as u64;
        self.full_at.after(Nanos::new(beyond))
    }

    /// The state as plain numbers.
    #[inline]
    pub const fn to_parts(self) -> (Timestamp, u32) {
        (self.full_at, self.part)
    }

    /// The state from its plain numbers.
    #[inline]
    pub const fn from_parts(full_at: Timestamp, part: u32) -> Self {
        BucketState { full_at, part }
    }

    #[inline]
    const fn scale(self) -> Scale {
        Scale(self.part & ((1 << Scale::BITS) - 1))
    }

    #[inline]
    const fn fraction(self) -> u32 {
        self.part >> Scale::BITS
    }
}

/// The plain numbers that a bucket counts by, for stores that decide in another language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketTerms {
    /// Names the pace in the lowest 18 bits of a state's part.
    pub scale: u32,
    /// Ticks in a nanosecond, as a power of two; at most 14.
    pub shift: u32,
    /// Ticks that one unit takes; at least one.
    pub interval: u64,
    /// Ticks that the whole bucket takes.
    pub capacity: u64,
    /// Nanoseconds owed beyond this are not believed.
    pub longest: u64,
}

/// What a bucket owes at one instant, in its own ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Debt(u64);

/// A bucket of so many units that refills at so many per period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// How much the bucket holds.
    units: u64,
    /// Ticks in a nanosecond, as a power of two.
    shift: u32,
    /// Ticks that one unit takes; at least one.
    interval: u64,
    /// 2⁶⁴ divided by the interval: a division is then a multiplication.
    reciprocal: u64,
    /// Ticks that the whole bucket takes.
    capacity: u64,
    /// The longest that nanoseconds owed are believed: the capacity, and what
    /// a late reading of the clock explains.
    longest: u64,
    scale: Scale,
    unit: Unit,
}

impl Pace {
    /// A bucket of `units` that refills at `amount` per `period`; an amount of
    /// zero holds nothing. More units than refill in 146 years, or than can be
    /// told apart, are cut to that.
    pub(crate) fn new(amount: u64, period: Period, units: u64) -> Self {
        let nanos = u128::from(units) * u128::from(period.as_nanos()) / u128::from(amount.max(1));
        // Leaves a bit for the rounding of the interval.
        let shift = nanos.leading_zeros().saturating_sub(67).min(FINEST);
        Pace::in_ticks(amount, period, units, shift)
    }

    /// The same, in the ticks of another bucket that keeps the state.
    pub(crate) fn in_ticks_of(&self, other: &Pace, amount: u64, period: Period) -> Self {
        Pace::in_ticks(amount, period, self.units, other.shift)
    }

    fn in_ticks(amount: u64, period: Period, units: u64, shift: u32) -> Self {
        let ticks = |shift: u32| {
            let period = u128::from(period.as_nanos()) << shift;
            let ticks = period.div_ceil(u128::from(amount.max(1)));
            u64::try_from(ticks).unwrap_or(TICKS_MAX).min(TICKS_MAX)
        };
        let interval = ticks(shift);
        let units = if amount == 0 { 0 } else { units.min(TICKS_MAX / interval) };
        let capacity = units * interval;
        let longest = (capacity >> shift) + period.lag_max().get();
        let scale = Scale::of(ticks(FINEST));
        Pace {
            units,
            shift,
            interval,
            reciprocal: u64::MAX / interval,
            capacity,
            longest,
            scale,
            unit: Unit::new(shift, interval, capacity, longest, scale),
        }
    }

    pub(crate) const fn terms(&self) -> BucketTerms {
        BucketTerms {
            scale: self.scale.0,
            shift: self.shift,
            interval: self.interval,
            capacity: self.capacity,
            longest: self.longest,
        }
    }

    /// How much the bucket holds.
    #[inline]
    pub(crate) const fn units(&self) -> u64 {
        self.units
    }

    /// The state in line with this pace and this instant.
    #[inline]
    pub(crate) fn settle(&self, state: Option<BucketState>, now: Timestamp) -> BucketState {
        self.owing(state.map_or(0, |state| self.debt(state, now).0), now)
    }

    /// Judges a settled state; charges nothing.
    #[inline]
    pub(crate) fn decide(&self, state: BucketState, ask: Ask) -> Decision {
        self.tell(Debt(self.owed(state, ask.now)), ask)
    }

    /// Charges: whether the cost fits, and the state after that.
    #[inline(always)]
    pub(crate) fn admit(&self, debt: Debt, ask: Ask) -> (bool, BucketState) {
        let after = debt.0.saturating_add(self.ticks(ask.cost));
        let fits = after <= self.capacity;
        (fits || ask.cost == 0, self.owing(if fits { after } else { debt.0 }, ask.now))
    }

    /// A settled state after `cost` more.
    pub(crate) fn charge(&self, state: BucketState, cost: u64, now: Timestamp) -> BucketState {
        let cost = self.ticks(cost).min(TICKS_MAX);
        self.owing(self.owed(state, now).saturating_add(cost), now)
    }

    /// A settled state after `cost` is given back.
    pub(crate) fn refund(&self, state: BucketState, cost: u64, now: Timestamp) -> BucketState {
        self.owing(self.owed(state, now).saturating_sub(self.ticks(cost)), now)
    }

    /// How long until nothing is owed.
    #[inline]
    pub(crate) fn wait(&self, state: BucketState, now: Timestamp) -> Nanos {
        self.nanos_ceil(self.owed(state, now))
    }

    /// How long until such a debt is paid.
    #[inline]
    pub(crate) const fn wait_for(&self, debt: Debt) -> Nanos {
        self.nanos_ceil(debt.0)
    }

    /// What any state owes at `now`.
    ///
    /// Usage kept under another pace is read back as an amount. More than the
    /// capacity is believed only as far as a late reading of the clock explains
    /// it: a larger debt comes from a smaller limit or from a clock that
    /// stepped back, and would freeze the key.
    #[inline(always)]
    pub(crate) fn debt(&self, state: BucketState, now: Timestamp) -> Debt {
        if state.scale() != self.scale {
            return Debt(self.debt_rescaled(state, now));
        }
        if state.full_at.since(now.min(LATEST)).get() > self.longest {
            return Debt(self.capacity);
        }
        Debt(self.owed(state, now))
    }

    /// What a settled state owes at `now`, in ticks.
    #[inline(always)]
    fn owed(&self, state: BucketState, now: Timestamp) -> u64 {
        let now = now.min(LATEST);
        if state.full_at < now {
            return 0;
        }
        let nanos = state.full_at.since(now).get();
        let fraction = u64::from(state.fraction() >> (FINEST - self.shift));
        (nanos << self.shift) + fraction
    }

    #[cold]
    fn debt_rescaled(&self, state: BucketState, now: Timestamp) -> u64 {
        let now = now.min(LATEST);
        if state.full_at < now {
            return 0;
        }
        let nanos = u128::from(state.full_at.since(now).get());
        let finest = (nanos << FINEST) | u128::from(state.fraction());
        let (from, to) = (state.scale().interval(), u128::from(self.interval));
        let whole = (finest / from).saturating_mul(to);
        // Intervals of weeks would overflow the product; their lowest bits are
        // nothing beside what the scale has rounded already.
        let excess = (128 - from.leading_zeros()).saturating_sub(64);
        let part = ((finest % from) >> excess) * to / (from >> excess);
        let ticks = u64::try_from(whole.saturating_add(part)).unwrap_or(u64::MAX);
        ticks.min(self.capacity)
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "masked to fourteen bits")]
    fn owing(&self, debt: u64, now: Timestamp) -> BucketState {
        let beyond = (debt & ((1 << self.shift) - 1)) as u32;
        let fraction = beyond << (FINEST - self.shift);
        BucketState {
            full_at: now.min(LATEST).after(Nanos::new(debt >> self.shift)),
            part: (fraction << Scale::BITS) | self.scale.0,
        }
    }

    /// Takes one unit in one go; `None`, and nothing said, where that takes more thought.
    #[inline(always)]
    pub(crate) fn take_unit(&self, state: BucketState, now: Timestamp) -> Option<Taken> {
        self.unit.take(state, now)
    }

    /// The decision on a unit that was taken; `after` is the state after it.
    #[inline(always)]
    pub(crate) fn tell_taken(&self, after: BucketState, now: Timestamp) -> Decision {
        let nanos = after.full_at.as_nanos().wrapping_sub(now.as_nanos());
        let owed = (nanos << self.shift).wrapping_add(u64::from(after.part) >> (32 - self.shift));
        let left = self.units_in(self.capacity.wrapping_sub(owed));
        Decision::admitted(self.units, 1, left, after.idle_at().since(now))
    }

    /// The decision on a unit that did not fit: less than one is left.
    #[inline(always)]
    pub(crate) fn tell_refused_unit(&self, state: BucketState, now: Timestamp) -> Decision {
        let retry = Retry::After(self.unit.wait(state, now));
        Decision::refused(self.units, 0, retry, state.idle_at().since(now))
    }

    /// The whole decision.
    #[inline(always)]
    pub(crate) fn tell(&self, debt: Debt, ask: Ask) -> Decision {
        let debt = debt.0;
        let cost = self.ticks(ask.cost);
        let after = debt.saturating_add(cost);
        if after <= self.capacity {
            let left = self.units_in(self.capacity - after);
            return Decision::admitted(self.units, ask.cost, left, self.nanos_ceil(after));
        }
        if ask.cost == 0 {
            return Decision::admitted(self.units, 0, 0, self.nanos_ceil(debt));
        }
        let retry = if cost > self.capacity {
            Retry::Never
        } else {
            Retry::After(self.nanos_ceil(after - self.capacity))
        };
        let left = self.units_in(self.capacity.saturating_sub(debt));
        Decision::refused(self.units, left, retry, self.nanos_ceil(debt))
    }

    /// Ticks that `cost` units take; more than any capacity when they cannot be counted.
    #[inline(always)]
    fn ticks(&self, cost: u64) -> u64 {
        cost.saturating_mul(self.interval)
    }

    /// Whole units in at most a capacity of ticks.
    #[inline(always)]
    fn units_in(&self, ticks: u64) -> u64 {
        let units = ((u128::from(ticks) * u128::from(self.reciprocal)) >> 64) as u64;
        // The reciprocal is rounded down, which loses at most one unit.
        units + u64::from(ticks - units * self.interval >= self.interval)
    }

    /// Whole nanoseconds that cover `ticks`.
    #[inline(always)]
    const fn nanos_ceil(&self, ticks: u64) -> Nanos {
        Nanos::new((ticks + ((1 << self.shift) - 1)) >> self.shift)
    }
}

/// How long one unit took when a bucket's state was written, in 18 bits.
///
/// Written into the state so that usage, which is kept as time, can be read
/// back as an amount after the limit's rate has changed. Seven bits of exponent
/// and eleven of mantissa: the amount is kept to one part in two thousand,
/// rounded in the caller's favour. Rates that are closer than that share a
/// scale; between them time stays as it is, and the amount may come out as much
/// larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Scale(u32);

const MANTISSA_BITS: u32 = 11;
const MANTISSA: u32 = (1 << MANTISSA_BITS) - 1;

impl Scale {
    const BITS: u32 = 18;

    /// The scale of an interval in the finest ticks, rounded up to what 18 bits can say.
    fn of(interval: u64) -> Self {
        let interval = interval.max(1);
        // A leading one and eleven more bits; smaller intervals are said exactly.
        let exponent = (64 - interval.leading_zeros()).saturating_sub(MANTISSA_BITS + 1);
        let mut mantissa = interval.div_ceil(1 << exponent);
        let mut exponent = exponent;
        if mantissa >> (MANTISSA_BITS + 1) != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
        let mantissa = u32::try_from(mantissa).unwrap_or(MANTISSA);
        if mantissa <= MANTISSA {
            Scale(mantissa)
        } else {
            Scale(((exponent + 1) << MANTISSA_BITS) | (mantissa & MANTISSA))
        }
    }

    /// The interval that this scale stands for, in the finest ticks; at least one.
    fn interval(self) -> u128 {
        let exponent = self.0 >> MANTISSA_BITS;
        let mantissa = u128::from(self.0 & MANTISSA);
        match exponent {
            0 => mantissa.max(1),
            // No interval is longer; bits from elsewhere might say one.
            _ => (mantissa | (1 << MANTISSA_BITS)) << (exponent - 1).min(64),
        }
    }
}

#[cfg(test)]
mod tests;
