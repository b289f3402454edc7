//! Conditions under which a replay fails, for CI.

use super::report::ReplayReport;
use super::report::share;

/// A condition such as `refused > 1%`.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    measure: Measure,
    comparison: Comparison,
    value: f64,
    is_percent: bool,
    text: String,
}

macro_rules! measures {
    ($($variant:ident = $name:literal, $about:literal;)+) => {
        /// What a condition is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Measure {
            $($variant,)+
        }

        /// The measures by name, with their meaning.
        pub const MEASURES: &[(&str, &str)] = &[$(($name, $about)),+];

        impl Measure {
            fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Measure::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

measures! {
    Refused = "refused", "requests that the new rules refuse";
    WouldRefuse = "would_refuse", "requests that limits in shadow would refuse";
    NewlyRefused = "newly_refused", "requests that only the new rules refuse";
    NewlyAdmitted = "newly_admitted", "requests that only the old rules refuse";
    Flips = "flips", "requests that the two sets answer differently";
    CallersFlipped = "callers_flipped", "callers with such a request (a number)";
    Unreadable = "unreadable", "lines that could not be read";
    Unlimited = "unlimited", "requests that meet no limit";
    DifferentVerdicts = "different_verdicts", "verdicts that differ from the decision log";
    Findings = "findings", "findings that are faults (a number)";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// Why a condition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// Not three words.
    #[error("`{0}` is not like `refused > 1%`")]
    Shape(String),
    /// An unknown measure.
    #[error("`{0}` is not known; it can be {known}", known = names())]
    Measure(String),
    /// A percentage of something that is only counted.
    #[error("`{0}` is a number, not a share: leave out the `%`")]
    NoShare(String),
}

fn names() -> String {
    MEASURES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

impl std::str::FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shape = || ThresholdError::Shape(text.to_owned());
        let at = text.find(['<', '>']).ok_or_else(shape)?;
        let (name, rest) = text.split_at(at);
        let name = name.trim();
        let known = Measure::from_name(name);
        let measure = known.ok_or_else(|| ThresholdError::Measure(name.to_owned()))?;
        let signs = [
            (">=", Comparison::AtLeast),
            ("<=", Comparison::AtMost),
            (">", Comparison::Above),
            ("<", Comparison::Below),
        ];
        let found = signs.iter().find_map(|(sign, is)| Some((rest.strip_prefix(sign)?, *is)));
        let (number, comparison) = found.ok_or_else(shape)?;
        let number = number.trim();
        let is_percent = number.ends_with('%');
        let value: f64 = number.trim_end_matches('%').trim().parse().map_err(|_| shape())?;
        if !value.is_finite() || value < 0.0 {
            return Err(shape());
        }
        if is_percent && matches!(measure, Measure::CallersFlipped | Measure::Findings) {
            return Err(ThresholdError::NoShare(name.to_owned()));
        }
        Ok(Threshold { measure, comparison, value, is_percent, text: text.trim().to_owned() })
    }
}

impl Threshold {
    /// The sentence that says how a report fails the condition, if it does.
    pub fn failure(&self, report: &ReplayReport) -> Option<String> {
        let (count, of) = self.measured(report);
        let measured = if self.is_percent { share(count, of) * 100.0 } else { number(count) };
        let fails = match self.comparison {
            Comparison::Above => measured > self.value,
            Comparison::AtLeast => measured >= self.value,
            Comparison::Below => measured < self.value,
            Comparison::AtMost => measured <= self.value,
        };
        let unit = if self.is_percent { " %" } else { "" };
        let shown = if self.is_percent { format!("{measured:.3}") } else { count.to_string() };
        fails.then(|| format!("{}: it is {shown}{unit}", self.text))
    }

    fn measured(&self, report: &ReplayReport) -> (u64, u64) {
        let requests = report.new.requests;
        let flips = report.flips.as_ref();
        let flipped = |of: fn(&super::report::FlipReport) -> u64| flips.map_or(0, of);
        match self.measure {
            Measure::Refused => (report.new.refused, requests),
            Measure::WouldRefuse => (report.new.would_refuse, requests),
            Measure::NewlyRefused => (flipped(|flips| flips.newly_refused), requests),
            Measure::NewlyAdmitted => (flipped(|flips| flips.newly_admitted), requests),
            Measure::Flips => {
                (flipped(|flips| flips.newly_refused + flips.newly_admitted), requests)
            }
            Measure::CallersFlipped => (flipped(|flips| flips.callers), 1),
            Measure::Unreadable => {
                (report.unreadable(), report.logs.iter().map(|log| log.lines).sum())
            }
            Measure::Unlimited => (report.new.unlimited, requests),
            Measure::DifferentVerdicts => {
                report.verdicts.map_or((0, 1), |one| (one.different, one.compared))
            }
            Measure::Findings => {
                let faults = report.findings.iter().filter(|found| found.kind.is_fault());
                (u64::try_from(faults.count()).unwrap_or(u64::MAX), 1)
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a threshold needs no more than 52 bits")]
const fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_that_cannot_be_read_are_refused() {
        let error = |text: &str| text.parse::<Threshold>().unwrap_err().to_string();
        assert_eq!(error("refused"), "`refused` is not like `refused > 1%`");
        assert!(error("refusd > 1%").contains("it can be refused, would_refuse"));
        assert!(error("refused > x").contains("is not like"));
        assert!(error("refused > nan").contains("is not like"));
        assert!(error("findings > 1%").contains("leave out the `%`"));
        for text in ["refused > 1%", "flips>=0", "unreadable <= 0.5 %"] {
            assert!(text.parse::<Threshold>().is_ok(), "{text}");
        }
    }
}
