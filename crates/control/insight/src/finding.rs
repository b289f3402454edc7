//! What the evidence says about one limit.

use serde::{Serialize, Serializer};
use tidegate_words::words;

use crate::evidence::LimitName;
use crate::suggestion::Suggestion;

words! {
    /// What is the matter with a limit.
    #[derive(PartialOrd, Ord)]
    pub enum FindingKind {
        /// No request met it.
        NeverMatched = "never_matched",
        /// Requests meet it, and all callers stay far below.
        Idle = "idle",
        /// It refuses many callers.
        TooStrict = "too_strict",
        /// It refuses one to three callers, as it should.
        OneAbuser = "one_abuser",
        /// It refuses callers whose mean is well below it.
        Bursty = "bursty",
        /// It admits far more than its number around the end of a window.
        Boundary = "boundary",
        /// Refused callers go on without waiting.
        StubbornCallers = "stubborn_callers",
        /// It has been in shadow for a long time.
        AlwaysShadow = "always_shadow",
        /// It is in shadow and would do no harm.
        Ready = "ready",
        /// Another limit always refuses first.
        Dominated = "dominated",
        /// Its soft allowance is always in use.
        SoftAlways = "soft_always",
        /// The store could not count for it.
        StoreBound = "store_bound",
        /// What it charges is not what requests cost.
        Costless = "costless",
    }
}

words! {
    /// How far a finding can be trusted.
    #[derive(PartialOrd, Ord)]
    pub enum Confidence {
        /// Fewer than 100 callers, or a short time.
        Low = "low",
        /// Enough callers for a number.
        Medium = "medium",
        /// Many callers.
        High = "high",
    }
}

impl FindingKind {
    /// Whether something should be changed. The others say that a limit works.
    pub const fn is_fault(self) -> bool {
        !matches!(self, FindingKind::OneAbuser | FindingKind::Ready)
    }
}

impl Serialize for FindingKind {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

impl Serialize for Confidence {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

/// A finding about one limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitFinding {
    /// What it is.
    pub kind: FindingKind,
    /// Which limit.
    pub limit: LimitName,
    /// The time that the evidence covers, in seconds.
    pub seconds: u64,
    /// One sentence for people.
    pub summary: String,
    /// The numbers behind it.
    pub figures: Vec<Figure>,
    /// How far to trust it.
    pub confidence: Confidence,
    /// What to do.
    pub suggestion: Suggestion,
    /// The command that tries the suggestion on recorded traffic, if there is something to try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
}

/// A number behind a finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: FigureUnit,
}

words! {
    /// The unit of a figure.
    pub enum FigureUnit {
        /// A plain number.
        Count = "count",
        /// A part of one.
        Share = "share",
        /// A time in seconds.
        Seconds = "seconds",
    }
}

impl Serialize for FigureUnit {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

impl std::fmt::Display for Figure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Figure { name, value, unit } = self;
        match unit {
            FigureUnit::Count => write!(out, "{name} {value:.0}"),
            FigureUnit::Share if *value > 0.0 && *value < 0.001 => {
                write!(out, "{name} {:.3} %", value * 100.0)
            }
            FigureUnit::Share => write!(out, "{name} {:.1} %", value * 100.0),
            FigureUnit::Seconds if *value >= 172_800.0 => {
                write!(out, "{name} {:.0} days", value / 86_400.0)
            }
            FigureUnit::Seconds if *value >= 7_200.0 => {
                write!(out, "{name} {:.0} h", value / 3_600.0)
            }
            FigureUnit::Seconds => write!(out, "{name} {value:.0} s"),
        }
    }
}
