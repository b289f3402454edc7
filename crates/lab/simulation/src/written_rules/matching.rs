//! Finds the limits of a request by trying every rule.

use std::collections::BTreeMap;

use tidegate_engine::{Mode, Percent};

use super::address::counted_under;
use super::{Kind, Level, Limits, Terms, Values, WrittenLimit, WrittenRule, WrittenRules};

/// A random request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DrawnRequest {
    pub(crate) descriptors: Vec<DrawnDescriptor>,
    pub(crate) cost: u64,
}

/// A descriptor's entries, and its own cost, if it has one.
pub(crate) type DrawnDescriptor = (Vec<(&'static str, String)>, Option<u64>);

/// A counter: its limit, and the values that it counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) limit: LimitName,
    pub(crate) values: Vec<String>,
}

/// The identity of a limit's usage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LimitName {
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) algorithm: &'static str,
}

/// Switches set at run time.
pub(crate) type Switches = BTreeMap<LimitName, Mode>;

/// A limit that should apply to a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExpectedVerdict {
    pub(crate) descriptor: usize,
    pub(crate) subject: Subject,
    pub(crate) terms: Terms,
    pub(crate) cost: u64,
    /// Never off: such a limit does not apply.
    pub(crate) mode: Mode,
    pub(crate) quota: bool,
}

impl WrittenRules {
    /// The limits that should apply, in the order of the descriptors.
    pub(crate) fn expect(&self, asked: &DrawnRequest, switches: &Switches) -> Vec<ExpectedVerdict> {
        let mut expected: Vec<(ExpectedVerdict, &WrittenLimit)> = Vec::new();
        let mut replaced: Vec<&str> = Vec::new();
        for (index, (entries, own_cost)) in asked.descriptors.iter().enumerate() {
            let Some((rule, values)) = self.find(entries) else { continue };
            if let Limits::Unlimited { replaces } = &rule.limits {
                replaced.extend(replaces.as_deref());
            }
            let last = entries.last().map_or("", |(_, value)| value);
            for limit in self.limits(rule, last) {
                let name = limit_name(rule.path(), limit);
                let mode = switches.get(&name).copied().unwrap_or_else(|| written(rule, limit));
                if mode == Mode::Off {
                    continue;
                }
                replaced.extend(limit.replaces.as_deref());
                let asked = own_cost.unwrap_or(asked.cost);
                // A request counts as one in flight whatever its cost.
                let in_flight = matches!(limit.terms.kind, Kind::Concurrency { .. });
                let asked = if in_flight { asked.min(1) } else { asked };
                let cost = asked.saturating_mul(limit.cost);
                let one = ExpectedVerdict {
                    descriptor: index,
                    subject: Subject { limit: name, values: values.clone() },
                    terms: limit.terms,
                    cost,
                    mode,
                    quota: rule.quota,
                };
                expected.push((one, limit));
            }
        }
        expected.retain(|(_, limit)| !replaced.contains(&limit.name.as_str()));
        expected.into_iter().map(|(one, _)| one).collect()
    }

    /// The rule of these entries, and the values that distinguish its counters.
    fn find(&self, entries: &[(&'static str, String)]) -> Option<(&WrittenRule, Vec<String>)> {
        let mut rules: Vec<&WrittenRule> = self.rules.iter().collect();
        let mut values = Vec::new();
        for (depth, (key, value)) in entries.iter().enumerate() {
            let levels = rules.iter().filter_map(|rule| rule.levels.get(depth));
            let matching = levels.filter(|level| level.key == *key && takes(level, value));
            // The closest match wins, without backtracking.
            let level = matching.max_by_key(|level| closeness(level))?;
            values.extend(counted(level, value));
            rules.retain(|rule| rule.levels.get(depth) == Some(level));
        }
        let rule = rules.into_iter().find(|rule| rule.levels.len() == entries.len())?;
        Some((rule, values))
    }
}

/// The identity of a limit's usage.
pub(crate) fn limit_name(path: String, limit: &WrittenLimit) -> LimitName {
    LimitName { path, name: limit.name.clone(), algorithm: limit.terms.algorithm() }
}

fn written(rule: &WrittenRule, limit: &WrittenLimit) -> Mode {
    let percent = limit.enforce_percent.or(rule.enforce_percent).unwrap_or(100);
    limit.mode.or(rule.mode).unwrap_or(Mode::ENFORCE).with_percent(Percent::new(percent))
}

fn takes(level: &Level, value: &str) -> bool {
    match &level.values {
        Values::Any | Values::PlanName | Values::Address => true,
        Values::Exactly(exact) => *exact == value,
        Values::Like { prefix, .. } => value.starts_with(prefix),
        Values::Within { net, .. } => net.holds(value),
    }
}

/// Exact before pattern before range, the longest first, before any value.
const fn closeness(level: &Level) -> u32 {
    match &level.values {
        Values::Any | Values::PlanName | Values::Address => 0,
        Values::Within { net, .. } => 1 + net.length,
        Values::Like { .. } => 1_000,
        Values::Exactly(_) => 1_001,
    }
}

fn counted(level: &Level, value: &str) -> Option<String> {
    match &level.values {
        Values::Any | Values::Like { shared: false, .. } => Some(value.to_owned()),
        Values::Address | Values::Within { shared: false, .. } => Some(counted_under(value)),
        Values::PlanName
        | Values::Exactly(_)
        | Values::Like { shared: true, .. }
        | Values::Within { shared: true, .. } => None,
    }
}
