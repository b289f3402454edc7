//! Spans and numbers as services write them.

use tidegate_algorithms::{Nanos, Timestamp};

/// A reset above this many seconds is an epoch, not a span: 2001 as an instant, 31 years as a span.
const EPOCH_SECONDS_MIN: u64 = 1_000_000_000;
/// A reset above this number is an epoch in milliseconds.
const EPOCH_MILLIS_MIN: u64 = 1_000_000_000_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A whole number without sign.
pub(crate) fn read_integer(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // More than twenty digits saturate: such a number still means "very long".
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// A number of units with decimals, such as `2` or `2.0`, in nanoseconds; rounded up, so that no wait is too short.
pub(crate) fn read_decimal(text: &str, unit: Nanos) -> Option<Nanos> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let whole = read_integer(whole)?;
    if decimals.is_empty() || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut part: u64 = 0;
    let mut scale = unit.get();
    for digit in decimals.bytes().take(9) {
        scale /= 10;
        part = part.saturating_add(scale.saturating_mul(u64::from(digit - b'0')));
    }
    let beyond = decimals.bytes().skip(9).any(|digit| digit != b'0');
    let nanos = whole.saturating_mul(unit.get()).saturating_add(part);
    Some(Nanos::new(nanos.saturating_add(u64::from(beyond))))
}

/// When a quota is whole again: seconds from now, an epoch, a text such as `6m0s`, or an RFC 3339 instant.
pub(crate) fn read_reset(text: &str, now: Timestamp) -> Option<Nanos> {
    if let Some(number) = read_integer(text.split('.').next()?)
        && number > EPOCH_SECONDS_MIN
    {
        let unit = if number > EPOCH_MILLIS_MIN { 1_000_000 } else { NANOS_PER_SECOND };
        let instant = read_decimal(text, Nanos::new(unit))?;
        return Some(Timestamp::from_nanos(instant.get()).since(now));
    }
    read_decimal(text, Nanos::from_secs(1))
        .or_else(|| read_compound(text))
        .or_else(|| Some(read_rfc3339(text)?.since(now)))
}

/// A span of numbers with units: `6m0s`, `1h2m3.5s`, `120ms`.
pub(crate) fn read_compound(text: &str) -> Option<Nanos> {
    let mut rest = text;
    let mut sum: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit = match unit {
            "d" => Nanos::from_secs(86_400),
            "h" => Nanos::from_secs(3_600),
            "m" => Nanos::from_secs(60),
            "s" => Nanos::from_secs(1),
            "ms" => Nanos::from_millis(1),
            "us" => Nanos::new(1_000),
            "ns" => Nanos::new(1),
            _ => return None,
        };
        sum = sum.saturating_add(read_decimal(number, unit)?.get());
        rest = after;
    }
    (!text.is_empty()).then_some(Nanos::new(sum))
}

/// An instant such as `2026-11-18T15:00:00Z`, with decimals and an offset.
fn read_rfc3339(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| read_integer(text.get(from..to)?);
    let is = |at: usize, wanted: &[u8]| bytes.get(at).is_some_and(|byte| wanted.contains(byte));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let in_range = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !in_range {
        return None;
    }
    let zone_at = 19 + text[19..].find(['Z', 'z', '+', '-'])?;
    let fraction = text.get(19..zone_at)?;
    let part = match fraction.strip_prefix('.') {
        Some(decimals) => read_decimal(&format!("0.{decimals}"), Nanos::from_secs(1))?,
        None if fraction.is_empty() => Nanos::ZERO,
        None => return None,
    };
    let seconds = days_since_epoch(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    let seconds = match bytes[zone_at] {
        b'Z' | b'z' if zone_at + 1 == text.len() => seconds,
        sign @ (b'+' | b'-') if is(zone_at + 3, b":") && zone_at + 6 == text.len() => {
            let offset =
                number(zone_at + 1, zone_at + 3)? * 3_600 + number(zone_at + 4, zone_at + 6)? * 60;
            if sign == b'+' { seconds.saturating_sub(offset) } else { seconds + offset }
        }
        _ => return None,
    };
    Some(Timestamp::from_secs(seconds).after(part))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
const fn days_since_epoch(year: u64, month: u64, day: u64) -> u64 {
    // Years begin in March, so that the leap day is the last day of a year.
    let year = if month <= 2 { year - 1 } else { year };
    let month = if month <= 2 { month + 9 } else { month - 3 };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    // 0000-03-01 is 719,468 days before the epoch.
    days.saturating_sub(719_468)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    #[test]
    fn decimals_are_read_to_the_nanosecond_and_rounded_up() {
        assert_eq!(read_decimal("2.0", Nanos::from_secs(1)), Some(Nanos::from_secs(2)));
        assert_eq!(read_decimal("0.25", Nanos::from_secs(1)), Some(Nanos::from_millis(250)));
        assert_eq!(read_decimal("0.0000000001", Nanos::from_secs(1)), Some(Nanos::new(1)));
        assert_eq!(read_decimal("99999999999999999999999", Nanos::from_secs(1)), Some(Nanos::MAX));
        for text in ["", "-1", "1.", ".5", "1.2.3", "1e3", "٣"] {
            assert_eq!(read_decimal(text, Nanos::from_secs(1)), None, "{text}");
        }
    }

    #[test]
    fn a_reset_is_a_span_an_epoch_a_compound_or_an_instant() {
        for (text, seconds) in [
            ("30", 30),
            ("1800000060", 60),
            ("1800000060000", 60),
            ("6m0s", 360),
            ("1h2m3s", 3_723),
            ("2027-01-15T08:01:00Z", 60),
            ("2027-01-15T09:01:00+01:00", 60),
            ("2027-01-15T07:31:00.000-00:30", 60),
            ("1700000000", 0),
        ] {
            assert_eq!(read_reset(text, NOW), Some(Nanos::from_secs(seconds)), "{text}");
        }
        assert_eq!(read_reset("120ms", NOW), Some(Nanos::from_millis(120)));
        for text in ["soon", "5 minutes", "2027-13-01T00:00:00Z", "2027-01-01", "6x", "-5", "m"] {
            assert_eq!(read_reset(text, NOW), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn days_agree_with_the_http_date_of_the_same_instant(seconds in 0_u64..200_000_000_000) {
            let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            let month = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
                .iter().position(|name| *name == &date[8..11]).unwrap() + 1;
            let text = format!("{}-{month:02}-{}T{}Z", &date[12..16], &date[5..7], &date[17..25]);
            prop_assert_eq!(read_rfc3339(&text), Some(Timestamp::from_secs(seconds)));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = (read_reset(&text, NOW), read_compound(&text), read_rfc3339(&text));
        }
    }
}
