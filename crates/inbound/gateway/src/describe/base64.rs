//! Base64 with the alphabet for URLs and without padding (RFC 4648 §5), as tokens have it.

/// What the text stands for. `None` when it is not of this alphabet.
pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len().saturating_mul(3) / 4);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count).to_le_bytes()[0]);
            bits &= (1 << count) - 1;
        }
    }
    // Bits that are left over have to be few, and zero: each value is written in one way only.
    (count < 6 && bits == 0).then_some(out)
}

/// The text for some bytes.
#[cfg(test)]
pub(super) fn encoded(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..=chunk.len() {
            let six = bits >> (18 - 6 * u32::try_from(place).unwrap()) & 63;
            out.push(char::from(DIGITS[usize::try_from(six).unwrap()]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(decoded(&encoded(&bytes)), Some(bytes));
        }
    }

    #[test]
    fn texts_of_each_length_are_decoded() {
        for (text, expected) in
            [("", &b""[..]), ("Zg", b"f"), ("Zm8", b"fo"), ("Zm9v", b"foo"), ("-_8", &[251, 255])]
        {
            assert_eq!(decoded(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in ["Zg==", "Z", "Zh", "Zm9+", "Zm 9"] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }
}
