//! The time that a client gives a call: the field `grpc-timeout`.

use std::time::Duration;

use http::header::HeaderMap;
use http::header::{HeaderName, HeaderValue};

/// The field name.
pub const FIELD: HeaderName = HeaderName::from_static(NAME);
const NAME: &str = "grpc-timeout";

/// Whether a field is `grpc-timeout`.
pub fn is_field(name: &HeaderName) -> bool {
    name.as_str() == NAME
}

/// The timeout of a call; [`None`] if there is none, or it is malformed.
pub fn of(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get(FIELD)?)
}

/// Reads up to eight digits and a unit.
pub fn parse(field: &HeaderValue) -> Option<Duration> {
    const DIGITS_MAX: usize = 8;
    let (unit, digits) = field.as_bytes().split_last()?;
    if digits.is_empty() || digits.len() > DIGITS_MAX {
        return None;
    }
    let amount = digits.iter().try_fold(0_u64, |amount, digit| match digit {
        b'0'..=b'9' => Some(amount * 10 + u64::from(digit - b'0')),
        _ => None,
    })?;
    Some(match unit {
        b'H' => Duration::from_secs(amount * 3_600),
        b'M' => Duration::from_secs(amount * 60),
        b'S' => Duration::from_secs(amount),
        b'm' => Duration::from_millis(amount),
        b'u' => Duration::from_micros(amount),
        b'n' => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Duration> {
        parse(&HeaderValue::from_str(text).unwrap())
    }

    #[test]
    fn every_unit_is_known() {
        assert_eq!(read("2H"), Some(Duration::from_secs(7_200)));
        assert_eq!(read("2M"), Some(Duration::from_secs(120)));
        assert_eq!(read("2S"), Some(Duration::from_secs(2)));
        assert_eq!(read("20m"), Some(Duration::from_millis(20)));
        assert_eq!(read("20u"), Some(Duration::from_micros(20)));
        assert_eq!(read("0n"), Some(Duration::ZERO));
        assert_eq!(read("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
    }

    #[test]
    fn malformed_timeouts_are_ignored() {
        for text in ["", "S", "1", "1s", "-1S", "+1S", "1.5S", "123456789S", " 1S", "1SS"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
