//! Numbers in decimal, without the detour over formatting.
//!
//! An answer has eight or so; formatting them took as long as deciding. Eight digits
//! at a time, all of them in one word: without tables, loops and checks of bounds.

/// As many digits as are in one word.
const DIGITS: usize = 8;
/// What eight digits count up to.
const EIGHT_DIGITS: u64 = 100_000_000;
/// The character for nothing, in each byte of a word.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Appends the decimal digits of a number.
pub fn write_number(out: &mut Vec<u8>, number: u64) {
    let digits = digits(number % EIGHT_DIGITS);
    if number >= EIGHT_DIGITS {
        write_number(out, number / EIGHT_DIGITS);
        out.extend_from_slice(&(digits | ZEROS).to_le_bytes());
        return;
    }
    // The last one stays, also if it is nothing.
    let leading = (digits.trailing_zeros() / 8).min(7);
    // All of them, since so many at once are copied without a call.
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
