//! A count in two bytes.

use serde::{Deserialize, Serialize};

/// Bits of the mantissa: counts below 2,048 are exact, others at most 0.1 % too high.
const MANTISSA_BITS: u32 = 11;

/// A count as a small floating-point number, rounded up: eleven bits of mantissa, five of exponent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CompactCount(u16);

impl CompactCount {
    /// Zero.
    pub const ZERO: CompactCount = CompactCount(0);

    /// The smallest that is at least `count`.
    pub fn at_least(count: u32) -> Self {
        let exponent = (u32::BITS - count.leading_zeros()).saturating_sub(MANTISSA_BITS);
        let up = (1_u64 << exponent) - 1;
        let mantissa = (u64::from(count) + up) >> exponent;
        // Rounding up may need one bit more: then half of it with the next exponent is exact.
        let (mantissa, exponent) = match mantissa >> MANTISSA_BITS {
            0 => (mantissa, exponent),
            _ => (mantissa >> 1, exponent + 1),
        };
        let bits = (u64::from(exponent) << MANTISSA_BITS) | mantissa;
        CompactCount(u16::try_from(bits).unwrap_or(u16::MAX))
    }

    /// The count.
    pub fn get(self) -> u32 {
        let exponent = self.0 >> MANTISSA_BITS;
        let mantissa = u64::from(self.0 & ((1 << MANTISSA_BITS) - 1));
        u32::try_from(mantissa << exponent).unwrap_or(u32::MAX)
    }

    /// The sum, rounded up.
    #[must_use]
    pub fn plus(self, other: CompactCount) -> Self {
        CompactCount::at_least(self.get().saturating_add(other.get()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_counts_are_exact() {
        for count in 0..2_048 {
            assert_eq!(CompactCount::at_least(count).get(), count);
        }
        assert_eq!(CompactCount::at_least(u32::MAX).get(), u32::MAX);
    }

    proptest! {
        #[test]
        fn a_count_is_never_too_low_and_hardly_too_high(count: u32) {
            let kept = CompactCount::at_least(count).get();
            prop_assert!(kept >= count);
            prop_assert!(f64::from(kept) <= f64::from(count) * 1.001);
        }

        #[test]
        fn the_order_is_that_of_the_counts(a: u32, b: u32) {
            prop_assert!((a <= b) <= (CompactCount::at_least(a) <= CompactCount::at_least(b)));
        }
    }
}
