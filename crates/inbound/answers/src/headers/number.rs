//! Numbers in decimal.
//!
//! A response has about eight, and `format!` took as long for them as deciding. Eight digits are computed at a time in
//! one machine word: no tables, loops or bounds checks. The values of small numbers are made once for the process.

use std::sync::LazyLock;

use http::HeaderValue;
use tidegate_engine::Nanos;

/// The largest number whose field value is made once.
const SHARED_MAX: u64 = 300;

static SECONDS: LazyLock<Vec<HeaderValue>> =
    LazyLock::new(|| (0..=SHARED_MAX).map(HeaderValue::from).collect());
static MILLIS: LazyLock<Vec<HeaderValue>> =
    LazyLock::new(|| (0..=SHARED_MAX).map(|secs| HeaderValue::from(secs * 1_000)).collect());

/// A number as a field value.
pub(crate) fn number_value(number: u64) -> HeaderValue {
    shared(&SECONDS, number).unwrap_or_else(|| HeaderValue::from(number))
}

/// A wait in whole milliseconds, rounded up.
pub(crate) fn pushback_value(wait: Nanos) -> HeaderValue {
    let millis = wait.get().div_ceil(1_000_000);
    let seconds = millis.is_multiple_of(1_000).then_some(millis / 1_000);
    let known = seconds.and_then(|seconds| shared(&MILLIS, seconds));
    known.unwrap_or_else(|| HeaderValue::from(millis))
}

fn shared(values: &[HeaderValue], number: u64) -> Option<HeaderValue> {
    values.get(usize::try_from(number).ok()?).cloned()
}

/// The digits of one word.
const DIGITS: usize = 8;
/// The first number of nine digits.
const EIGHT_DIGITS: u64 = 100_000_000;
/// The character `0` in each byte of a word.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Appends the decimal digits of a number.
pub fn write_number(out: &mut Vec<u8>, number: u64) {
    let digits = digits(number % EIGHT_DIGITS);
    if number >= EIGHT_DIGITS {
        write_number(out, number / EIGHT_DIGITS);
        out.extend_from_slice(&(digits | ZEROS).to_le_bytes());
        return;
    }
    // The last digit stays, even if it is zero.
    let leading = (digits.trailing_zeros() / 8).min(7);
    // All eight are copied, because a copy of constant length needs no call of memcpy.
    let begun = out.len();
    out.extend_from_slice(&((digits | ZEROS) >> (8 * leading)).to_le_bytes());
    out.truncate(begun + DIGITS - leading as usize);
}

/// The eight digits of a number, one in each byte, the first in the lowest.
///
/// A number of eight digits is cut into two of four, these into four of two, and those
/// into single digits. Each cut divides all parts of the word at once, by multiplying: what is
/// cut is small enough for the product to stay within its part and to be exact.
const fn digits(number: u64) -> u64 {
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((fours * 5_243) >> 19) & 0x0000_007f_0000_007f;
    let twos = hundreds | ((fours - hundreds * 100) << 16);
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((twos - tens * 10) << 8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(number: u64) -> String {
        let mut out = Vec::new();
        write_number(&mut out, number);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_smallest_and_the_largest_are_written_in_full() {
        assert_eq!(written(0), "0");
        assert_eq!(written(u64::MAX), "18446744073709551615");
    }

    proptest! {
        #[test]
        fn a_number_is_written_as_formatting_would(number: u64, bits in 0..64_u32) {
            let number = number >> bits;
            prop_assert_eq!(written(number), number.to_string());
        }
    }
}
