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
    let mut digits = [[0; 2]; DIGITS_MAX / 2];
    let mut rest = number;
    let mut begin = DIGITS_MAX;
    for (place, pair) in digits.iter_mut().enumerate().rev() {
        let low = usize::from((rest % 100).to_le_bytes()[0]);
        *pair = PAIRS.get(low).copied().unwrap_or_default();
        begin = place * 2 + usize::from(rest < 10);
        rest /= 100;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.as_flattened().get(begin..).unwrap_or_default());
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
