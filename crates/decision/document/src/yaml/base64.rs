//! Base64, for scalars that are tagged as `!!binary`.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

/// Padding is required, and bits behind the last byte are ignored, as in Go.
const AS_IN_GO: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Decodes text with padding; line breaks are ignored, as in Go. `None` if it is not valid.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    AS_IN_GO.decode(text.replace(['\r', '\n'], "")).ok()
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
