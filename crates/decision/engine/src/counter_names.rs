//! The names of counters, as envoyproxy/ratelimit writes them.
//!
//! `domain_key_value_key_value_`: the store adds its prefix before it and the window after it. Where values share a
//! counter, the rule's pattern stands for them. Upstream has one limit per descriptor; where a rule has several, the
//! second and later are numbered, so that each has a counter. Names are ambiguous (`a_b` and `c`, `a` and `b_c`), as
//! upstream's are; only a store that shares keys with upstream uses them.

use std::fmt::Write;

use tidegate_rules::{Entry, Rule, ShownValue};

use crate::active_rules::ActiveRules;
use crate::request::Request;
use crate::verdict::{MatchedRules, Ruling};

/// The name of the counter behind each ruling.
pub(crate) fn counter_names(
    rules: &ActiveRules,
    request: &Request<'_>,
    matched: &MatchedRules,
    rulings: &[Ruling],
) -> Vec<String> {
    let name_of = |ruling: &Ruling| {
        let index = ruling.descriptor as usize;
        let entries = request.descriptors.get(index).map_or(&[][..], |found| found.entries);
        let id = matched.get(index).copied().flatten();
        // A limit that the request carries belongs to no rule.
        let rule = ruling.limit.and(id).and_then(|rule| rules.snapshot().rule(rule));
        let limits = rule.map(Rule::limits).unwrap_or_default();
        let position = limits.iter().position(|limit| Some(*limit) == ruling.limit);
        name(request.domain, entries, rule, position.unwrap_or(0))
    };
    rulings.iter().map(name_of).collect()
}

fn name(domain: &str, entries: &[Entry<'_>], rule: Option<&Rule>, position: usize) -> String {
    let mut name = format!("{domain}_");
    let levels = rule.map(Rule::levels).unwrap_or_default();
    for (level, entry) in entries.iter().enumerate() {
        let value = match levels.get(level).map(tidegate_rules::Level::shown) {
            Some(ShownValue::Shared(pattern)) => pattern,
            _ => entry.value,
        };
        // Writing to a string cannot fail.
        let _ = write!(name, "{}_{value}_", entry.key);
    }
    if position > 0 {
        let _ = write!(name, "limit{}_", position + 1);
    }
    name
}
