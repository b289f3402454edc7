//! Hints for descriptors that met no rule: what would have matched.

use std::collections::HashSet;

use tidegate_document::closest;
use tidegate_rules::{Domain, LevelExplanation, MatchOutcome, Rule, ShownValue, Snapshot};

/// The maximum of items that a hint lists.
const LISTED_MAX: usize = 8;

/// The hint for a descriptor that met no rule.
pub(super) fn hint(
    snapshot: &Snapshot,
    domain: &Domain,
    levels: &[LevelExplanation],
    ending: &MatchOutcome,
) -> Option<String> {
    let rules = || snapshot.rules().iter().filter(|rule| rule.domain() == domain.name());
    match ending {
        MatchOutcome::Rule { .. } | MatchOutcome::NoEntries => None,
        MatchOutcome::NoMatch => {
            let (last, before) = levels.split_last()?;
            if last.tried.is_empty() {
                return unknown_key(last, before);
            }
            let path = joined(before);
            let values =
                below(rules(), &path).filter_map(|rule| value_at(rule, before.len(), last));
            let values = unique(values);
            if let Some(value) = closest(&last.value, values.iter().copied()) {
                return Some(format!("did you mean `{}={value}`?", last.key));
            }
            Some(format!("the values of `{}` here: {}", last.key, list(&values)?))
        }
        MatchOutcome::NoLimitThere { path } => {
            let paths = unique(below(rules(), path).map(Rule::path));
            Some(format!("add the entries of a rule further down: {}", list(&paths)?))
        }
        MatchOutcome::NoSuchPlan { path } => {
            let plans = rules().filter(|rule| rule.path() == path).filter_map(Rule::plan);
            let plans = unique(plans);
            let value = levels.last().map_or("", |level| level.value.as_str());
            match closest(value, plans.iter().copied()) {
                Some(plan) => Some(format!("did you mean the plan `{plan}`?")),
                None => Some(format!("the plans are: {}", list(&plans)?)),
            }
        }
    }
}

fn unknown_key(last: &LevelExplanation, before: &[LevelExplanation]) -> Option<String> {
    let keys = last.known_keys.iter().map(String::as_str);
    if let Some(key) = closest(&last.key, keys) {
        return Some(format!("did you mean `{key}={}`?", last.value));
    }
    let path = joined(before);
    let nothing_below = last.known_keys.is_empty() && !path.is_empty();
    nothing_below.then(|| format!("leave out `{}`: nothing is below {path}", last.key))
}

/// The path that these levels matched.
fn joined(levels: &[LevelExplanation]) -> String {
    let matched: Vec<&str> = levels.iter().filter_map(|level| level.matched.as_deref()).collect();
    matched.join(".")
}

/// The rules further down than this path.
fn below<'s>(rules: impl Iterator<Item = &'s Rule>, path: &str) -> impl Iterator<Item = &'s Rule> {
    let start = if path.is_empty() { String::new() } else { format!("{path}.") };
    rules.filter(move |rule| rule.path().starts_with(&start))
}

/// The value that a rule has at a level, if its key is the same.
fn value_at<'s>(rule: &'s Rule, depth: usize, level: &LevelExplanation) -> Option<&'s str> {
    let found = rule.levels().get(depth).filter(|found| found.key() == level.key)?;
    match found.shown() {
        ShownValue::Written(text) | ShownValue::Shared(text) => Some(text),
        ShownValue::KeyOnly | ShownValue::Requested => None,
    }
}

/// Each text once, in the order of the rules.
fn unique<'s>(all: impl Iterator<Item = &'s str>) -> Vec<&'s str> {
    let mut seen = HashSet::new();
    all.filter(|text| seen.insert(*text)).collect()
}

/// The first texts, and how many more there are.
fn list(texts: &[&str]) -> Option<String> {
    let shown = texts.get(..LISTED_MAX).unwrap_or(texts).join(", ");
    match texts.len().saturating_sub(LISTED_MAX) {
        0 => (!texts.is_empty()).then_some(shown),
        more => Some(format!("{shown} and {more} more")),
    }
}
