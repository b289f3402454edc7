//! A changed limit as YAML, always in shadow.
//!
//! A suggestion never loosens what is enforced: it adds the changed limit beside the present one, in `mode: shadow`, so
//! that both can be compared before one is removed.

use std::fmt::Write;

use serde::Serialize;

use crate::evidence::{LimitName, LimitTerms};

/// What to do about a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    /// One sentence for people.
    pub text: String,
    /// The change as a diff of the rule, if the rule should change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

impl Suggestion {
    /// Advice without a change of the rule.
    pub(crate) fn advice(text: impl Into<String>) -> Self {
        Suggestion { text: text.into(), diff: None }
    }

    /// Adds a changed limit in shadow.
    pub(crate) fn add(
        text: impl Into<String>,
        name: &LimitName,
        terms: &LimitTerms,
        changed: &ChangedLimit,
    ) -> Self {
        Suggestion { text: text.into(), diff: Some(add_diff(name, terms, changed)) }
    }

    /// Removes the limit.
    pub(crate) fn remove(text: impl Into<String>, name: &LimitName, terms: &LimitTerms) -> Self {
        let (mut diff, indent) = head(name, terms);
        let _ = writeln!(diff, "-{indent}- {}", limit_text(&name.limit, terms, &present(terms)));
        Suggestion { text: text.into(), diff: Some(diff) }
    }

    /// Changes only the mode.
    pub(crate) fn set_mode(
        text: impl Into<String>,
        name: &LimitName,
        terms: &LimitTerms,
        mode: &'static str,
    ) -> Self {
        let (mut diff, indent) = head(name, terms);
        let now = present(terms);
        let _ = writeln!(diff, "-{indent}- {}", limit_text(&name.limit, terms, &now));
        let then = ChangedLimit { mode, ..now };
        let _ = writeln!(diff, "+{indent}- {}", limit_text(&name.limit, terms, &then));
        Suggestion { text: text.into(), diff: Some(diff) }
    }
}

/// The numbers of a limit that a suggestion may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangedLimit {
    pub(crate) algorithm: &'static str,
    pub(crate) quota: u64,
    pub(crate) burst: Option<u64>,
    pub(crate) count_refused: bool,
    pub(crate) mode: &'static str,
}

/// The present limit as a starting point for a change.
pub(crate) fn present(terms: &LimitTerms) -> ChangedLimit {
    let algorithm = known_algorithm(&terms.algorithm);
    let burst = algorithm == "token_bucket" && terms.capacity != terms.quota;
    ChangedLimit {
        algorithm,
        quota: terms.quota,
        burst: burst.then_some(terms.capacity),
        count_refused: terms.count_refused,
        mode: match terms.mode.as_str() {
            "shadow" => "shadow",
            "off" => "off",
            _ => "enforce",
        },
    }
}

fn known_algorithm(name: &str) -> &'static str {
    let names = tidegate_algorithms::Algorithm::NAMES;
    names.iter().find(|known| **known == name).copied().unwrap_or("fixed_window")
}

fn add_diff(name: &LimitName, terms: &LimitTerms, changed: &ChangedLimit) -> String {
    let (mut diff, indent) = head(name, terms);
    let now = present(terms);
    let _ = writeln!(diff, " {indent}- {}", limit_text(&name.limit, terms, &now));
    let changed = ChangedLimit { mode: "shadow", ..*changed };
    let suggested = format!("{}_suggested", plain_name(&name.limit));
    let _ = writeln!(diff, "+{indent}- {}", limit_text(&suggested, terms, &changed));
    diff
}

/// The lines above the limits, and the indentation of the limits.
fn head(name: &LimitName, terms: &LimitTerms) -> (String, String) {
    let mut text = format!(" domain: {}\n", scalar(&name.domain));
    let mut indent = String::new();
    for (key, value) in &terms.levels {
        let _ = writeln!(text, " {indent}descriptors:");
        let _ = writeln!(text, " {indent}- key: {}", scalar(key));
        indent.push_str("  ");
        if let Some(value) = value {
            let _ = writeln!(text, " {indent}value: {}", scalar(value));
        }
    }
    let _ = writeln!(text, " {indent}limits:");
    (text, indent)
}

/// A limit on one line.
fn limit_text(name: &str, terms: &LimitTerms, limit: &ChangedLimit) -> String {
    let ChangedLimit { algorithm, quota, burst, count_refused, mode } = limit;
    let mut text = String::from("{");
    // A name that is only a position is no name.
    if name.parse::<u32>().is_err() {
        let _ = write!(text, "name: {}, ", scalar(name));
    }
    let _ = write!(text, "algorithm: {algorithm}, ");
    match *algorithm {
        "concurrency" => {
            let _ = write!(text, "time_to_live: {}, ", duration(terms.period_ns));
        }
        _ => {
            let _ = write!(text, "per: {}, ", duration(terms.period_ns));
        }
    }
    let _ = write!(text, "requests_per_unit: {quota}");
    if let Some(burst) = burst {
        let _ = write!(text, ", burst: {burst}");
    }
    if *count_refused {
        text.push_str(", count_refused: true");
    }
    let _ = match *mode {
        "enforce" => write!(text, "}}"),
        "enforce 10%" => write!(text, ", mode: enforce, enforce_percent: 10}}"),
        mode => write!(text, ", mode: {mode}}}"),
    };
    text
}

/// A name for the suggested limit of a limit that may have none.
fn plain_name(name: &str) -> String {
    if name.parse::<u32>().is_ok() { format!("limit_{name}") } else { name.to_owned() }
}

/// A duration as rules write it.
pub(crate) fn duration(nanos: u64) -> String {
    const UNITS: [(u64, &str); 5] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
    ];
    let unit = UNITS.iter().find(|(size, _)| nanos >= *size && nanos.is_multiple_of(*size));
    let (size, word) = unit.unwrap_or(&(1_000_000, "ms"));
    format!("{}{word}", nanos / size)
}

/// A text as a YAML scalar: plain if that is safe, otherwise in double quotes.
fn scalar(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    let starts_well =
        text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '/');
    let is_word = ["true", "false", "null", "yes", "no", "on", "off"]
        .contains(&text.to_ascii_lowercase().as_str());
    if starts_well && !is_word && text.chars().all(is_plain) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(letter);
            }
            letter if letter.is_control() || u32::from(letter) > 0xffff => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_yaml_would_misread_are_quoted() {
        assert_eq!(scalar("user"), "user");
        assert_eq!(scalar("/login"), "/login");
        assert_eq!(scalar("no"), "\"no\"");
        assert_eq!(scalar("10"), "\"10\"");
        assert_eq!(scalar("a: b\n\"c\""), "\"a: b\\U0000000a\\\"c\\\"\"");
    }

    #[test]
    fn durations_use_the_largest_whole_unit() {
        assert_eq!(duration(90_000_000_000), "90s");
        assert_eq!(duration(3_600_000_000_000), "1h");
        assert_eq!(duration(1_500_000), "1ms");
    }
}
