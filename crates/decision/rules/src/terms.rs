//! Terms: what a row says about the limits of a client.
//!
//! `blocked`, `unlimited`, the name of a plan, or other numbers for limits: `rate=500`, `rate=50/m burst=10`, `500` where
//! the rule has one limit. Terms are numbered by their canonical text, so equal terms must have equal texts.

use std::fmt;
use std::time::Duration;

use tidegate_algorithms::{Algorithm, FixedWindow, Limit, Period, Window};
use tidegate_document::{parse_duration, show_duration};

use crate::choices::{Unit, WhenOver};
use crate::document::{LimitText, Terms};

/// The text is no terms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TermsError {
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: &'static str,
}

const HINT: &str = "write `blocked`, `unlimited`, the name of a plan, or numbers such as `rate=500` or `rate=50/m burst=10`";

/// The terms in the text that equal terms share.
///
/// # Errors
/// When the text is no terms. Whether the rules have its plan and its limits is checked when they are compiled.
pub fn canonical_terms(text: &str) -> Result<String, TermsError> {
    RowTerms::parse(text).map(|terms| terms.to_string())
}

/// Terms, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowTerms {
    Blocked,
    Unlimited,
    Plan(String),
    Numbers(Vec<NewNumbers>),
}

/// Other numbers for one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewNumbers {
    /// The name of the limit, or its number from 1; the only limit if empty.
    pub(crate) limit: String,
    amount: u64,
    per: Option<Period>,
    /// `burst` or `queue`, with the amount.
    own: Option<(OwnParameter, u64)>,
}

/// A parameter that belongs to the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnParameter {
    Burst,
    Queue,
}

impl OwnParameter {
    const fn as_str(self) -> &'static str {
        match self {
            OwnParameter::Burst => "burst",
            OwnParameter::Queue => "queue",
        }
    }
}

fn refuse<T>(message: impl Into<String>) -> Result<T, TermsError> {
    Err(TermsError { message: message.into(), hint: HINT })
}

impl RowTerms {
    pub(crate) fn parse(text: &str) -> Result<Self, TermsError> {
        let text = text.trim();
        match text {
            "" => return refuse("the terms are empty"),
            "blocked" => return Ok(RowTerms::Blocked),
            "unlimited" => return Ok(RowTerms::Unlimited),
            _ => {}
        }
        let is_number = text.starts_with(|first: char| first.is_ascii_digit());
        if !is_number && !text.contains('=') {
            return Ok(RowTerms::Plan(text.to_owned()));
        }
        let mut numbers: Vec<NewNumbers> = Vec::new();
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap_or(("", word));
            let own = match name {
                "burst" => Some(OwnParameter::Burst),
                "queue" => Some(OwnParameter::Queue),
                _ => None,
            };
            if let Some(own) = own {
                let Some(last) = numbers.last_mut().filter(|last| last.own.is_none()) else {
                    return refuse(format!("`{word}` does not follow a limit"));
                };
                last.own = Some((own, amount(word, value)?));
                continue;
            }
            if numbers.iter().any(|known| known.limit == name) {
                return refuse(format!("`{text}` has two numbers for one limit"));
            }
            let (value, per) = value.split_once('/').map_or((value, None), |(v, p)| (v, Some(p)));
            let per = per.map(|per| period(word, per)).transpose()?;
            numbers.push(NewNumbers {
                limit: name.to_owned(),
                amount: amount(word, value)?,
                per,
                own: None,
            });
        }
        if numbers.len() > 1 && numbers.iter().any(|number| number.limit.is_empty()) {
            return refuse(format!("`{text}` has a number without the name of its limit"));
        }
        numbers.sort_by(|one, other| one.limit.cmp(&other.limit));
        Ok(RowTerms::Numbers(numbers))
    }
}

fn amount(word: &str, value: &str) -> Result<u64, TermsError> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|_| is_plain);
    number.map_or_else(|| refuse(format!("`{word}` has no whole number")), Ok)
}

/// `m`, `minute` or `5m`.
fn period(word: &str, text: &str) -> Result<Period, TermsError> {
    if let Some(unit) = Unit::from_word(text) {
        return Ok(unit.period());
    }
    let has_number = text.starts_with(|first: char| first.is_ascii_digit());
    let length = parse_duration(&if has_number { text.to_owned() } else { format!("1{text}") });
    let max = Duration::from_secs(366 * 86_400);
    let length = length.ok().filter(|length| *length <= max);
    match length.and_then(|length| Period::new(length).ok()) {
        Some(period) => Ok(period),
        None => refuse(format!(
            "`{word}` is per `{text}`, which is no unit and no length of time up to 366d"
        )),
    }
}

impl fmt::Display for RowTerms {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowTerms::Blocked => out.write_str("blocked"),
            RowTerms::Unlimited => out.write_str("unlimited"),
            RowTerms::Plan(name) => out.write_str(name),
            RowTerms::Numbers(numbers) => {
                for (index, number) in numbers.iter().enumerate() {
                    out.write_str(if index > 0 { " " } else { "" })?;
                    fmt::Display::fmt(number, out)?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for NewNumbers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.limit.is_empty() {
            write!(out, "{}=", self.limit)?;
        }
        write!(out, "{}", self.amount)?;
        if let Some(per) = self.per {
            write!(out, "/{}", show_duration(per.as_span().into()))?;
        }
        match self.own {
            Some((own, amount)) => write!(out, " {}={amount}", own.as_str()),
            None => Ok(()),
        }
    }
}

impl NewNumbers {
    /// Whether a limit is meant: its name, or its number from 1 if it has none, among `count` limits.
    pub(crate) fn is_for(&self, limit: &LimitText, number: usize, count: usize) -> bool {
        match &limit.name {
            _ if self.limit.is_empty() => count == 1,
            Some(name) => *name == self.limit,
            None => self.limit == number.to_string(),
        }
    }

    /// Whether `burst` or `queue` has a meaning for a limit, or is not given. One table can be for limits that have it and
    /// for others.
    pub(crate) fn has_own_parameter(&self, limit: &LimitText) -> bool {
        let Some((own, _)) = self.own else { return true };
        let own_of_limit =
            limit.terms.as_ref().and_then(|terms| terms.limit.algorithm().own_parameter());
        own_of_limit.is_some_and(|(name, _)| name == own.as_str())
    }

    /// The limit with these numbers.
    pub(crate) fn apply(&self, limit: &LimitText) -> Result<LimitText, String> {
        let Some(terms) = &limit.terms else {
            return Err("the limit is unlimited and has no numbers".to_owned());
        };
        let mut algorithm = terms.limit.algorithm().clone();
        let mut unit = terms.unit;
        if let Some(per) = self.per {
            if let Algorithm::FixedWindow(window) = &algorithm
                && matches!(window.window(), Window::Calendar(..))
            {
                return Err("the limit follows the calendar; leave its unit out".to_owned());
            }
            if algorithm.holds_slots() {
                return Err(
                    "the limit counts requests in flight and has no unit of time".to_owned()
                );
            }
            algorithm = algorithm.with_period(per);
            unit = Unit::WORDS
                .iter()
                .filter_map(|word| Unit::from_word(word))
                .find(|unit| unit.period() == per);
        }
        let own = self.own.filter(|_| self.has_own_parameter(limit)).map(|(_, amount)| amount);
        let algorithm =
            algorithm.with_amount(self.amount, own).map_err(|error| error.to_string())?;
        let changed = Limit::new(algorithm);
        let changed = match terms.limit.soft() {
            Some(soft) => changed.with_soft(soft),
            None => changed,
        };
        let terms = Terms { limit: changed, unit, ..terms.clone() };
        Ok(LimitText { terms: Some(terms), requests_per_unit: self.amount, ..limit.clone() })
    }
}

/// The limit with nothing left.
pub(crate) fn blocked(limit: &LimitText) -> LimitText {
    let Some(terms) = &limit.terms else { return limit.clone() };
    let algorithm = terms.limit.algorithm();
    let empty = algorithm.with_amount(0, Some(0)).unwrap_or_else(|_| algorithm.clone());
    // Waiting would be in vain.
    let terms = Terms { limit: Limit::new(empty), when_over: WhenOver::Refuse, ..terms.clone() };
    LimitText { terms: Some(terms), requests_per_unit: 0, ..limit.clone() }
}

/// A limit that refuses everything, for a rule without limits of its own.
pub(crate) fn block(location: tidegate_document::Location) -> LimitText {
    let terms = Terms {
        limit: Limit::new(FixedWindow::new(0, Window::Every(Period::SECOND))),
        says_count_refused: false,
        unit: Some(Unit::Second),
        mode: None,
        enforce_percent: None,
        on_store_error: None,
        consistency: tidegate_algorithms::Consistency::default(),
        when_over: WhenOver::Refuse,
        refusal_status: None,
        cost: 1,
    };
    LimitText {
        location,
        name: Some("blocked".to_owned()),
        replaces: Vec::new(),
        terms: Some(terms),
        requests_per_unit: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_terms_have_one_text() {
        for (text, canonical) in [
            (" blocked ", "blocked"),
            ("unlimited", "unlimited"),
            ("gold", "gold"),
            ("500", "500"),
            ("500/second", "500/1s"),
            ("rate=50/m  burst=10", "rate=50/1m burst=10"),
            ("rate=50/60s burst=10", "rate=50/1m burst=10"),
            ("b=2 a=1/5m", "a=1/5m b=2"),
            ("1=7", "1=7"),
        ] {
            assert_eq!(canonical_terms(text).as_deref(), Ok(canonical), "{text}");
            assert_eq!(canonical_terms(canonical).as_deref(), Ok(canonical));
        }
    }

    #[test]
    fn what_is_no_terms_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "empty"),
            ("rate=", "no whole number"),
            ("rate=-1", "no whole number"),
            ("rate=99999999999999999999", "no whole number"),
            ("rate=5/fortnight", "no unit"),
            ("rate=5/400d", "no unit"),
            ("rate=5/0s", "no unit"),
            ("burst=5", "does not follow"),
            ("rate=5 burst=1 burst=2", "does not follow"),
            ("rate=5 rate=6", "two numbers"),
            ("5 rate=6", "without the name"),
        ] {
            let error = canonical_terms(text).unwrap_err();
            assert!(error.message.contains(part), "{text}: {error}");
        }
    }
}
