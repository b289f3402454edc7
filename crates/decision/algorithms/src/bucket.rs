//! The state and the arithmetic of both bucket algorithms.
//!
//! A bucket measures use in time: one unit takes `period / amount`, the interval, and a full bucket
//! is worth its units times the interval. The state of a key is the instant at which its debt will
//! be paid.
//!
//! Whole nanoseconds are too coarse once an amount nears a billion a second (bytes), so time is
//! counted in ticks of down to 2⁻¹⁴ ns: as fine as the bucket's capacity allows in 62 bits. The
//! interval is rounded up, so a bucket never admits more than its parameters allow.

mod one_unit;

use crate::check_input::CheckInput;
use crate::decision::{Decision, Retry};
use crate::period::Period;
use crate::time::{Nanos, Timestamp};
pub use one_unit::UnitOutcome;
use one_unit::UnitStep;

/// The finest tick is 2⁻¹⁴ ns.
const FINEST: u32 = 14;
/// The ticks of the largest bucket: the sum of two stays far from overflow.
const TICKS_MAX: u64 = 1 << 62;

/// A clock beyond this instant, in the year 2262, is broken and taken to stand still there, so that
/// a debt can always be added to it.
const LATEST: Timestamp = Timestamp::from_nanos(1 << 63);

/// A key's state in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BucketState {
    /// When the debt will be paid, in whole nanoseconds.
    full_at: Timestamp,
    /// The fraction of a nanosecond beyond that, 14 bits, and the [`Scale`], 18 bits.
    part: u32,
}

impl BucketState {
    /// From when on the state is as good as unused.
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

/// The numbers that a bucket calculates with, for stores that decide in another language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketTerms {
    /// The lowest 18 bits of a state's part; see [`BucketState::to_parts`].
    pub scale: u32,
    /// Ticks in a nanosecond, as a power of two; at most 14.
    pub shift: u32,
    /// Ticks that one unit takes; at least one.
    pub interval: u64,
    /// Ticks that the whole bucket takes.
    pub capacity: u64,
    /// A longer debt in nanoseconds is not believed.
    pub longest: u64,
}

/// The debt of a key at one instant, in the bucket's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Debt(u64);

/// The arithmetic of a bucket: how many units it holds, and how fast they come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketMeter {
    /// How much refills per period.
    pub(crate) amount: u64,
    pub(crate) period: Period,
    /// The units of a full bucket.
    pub(crate) units: u64,
    /// Ticks in a nanosecond, as a power of two.
    shift: u32,
    /// Ticks that one unit takes; at least one.
    interval: u64,
    /// 2⁶⁴ divided by the interval: turns a division into a multiplication.
    reciprocal: u64,
    /// Ticks that the whole bucket takes.
    capacity: u64,
    /// The longest debt that is believed, in nanoseconds: the capacity plus the lag that a late
    /// reading of the clock explains.
    longest: u64,
    scale: Scale,
    pub(crate) unit: UnitStep,
}

impl BucketMeter {
    /// A bucket of `units` that refills at `amount` per `period`; with an amount of zero it holds
    /// nothing. Units beyond those that refill in 146 years are cut off.
    pub(crate) fn new(amount: u64, period: Period, units: u64) -> Self {
        let nanos = u128::from(units) * u128::from(period.as_nanos()) / u128::from(amount.max(1));
        // Leaves one bit for the rounding of the interval.
        let shift = nanos.leading_zeros().saturating_sub(67).min(FINEST);
        BucketMeter::in_ticks(amount, period, units, shift)
    }

    /// The same bucket in the ticks of `other`, which keeps the state.
    pub(crate) fn in_ticks_of(&self, other: &BucketMeter) -> Self {
        BucketMeter::in_ticks(self.amount, self.period, self.units, other.shift)
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
        BucketMeter {
            amount,
            period,
            units,
            shift,
            interval,
            reciprocal: u64::MAX / interval,
            capacity,
            longest,
            scale,
            unit: UnitStep::new(shift, interval, capacity, longest, scale),
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

    /// The state in terms of this bucket and this instant.
    #[inline]
    pub(crate) fn settle(&self, state: Option<BucketState>, now: Timestamp) -> BucketState {
        self.owing(state.map_or(0, |state| self.debt(state, now).0), now)
    }

    /// Whether the cost fits, and the state after it.
    #[inline(always)]
    pub(crate) fn admit(&self, debt: Debt, input: CheckInput) -> (bool, BucketState) {
        let after = debt.0.saturating_add(self.ticks(input.cost));
        let fits = after <= self.capacity;
        (fits || input.cost == 0, self.owing(if fits { after } else { debt.0 }, input.now))
    }

    /// A settled state after `cost` more.
    pub(crate) fn charge(&self, state: BucketState, cost: u64, now: Timestamp) -> BucketState {
        let cost = self.ticks(cost).min(TICKS_MAX);
        self.owing(self.settled_debt(state, now).0.saturating_add(cost), now)
    }

    /// A settled state after `cost` is refunded.
    pub(crate) fn refund(&self, state: BucketState, cost: u64, now: Timestamp) -> BucketState {
        self.owing(self.settled_debt(state, now).0.saturating_sub(self.ticks(cost)), now)
    }

    /// How long until this debt is paid.
    #[inline]
    pub(crate) const fn wait(&self, debt: Debt) -> Nanos {
        self.nanos_ceil(debt.0)
    }

    /// The debt of any state at `now`.
    ///
    /// A state written at another rate is converted by its amount. A debt beyond the capacity is
    /// believed only as far as a late reading of the clock explains it: a larger debt comes from
    /// other parameters or from a clock that stepped back, and would block the key.
    #[inline(always)]
    pub(crate) fn debt(&self, state: BucketState, now: Timestamp) -> Debt {
        if state.scale() != self.scale {
            return Debt(self.debt_rescaled(state, now));
        }
        if state.full_at.since(now.min(LATEST)).get() > self.longest {
            return Debt(self.capacity);
        }
        self.settled_debt(state, now)
    }

    /// The debt of a settled state at `now`.
    #[inline(always)]
    pub(crate) fn settled_debt(&self, state: BucketState, now: Timestamp) -> Debt {
        let now = now.min(LATEST);
        if state.full_at < now {
            return Debt(0);
        }
        Debt(self.ticks_owed(state, state.full_at.since(now)))
    }

    /// The ticks of a debt of so many nanoseconds and the fraction in the state.
    #[inline(always)]
    fn ticks_owed(&self, state: BucketState, nanos: Nanos) -> u64 {
        let fraction = u64::from(state.fraction() >> (FINEST - self.shift));
        (nanos.get() << self.shift) + fraction
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
        // Intervals of weeks would overflow the product; their lowest bits are below the rounding
        // of the scale.
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

    /// The decision on a unit that was taken; `after` is the state after it.
    #[inline(always)]
    pub(crate) fn unit_admission(&self, after: BucketState, now: Timestamp) -> Decision {
        self.admission(1, self.ticks_owed(after, after.full_at.since(now)))
    }

    /// The decision on a cost at this debt.
    #[inline(always)]
    pub(crate) fn decision(&self, debt: Debt, input: CheckInput) -> Decision {
        let debt = debt.0;
        let cost = self.ticks(input.cost);
        let after = debt.saturating_add(cost);
        if after <= self.capacity {
            return self.admission(input.cost, after);
        }
        if input.cost == 0 {
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

    /// The decision on an admitted cost; `debt` includes it and is at most the capacity.
    #[inline(always)]
    fn admission(&self, cost: u64, debt: u64) -> Decision {
        let left = self.units_in(self.capacity.wrapping_sub(debt));
        Decision::admitted(self.units, cost, left, self.nanos_ceil(debt))
    }

    /// The ticks of `cost` units; more than any capacity if the product overflows.
    #[inline(always)]
    fn ticks(&self, cost: u64) -> u64 {
        cost.saturating_mul(self.interval)
    }

    /// Whole units in these ticks, which are at most the capacity.
    #[inline(always)]
    fn units_in(&self, ticks: u64) -> u64 {
        let units = ((u128::from(ticks) * u128::from(self.reciprocal)) >> 64) as u64;
        // The reciprocal is rounded down, so this may be one unit short.
        units + u64::from(ticks - units * self.interval >= self.interval)
    }

    /// Whole nanoseconds that cover `ticks`.
    #[inline(always)]
    const fn nanos_ceil(&self, ticks: u64) -> Nanos {
        Nanos::new((ticks + ((1 << self.shift) - 1)) >> self.shift)
    }
}

/// The interval at which a state was written, in 18 bits.
///
/// Stored in the state so that use, which is kept as time, can be converted to an amount after the
/// limit's rate has changed. Seven bits of exponent and eleven of mantissa keep the amount to one
/// part in two thousand, rounded in the caller's favour. Rates that are closer than that share a
/// scale; a change between them keeps the time, and the amount may grow by one part in two
/// thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Scale(u32);

const MANTISSA_BITS: u32 = 11;
const MANTISSA: u32 = (1 << MANTISSA_BITS) - 1;

impl Scale {
    const BITS: u32 = 18;

    /// The scale of an interval in the finest ticks, rounded up to 18 bits.
    fn of(interval: u64) -> Self {
        let interval = interval.max(1);
        // A leading one and eleven more bits; smaller intervals are exact.
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
            // No interval is longer, but foreign bits might encode one.
            _ => (mantissa | (1 << MANTISSA_BITS)) << (exponent - 1).min(64),
        }
    }
}

#[cfg(test)]
mod tests;
