//! Numbers in decimal, without the detour over formatting.
//!
//! An answer has eight or so; formatting them took as long as deciding. Two
//! digits at a time, because a division takes longer than a look into a table.

/// The digits of the largest number.
const DIGITS_MAX: usize = 20;

/// The numbers from 0 to 99, two digits each.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

pub(crate) fn write_number(out: &mut Vec<u8>, number: u64) {
    let count = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut digits = [0; DIGITS_MAX];
    let mut rest = number;
    let mut end = count;
    while let Some(begin) = end.checked_sub(2) {
        let low = usize::from((rest % 100).to_le_bytes()[0]);
        if let (Some(place), Some(pair)) = (digits.get_mut(begin..end), PAIRS.get(low)) {
            place.copy_from_slice(pair);
        }
        rest /= 100;
        end = begin;
    }
    if end == 1 {
        // What is left of an odd number of digits.
        digits[0] = b'0' + rest.to_le_bytes()[0];
    }
    // All of them, since so many at once are copied without a call.
    let begun = out.len();
    out.extend_from_slice(&digits);
    out.truncate(begun + count);
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
