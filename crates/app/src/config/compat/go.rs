//! Parses values as Go's libraries do, and translates them to ours.

use std::time::Duration;

use tidegate_document::{Fault, show_duration};

/// How upstream parses a variable, and how the value is written here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum GoKind {
    /// Any text.
    Text,
    /// A text that is not shown.
    Secret,
    /// A boolean.
    Bool,
    /// A boolean whose opposite is our field.
    NotBool,
    /// A whole number, signed.
    Int,
    /// A number.
    Float,
    /// A duration.
    Duration,
    /// A duration where zero means no limit.
    Age,
    /// `k:v,k:v`.
    Map,
    /// A level of its logger.
    Level,
    /// A word, in upper or lower case.
    Word,
    /// A share from 0 to 1 that is a percentage here.
    Rate,
}

impl GoKind {
    /// The kind in words.
    pub(in crate::config) const fn words(self) -> &'static str {
        match self {
            GoKind::Text | GoKind::Secret | GoKind::Word => "text",
            GoKind::Bool | GoKind::NotBool => "boolean",
            GoKind::Int => "whole number",
            GoKind::Float | GoKind::Rate => "number",
            GoKind::Duration | GoKind::Age => "duration",
            GoKind::Map => "`k:v,k:v`",
            GoKind::Level => "log level",
        }
    }

    /// The value as it would be written in our file.
    pub(in crate::config) fn translate(self, text: &str) -> Result<String, Fault> {
        match self {
            GoKind::Text | GoKind::Secret => Ok(text.to_owned()),
            GoKind::Word => Ok(text.to_ascii_lowercase()),
            GoKind::Bool => boolean(text).map(|flag| flag.to_string()),
            GoKind::NotBool => boolean(text).map(|flag| (!flag).to_string()),
            GoKind::Int => integer(text).map(|number| number.to_string()),
            GoKind::Float => float(text).map(|number| decimal(number, 6)),
            GoKind::Rate => float(text).map(|number| decimal(number * 100.0, 4)),
            GoKind::Age if duration(text) == Ok(Duration::ZERO) => Ok("off".to_owned()),
            GoKind::Duration | GoKind::Age => duration(text).map(show_duration),
            GoKind::Map => map(text),
            GoKind::Level => level(text),
        }
    }
}

/// The fault of a text that is not of its kind.
pub(super) fn invalid(code: &'static str, text: &str, kind: &str, hint: &str) -> Fault {
    Fault::new(code, format!("`{text}` is not {kind}")).hint(hint)
}

/// The words of Go's boolean parser, and no others.
pub(super) fn boolean(text: &str) -> Result<bool, Fault> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(invalid("invalid_boolean", text, "a boolean", "write `true` or `false`")),
    }
}

fn integer(text: &str) -> Result<i64, Fault> {
    let hint = "write digits only, such as `8081`";
    text.parse().map_err(|_| invalid("invalid_number", text, "a whole number", hint))
}

fn float(text: &str) -> Result<f64, Fault> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| invalid("invalid_number", text, "a number", "such as `0.8`"))
}

/// The number without an exponent, rounded.
fn decimal(number: f64, places: usize) -> String {
    let text = format!("{number:.places$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A sum of decimal numbers with units, such as `1h30m` or `1.5s`, rounded up to milliseconds.
pub(super) fn duration(text: &str) -> Result<Duration, Fault> {
    let hint = "write a number and `ms`, `s`, `m` or `h`, such as `24h` or `1m30s`";
    let malformed = || invalid("invalid_duration", text, "a duration", hint);
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(malformed());
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let number = rest.find(|char: char| !char.is_ascii_digit() && char != '.');
        let (number, after) = rest.split_at(number.ok_or_else(malformed)?);
        let unit = after.find(|char: char| char.is_ascii_digit() || char == '.');
        let (unit, after) = after.split_at(unit.unwrap_or(after.len()));
        let each: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60 * 1_000_000_000,
            "h" => 3_600 * 1_000_000_000,
            _ => return Err(malformed()),
        };
        nanos = nanos.saturating_add(scaled(number, each).ok_or_else(malformed)?);
        rest = after;
    }
    let millis = u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX);
    Ok(Duration::from_millis(millis))
}

/// A decimal number of units.
fn scaled(number: &str, each: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || whole.len() > 19 || fraction.contains('.') {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // In the largest unit, a nanosecond has no more than twelve decimal places.
    let kept: String = fraction.chars().take(12).collect();
    let scale = 10_u128.pow(u32::try_from(kept.len()).unwrap_or(0));
    let part: u128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    Some(whole.saturating_mul(each).saturating_add(part * each / scale))
}

fn map(text: &str) -> Result<String, Fault> {
    pairs(text).map(|_| text.to_owned())
}

/// The pairs of a map: each has one colon.
pub(super) fn pairs(text: &str) -> Result<Vec<(&str, &str)>, Fault> {
    let pair = |part| str::split_once(part, ':').filter(|(_, value)| !value.contains(':'));
    let pairs: Option<Vec<_>> = text.split(',').map(pair).collect();
    pairs.ok_or_else(|| invalid("invalid_map", text, "a list of pairs", "write `k:v,k:v`"))
}

fn level(text: &str) -> Result<String, Fault> {
    let level = match text.to_ascii_lowercase().as_str() {
        "panic" | "fatal" | "error" => "error",
        "warn" | "warning" => "warn",
        "info" => "info",
        "debug" => "debug",
        "trace" => "trace",
        _ => {
            let hint = "it can be `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`";
            return Err(invalid("invalid_level", text, "a log level", hint));
        }
    };
    Ok(level.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_those_of_go_and_no_others() {
        for yes in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(boolean(yes), Ok(true), "{yes}");
        }
        for no in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(boolean(no), Ok(false), "{no}");
        }
        for neither in ["yes", "on", "tRUE", "", " true", "2"] {
            assert!(boolean(neither).is_err(), "{neither}");
        }
    }

    #[test]
    fn durations_are_those_of_go() {
        let millis = |text| duration(text).unwrap().as_millis();
        assert_eq!(millis("24h"), 86_400_000);
        assert_eq!(millis("24h0m0s"), 86_400_000);
        assert_eq!(millis("1.5h"), 5_400_000);
        assert_eq!(millis("+1m30s"), 90_000);
        assert_eq!(millis(".5s"), 500);
        assert_eq!(millis("150us"), 1);
        assert_eq!(millis("1µs"), 1);
        assert_eq!(millis("0"), 0);
        assert_eq!(millis("9999999999999999999h"), u128::from(u64::MAX));
        for text in
            ["", "5", "1d", "1 h", "-1h", "h", ".s", "1..5s", "1h2", "99999999999999999999s"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_age_of_zero_means_no_limit() {
        assert_eq!(GoKind::Age.translate("0s").unwrap(), "off");
        assert_eq!(GoKind::Age.translate("24h").unwrap(), "1d");
    }

    #[test]
    fn rates_become_percentages() {
        assert_eq!(GoKind::Rate.translate("1").unwrap(), "100");
        assert_eq!(GoKind::Rate.translate("0.005").unwrap(), "0.5");
        assert_eq!(GoKind::Float.translate("8e-1").unwrap(), "0.8");
        assert!(GoKind::Float.translate("NaN").is_err());
    }

    #[test]
    fn levels_are_known_in_any_case() {
        assert_eq!(GoKind::Level.translate("WARNING").unwrap(), "warn");
        assert_eq!(GoKind::Level.translate("Fatal").unwrap(), "error");
        assert!(GoKind::Level.translate("loud").is_err());
    }
}
