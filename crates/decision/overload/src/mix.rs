//! A hash of numbers, and conversion to whole numbers.

/// Spreads a number over all 64 bits: the finalizer of splitmix64. Every bit of
/// the input changes about half of the output.
#[inline]
pub(crate) const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The whole part, clamped to the range of `u64`; zero for NaN.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "casts of this kind saturate")]
pub(crate) const fn whole(number: f64) -> u64 {
    number as u64
}
