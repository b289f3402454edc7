//! Kinds of scalars that only rule files have.
//!
//! Texts are read as envoyproxy/ratelimit reads them: numbers and booleans count as their text, numbers with a
//! fraction are refused.

use std::time::Duration;

use serde_json::json;
use tidegate_algorithms::Period;
use tidegate_document::{Bounds, Fault, PlainValue, Scalar, kind};

use crate::choices::Unit;

/// The maximum by which a soft limit can be exceeded, in percent.
const SOFT_PERCENT_MAX: u32 = 1000;

/// The shortest and the longest period, in milliseconds: 1ms to 366d.
const PERIOD_BOUNDS: Bounds = Bounds::of(1..=366 * 86_400_000);

fn text(scalar: &Scalar<'_>) -> Result<String, Fault> {
    if !matches!(scalar.plain(), PlainValue::Float(_)) {
        return Ok(scalar.text.clone().into_owned());
    }
    // A number of more than 64 bits reads like one with a fraction.
    let is_whole = scalar.text.bytes().all(|byte| byte.is_ascii_digit());
    let what = if is_whole { "this large" } else { "with a fraction" };
    let message = format!("a number {what} has no meaning here");
    Err(Fault::new("not_whole", message).hint("put quotes around it to make it text"))
}

macro_rules! text_kind {
    ($(#[$about:meta])+ $name:ident, $words:literal, $schema:tt) => {
        $(#[$about])+
        #[derive(Clone, Debug)]
        pub(crate) struct $name(pub(crate) String);

        kind!($name: $words, json!($schema), |scalar| text(scalar).map($name));
    };
}

text_kind! {
    /// Text that may be empty.
    RuleText, "text", {"type": ["string", "integer", "boolean", "null"]}
}

text_kind! {
    /// Text that must not be empty; whoever reads it refuses that with a message of its own.
    RuleName, "text", {"type": ["string", "integer", "boolean"], "minLength": 1}
}

text_kind! {
    /// The name of a plan, where a mapping is possible too.
    PlanName, "text", {"type": "string", "minLength": 1}
}

/// The word for a unit of time in any case. Which words are right depends on `unlimited`.
#[derive(Clone, Debug)]
pub(crate) struct UnitText(pub(crate) String);

impl UnitText {
    /// The unit, if the word is one.
    pub(crate) fn unit(&self) -> Option<Unit> {
        Unit::from_word(&self.0.to_ascii_lowercase())
    }
}

kind! {
    UnitText: "a unit of time", json!({"type": ["string", "null"], "examples": Unit::WORDS}),
    |scalar| text(scalar).map(UnitText)
}

/// A length of time from 1ms to 366d.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval(pub(crate) Period);

kind! {
    Interval: Duration::words(), Duration::schema(&Bounds::NONE), |scalar| {
        let length = Duration::parse(scalar, &PERIOD_BOUNDS)?;
        Period::new(length)
            .map(Interval)
            .map_err(|error| Fault::new("out_of_range", error.to_string()))
    }
}

/// By how much a soft limit may be exceeded, such as `20%`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoftPercent(pub(crate) u32);

kind! {
    SoftPercent: "a percentage such as `20%`", json!({"type": "string", "pattern": "^[0-9]+%$"}),
    |scalar| {
        let text = &*scalar.text;
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        let in_range = |percent: &u32| (1..=SOFT_PERCENT_MAX).contains(percent);
        percent.filter(in_range).map(SoftPercent).ok_or_else(|| {
            let message = format!("`{text}` is not between 1% and {SOFT_PERCENT_MAX}%");
            Fault::new("invalid_percent", message).hint("write it as `20%`")
        })
    }
}
