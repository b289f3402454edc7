//! Base64, for scalars that are tagged as `!!binary`.

/// Decodes text with padding; line breaks are ignored, as in Go. `None` if it is not valid.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let letters: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let mut decoded = Vec::with_capacity(letters.len() / 4 * 3);
    let (groups, rest) = letters.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    for (index, group) in groups.iter().enumerate() {
        let is_last = index + 1 == groups.len();
        let padding = group.iter().rev().take_while(|letter| **letter == b'=').count();
        if padding > 2 || (padding > 0 && !is_last) {
            return None;
        }
        let mut bits = 0_u32;
        for letter in group.iter().take(4 - padding) {
            bits = bits << 6 | digit(*letter)?;
        }
        let [_, bytes @ ..] = (bits << (6 * padding)).to_be_bytes();
        decoded.extend_from_slice(bytes.get(..3 - padding)?);
    }
    Some(decoded)
}

fn digit(letter: u8) -> Option<u32> {
    let digit = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_up_to_its_padding() {
        for (encoded, decoded) in
            [("", ""), ("aGVsbG8=", "hello"), ("aGVsbG8h", "hello!"), ("aGVs\nbA==", "hell")]
        {
            assert_eq!(decode(encoded).as_deref(), Some(decoded.as_bytes()), "{encoded}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for encoded in ["a", "aGVsbG8", "***=", "====", "a===", "aG=s", "aA==aA==", "aG s"] {
            assert_eq!(decode(encoded), None, "{encoded}");
        }
    }
}
