//! Lengths of time as people write them.

use std::time::Duration;

/// A sum of whole numbers with units, such as `90s`, `1h30m` or `2w`.
///
/// # Errors
/// When the text is no such sum, or too long to be named.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let malformed = || format!("`{text}` is no length of time");
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
        let millis: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            _ => return Err(malformed()),
        };
        let part = Duration::from_millis(number.saturating_mul(millis));
        total = total.saturating_add(part);
        rest = after;
    }
    Ok(total)
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
    fn refuses_what_is_no_length_of_time() {
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
