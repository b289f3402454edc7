//! What would have matched, where nothing did.

use std::collections::HashSet;

use tidegate_rules::{Domain, LevelExplanation, MatchOutcome, Rule, ShownValue, Snapshot};

use crate::suggest::closest;

/// The most things that a hint lists.
const LISTED_MAX: usize = 8;

/// What to say to somebody whose descriptor met no rule.
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
            let values = listed(values);
            if let Some(value) = closest(&last.value, values.iter().copied()) {
                return Some(format!("did you mean `{}={value}`?", last.key));
            }
            let there = (!values.is_empty()).then(|| list(&values))?;
            Some(format!("the values of `{}` here: {there}", last.key))
        }
        MatchOutcome::NoLimitThere { path } => {
            let paths = listed(below(rules(), path).map(Rule::path));
            let there = (!paths.is_empty()).then(|| list(&paths))?;
            Some(format!("add the entries of a rule further down: {there}"))
        }
        MatchOutcome::NoSuchPlan { path } => {
            let plans = rules().filter(|rule| rule.path() == path).filter_map(Rule::plan);
            let plans = listed(plans);
            let value = levels.last().map_or("", |level| level.value.as_str());
            match closest(value, plans.iter().copied()) {
                Some(plan) => Some(format!("did you mean the plan `{plan}`?")),
                None => Some(format!("the plans are: {}", list(&plans))),
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

/// The value that a rule has at a level, if the level's key is the one meant.
fn value_at<'s>(rule: &'s Rule, depth: usize, meant: &LevelExplanation) -> Option<&'s str> {
    let level = rule.levels().get(depth).filter(|level| level.key() == meant.key)?;
    match level.shown() {
        ShownValue::Written(text) | ShownValue::Shared(text) => Some(text),
        ShownValue::KeyOnly | ShownValue::Requested => None,
    }
}

/// Each one once, in the order of the rules.
fn listed<'s>(all: impl Iterator<Item = &'s str>) -> Vec<&'s str> {
    let mut seen = HashSet::new();
    all.filter(|text| seen.insert(*text)).collect()
}

fn list(texts: &[&str]) -> String {
    let shown = texts.get(..LISTED_MAX).unwrap_or(texts).join(", ");
    match texts.len().saturating_sub(LISTED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
