//! Sub-nanosecond time for the two bucket algorithms.
//!
//! A bucket spends time: a cost of one takes `period / amount` of it. Whole
//! nanoseconds are too coarse for that once an amount nears a billion a second
//! (bytes), so buckets count ticks of 2⁻¹⁴ ns. At a gigabyte a second the
//! rounding is then 0.006 %, always against the caller, and a bucket never
//! admits more than its parameters say.

use crate::period::Period;
use crate::time::{Nanos, Timestamp};

/// Ticks per nanosecond, as a power of two.
const TICK_BITS: u32 = 14;

/// A span or an instant in ticks.
pub(crate) type Ticks = u128;

/// The longest that a full bucket may take to refill: over a trillion
/// years. An instant that much later still fits beside a [`Scale`] in 128 bits.
pub(crate) const CAPACITY_MAX: Ticks = 1 << 109;

/// The largest instant that a bucket's state names.
pub(crate) const INSTANT_MAX: Ticks = (1 << (Ticks::BITS - Scale::BITS)) - 1;

pub(crate) const fn ticks_at(instant: Timestamp) -> Ticks {
    (instant.as_nanos() as Ticks) << TICK_BITS
}

pub(crate) const fn ticks_in(span: Nanos) -> Ticks {
    (span.get() as Ticks) << TICK_BITS
}

/// Whole nanoseconds that cover `ticks`, rounded up.
pub(crate) fn nanos_ceil(ticks: Ticks) -> Nanos {
    let nanos = ticks.div_ceil(1 << TICK_BITS);
    Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Ticks that one unit of cost takes, rounded up; at least one.
///
/// An amount of zero never refills; its caller refuses before this matters.
pub(crate) fn interval(amount: u64, period: Period) -> Ticks {
    let period = u128::from(period.as_nanos()) << TICK_BITS;
    period.div_ceil(u128::from(amount.max(1)))
}

/// The largest amount, up to `wanted`, that refills within [`CAPACITY_MAX`].
pub(crate) fn capacity_within(wanted: u64, interval: Ticks) -> u64 {
    u64::try_from(CAPACITY_MAX / interval).map_or(wanted, |most| wanted.min(most))
}

/// Ticks that `cost` units take. A cost beyond every capacity stays beyond it,
/// and leaves room to add it to any debt.
#[inline]
pub(crate) fn ticks_for(cost: u64, interval: Ticks) -> Ticks {
    u128::from(cost)
        .saturating_mul(interval)
        .min(CAPACITY_MAX * 2)
}

/// How many ticks one unit cost when a bucket's state was written, in 18 bits.
///
/// Written into the state so that usage, which is kept as time, can be read
/// back as an amount after the limit's rate has changed. Seven bits of exponent
/// and eleven of mantissa: the amount is kept to one part in two thousand,
/// rounded in the caller's favour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scale(u32);

const MANTISSA_BITS: u32 = 11;

/// Any interval has at most 70 bits: a product with this many more fits.
const PART_BITS: u32 = 58;

impl Scale {
    /// Bits that a [`Scale`] takes.
    pub const BITS: u32 = 18;

    /// Reads a scale back from its bits; higher bits are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        Scale(bits & ((1 << Self::BITS) - 1))
    }

    /// The scale in its low 18 bits.
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The scale of an interval, rounded up to what 18 bits can say.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "masked to the mantissa's width"
    )]
    pub(crate) fn of(interval: Ticks) -> Self {
        let exponent = (128 - interval.max(1).leading_zeros()).saturating_sub(MANTISSA_BITS + 1);
        // The leading one is stored too where nothing was shifted out, so small intervals are exact.
        let mantissa = (interval >> exponent) as u32;
        let rounded = mantissa + u32::from(interval != Ticks::from(mantissa) << exponent);
        let (mantissa, exponent) = if rounded >> (MANTISSA_BITS + 1) != 0 {
            (rounded >> 1, exponent + 1)
        } else {
            (rounded, exponent)
        };
        if mantissa >> MANTISSA_BITS == 0 {
            Scale(mantissa)
        } else {
            Scale(((exponent + 1) << MANTISSA_BITS) | (mantissa & ((1 << MANTISSA_BITS) - 1)))
        }
    }

    /// The interval that this scale stands for; at least one.
    fn interval(self) -> Ticks {
        let exponent = self.0 >> MANTISSA_BITS;
        let mantissa = self.0 & ((1 << MANTISSA_BITS) - 1);
        if exponent == 0 {
            return Ticks::from(mantissa.max(1));
        }
        Ticks::from(mantissa | (1 << MANTISSA_BITS)) << (exponent - 1).min(100)
    }

    /// The span that a debt written under this scale takes at another interval.
    pub(crate) fn rescale(self, debt: Ticks, to: Ticks) -> Ticks {
        let from = self.interval();
        let whole = (debt / from).saturating_mul(to);
        // Intervals of weeks would overflow the product; their lowest bits are
        // nothing beside what the scale has rounded already.
        let excess = (Ticks::BITS - from.leading_zeros()).saturating_sub(PART_BITS);
        let part = ((debt % from) >> excess).saturating_mul(to) / (from >> excess);
        whole.saturating_add(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_names_its_interval_within_one_part_in_two_thousand() {
        for shift in 0..70 {
            for low in [0_u128, 1, 3, 1 << (shift / 2)] {
                let interval = (1_u128 << shift) + low;
                let named = Scale::of(interval).interval();
                assert!(named >= interval, "{interval} named {named}");
                assert!(
                    named - interval <= interval / 2048 + 1,
                    "{interval} named {named}"
                );
                assert_eq!(
                    Scale::from_bits(Scale::of(interval).to_bits()),
                    Scale::of(interval)
                );
            }
        }
    }

    #[test]
    fn rescaling_to_the_same_interval_keeps_the_debt() {
        for interval in [1_u128, 7, 4096, 1 << 40] {
            let scale = Scale::of(interval);
            assert_eq!(scale.rescale(5 * interval, interval), 5 * interval);
        }
    }

    #[test]
    fn the_largest_debt_and_interval_do_not_overflow() {
        let scale = Scale::of(interval(1, Period::MAX));
        assert_eq!(scale.rescale(INSTANT_MAX, CAPACITY_MAX), u128::MAX);
        assert_eq!(Scale::of(1).rescale(u128::MAX, u128::MAX), u128::MAX);
        assert_eq!(
            Scale::from_bits(u32::MAX).rescale(u128::MAX, u128::MAX),
            u128::MAX
        );
    }

    #[test]
    fn rescaling_keeps_the_amount_for_intervals_from_a_tick_to_a_year() {
        for from_bits in 0..=69 {
            for to_bits in 0..=69 {
                let (from, to) = (1_u128 << from_bits, 1_u128 << to_bits);
                for amount in [1_u128, 2, 1000] {
                    let rescaled = Scale::of(from).rescale(amount * from, to);
                    assert_eq!(rescaled, amount * to, "{amount} from {from} to {to}");
                }
                let half = Scale::of(from).rescale(from / 2, to);
                assert!(from == 1 || half == to / 2, "half from {from} to {to}");
            }
        }
    }

    #[test]
    fn an_amount_survives_a_change_from_one_per_leap_year_to_one_per_year() {
        let leap_year = interval(1, Period::MAX);
        let year = leap_year / 366 * 365;
        let rescaled = Scale::of(leap_year).rescale(leap_year, year);
        assert!(rescaled <= year);
        assert!(year - rescaled <= year / 2048 + 1);
    }
}
