//! What counters are called in words, as envoyproxy/ratelimit writes them.
//!
//! `domain_key_value_key_value_`: the store puts its prefix before it and the
//! window behind it. Where values share a counter, the rule's pattern stands
//! for all of them. Upstream has one limit for each descriptor; where a rule
//! here has several, the second and later ones are numbered, so that they do not
//! count together. The names are ambiguous (`a_b` and `c`, `a` and `b_c`), as
//! upstream's are: nothing but a store that shares its keys uses them.

use std::fmt::Write;

use tidegate_rules::{Entry, Rule, Shown};

use crate::loaded::Loaded;
use crate::request::Request;
use crate::verdict::{Met, Ruling};

/// The name of the counter behind each ruling.
pub(crate) fn of(
    loaded: &Loaded,
    request: &Request<'_>,
    met: &Met,
    rulings: &[Ruling],
) -> Vec<String> {
    let name_of = |ruling: &Ruling| {
        let index = ruling.descriptor as usize;
        let entries = request.descriptors.get(index).map_or(&[][..], |found| found.entries);
        let found = met.get(index).copied().flatten();
        // A limit that the request brought along belongs to no rule.
        let rule = ruling.limit.and(found).and_then(|rule| loaded.snapshot().rule(rule));
        let limits = rule.map(Rule::limits).unwrap_or_default();
        let place = limits.iter().position(|limit| Some(*limit) == ruling.limit);
        name(request.domain, entries, rule, place.unwrap_or(0))
    };
    rulings.iter().map(name_of).collect()
}

fn name(domain: &str, entries: &[Entry<'_>], rule: Option<&Rule>, place: usize) -> String {
    let mut name = format!("{domain}_");
    let levels = rule.map(Rule::levels).unwrap_or_default();
    for (place, entry) in entries.iter().enumerate() {
        let value = match levels.get(place).map(tidegate_rules::Level::shown) {
            Some(Shown::Shared(pattern)) => pattern,
            _ => entry.value,
        };
        // Writing to a string cannot fail.
        let _ = write!(name, "{}_{value}_", entry.key);
    }
    if place > 0 {
        let _ = write!(name, "limit{}_", place + 1);
    }
    name
}
