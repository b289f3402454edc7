//! Limits and times in words.

use serde::{Deserialize, Serialize};
use tidegate_document::{Bounds, Kind, Scalar, ScalarStyle, Size, parse_duration, show_duration};
use tidegate_forwarder::{Dimension, TargetLimit};

use std::time::Duration;

/// A limit as the API writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitTerms {
    pub(crate) dimension: Dimension,
    pub(crate) amount: u64,
    pub(crate) window_ms: u64,
}

impl std::str::FromStr for LimitTerms {
    type Err = String;

    /// Reads `units=20000/1s`, `operations=20/1s` or `bytes=2GiB/1m`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is no limit: write operations=20/1s, bytes=2GiB/1m or units=20000/1s")
        };
        let (dimension, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (amount, window) = rest.split_once('/').ok_or_else(wrong)?;
        let dimension = match dimension {
            "operations" => Dimension::Operations,
            "bytes" => Dimension::Bytes,
            "units" => Dimension::Units,
            _ => return Err(wrong()),
        };
        let plain = Scalar { text: amount.into(), style: ScalarStyle::Plain };
        let size = Size::parse(&plain, &Bounds::NONE).ok().map(Size::bytes);
        let size = size.filter(|_| dimension == Dimension::Bytes);
        let amount = amount.parse().ok().or(size).ok_or_else(wrong)?;
        // `units=100/s` is short for `units=100/1s`.
        let bare = window.starts_with(|letter: char| letter.is_ascii_alphabetic());
        let window = if bare { format!("1{window}") } else { window.to_owned() };
        let window = parse_duration(&window)?;
        let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        Ok(LimitTerms { dimension, amount, window_ms })
    }
}

/// A limit, such as `20000 units per 1s`.
pub(crate) fn show_limit(dimension: Dimension, amount: u64, window_ms: u64) -> String {
    let window = show_duration(Duration::from_millis(window_ms));
    match dimension {
        Dimension::Operations => format!("{amount} operations per {window}"),
        Dimension::Bytes => format!("{} per {window}", Size::new(amount)),
        Dimension::Units => format!("{amount} units per {window}"),
    }
}

/// Limits, joined by commas.
pub(crate) fn show_limits(limits: &[TargetLimit]) -> String {
    let each =
        limits.iter().map(|limit| show_limit(limit.dimension, limit.amount, limit.window_ms));
    each.collect::<Vec<_>>().join(", ")
}

/// A time for people: `4.2 s`, `3 min 20 s`, `2 h 5 min`.
pub(crate) fn show_seconds(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX).as_secs();
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        3_600..86_400 => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{} d {} h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

/// A number with a comma after each three digits.
pub(crate) fn show_count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_shown() {
        for (text, shown) in [
            ("operations=20/1s", "20 operations per 1s"),
            ("operations=20/s", "20 operations per 1s"),
            ("bytes=2GiB/1m", "2GiB per 1m"),
            ("units=20000/200ms", "20000 units per 200ms"),
        ] {
            let LimitTerms { dimension, amount, window_ms } = text.parse().unwrap();
            assert_eq!(show_limit(dimension, amount, window_ms), shown);
        }
        for wrong in
            ["", "units", "units=5", "apples=5/1s", "units=2GiB/1s", "units=-1/1s", "units=1/"]
        {
            assert!(wrong.parse::<LimitTerms>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_and_counts_are_for_people() {
        let shown = [4.21, 200.0, 7_500.0, 200_000.0, -1.0].map(show_seconds);
        assert_eq!(shown, ["4.2 s", "3 min 20 s", "2 h 5 min", "2 d 7 h", "-1.0 s"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(show_count), ["0", "999", "1,000", "1,234,567"]);
    }
}
