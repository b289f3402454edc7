//! Durations as people write them.

use std::time::Duration;

use serde_json::{Value, json};

use super::Kind;
use crate::bounds::Bounds;
use crate::problems::Fault;
use crate::yaml::Scalar;

/// What [`parse_duration`] accepts, as a regular expression.
pub const DURATION_PATTERN: &str = "^([0-9]+(ms|s|m|h|d|w))+$";

/// The units with their milliseconds, the longest first.
const UNITS: [(&str, u64); 6] = [
    ("w", 604_800_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// A sum of whole numbers with units, such as `90s`, `1h30m` or `2w`.
///
/// # Errors
/// When the text is no such sum, or a number does not fit 64 bits.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let malformed = || format!("`{text}` is not a duration");
    let mut total = Duration::ZERO;
    let mut rest = text;
    if rest.is_empty() {
        return Err(malformed());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(letters);
        let number: u64 = number.parse().map_err(|_| malformed())?;
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, millis) = known.ok_or_else(malformed)?;
        let part = Duration::from_millis(number.saturating_mul(*millis));
        total = total.saturating_add(part);
        rest = after;
    }
    Ok(total)
}

/// A duration as it would be written: in the longest unit, up to days, that divides it.
pub fn show_duration(length: Duration) -> String {
    let millis = length.as_millis();
    let divides = |(_, unit): &&(&str, u64)| millis > 0 && millis.is_multiple_of(u128::from(*unit));
    match UNITS.iter().skip(1).find(divides) {
        Some((name, unit)) => format!("{}{name}", millis / u128::from(*unit)),
        None => "0s".to_owned(),
    }
}

impl Kind for Duration {
    fn words() -> String {
        "a duration such as `5m`".to_owned()
    }

    fn schema(_: &Bounds) -> Value {
        json!({"type": "string", "pattern": DURATION_PATTERN})
    }

    fn parse(scalar: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Fault> {
        let length = parse_duration(&scalar.text).map_err(|message| {
            Fault::new("invalid_duration", message)
                .hint("write a whole number and `ms`, `s`, `m`, `h` or `d`, such as `5m`")
        })?;
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        bounds.check(millis, Self::show_bound).map(Duration::from_millis)
    }

    fn show_bound(bound: u64) -> String {
        show_duration(Duration::from_millis(bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_unit_and_sums_of_them() {
        let seconds = |text| parse_duration(text).unwrap().as_secs();
        assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(seconds("30s"), 30);
        assert_eq!(seconds("5m"), 300);
        assert_eq!(seconds("1h30m"), 5_400);
        assert_eq!(seconds("2w1d"), 15 * 86_400);
    }

    #[test]
    fn refuses_texts_that_are_not_durations() {
        for text in ["", "5", "m", "5 m", "-5m", "1.5h", "5min", "5mm", "5é", "1month"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn survives_numbers_beyond_all_bounds() {
        assert!(parse_duration("18446744073709551615w").is_ok());
        assert!(parse_duration("99999999999999999999s").is_err());
    }
}
