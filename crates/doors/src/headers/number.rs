//! Numbers in decimal, without the detour over formatting.
//!
//! An answer has eight or so; formatting them took as long as deciding.

/// The digits of the largest number.
const DIGITS_MAX: usize = 20;

pub(super) fn write_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; DIGITS_MAX];
    let mut rest = number;
    let mut begin = DIGITS_MAX;
    for (place, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (rest % 10).to_le_bytes()[0];
        rest /= 10;
        begin = place;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(begin..).unwrap_or_default());
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
