//! Explains which rule a request matches.
//!
//! For people at a terminal: takes the same steps through the tree as a request, and records what was tried at each
//! level. Not on the hot path.

use std::fmt;

use serde::Serialize;

use tidegate_algorithms::Timestamp;

use crate::matching::{Edge, End, Fork, Way};
use crate::snapshot::{Domain, Entry, KeyValue, counted};

/// How a descriptor was matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The domain.
    pub domain: String,
    /// One for each entry, up to the one where matching stopped.
    pub levels: Vec<LevelExplanation>,
    /// The result.
    pub ending: MatchOutcome,
}

/// What happened at one level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LevelExplanation {
    /// The entry's key.
    pub key: String,
    /// The entry's value.
    pub value: String,
    /// What was tried, in order; the last one matched unless nothing did.
    pub tried: Vec<Attempt>,
    /// The part of the rule's path that matched.
    pub matched: Option<String>,
    /// The address range that matched, which may be one of several in the rule.
    pub range: Option<String>,
    /// The part of the value that selects the counter.
    pub counted_by: Option<String>,
    /// The keys of this level, if the entry's key is none of them.
    pub known_keys: Vec<String>,
}

/// One way of matching that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// Which way.
    pub way: Way,
    /// Whether it matched.
    pub matched: bool,
}

/// The result of matching.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchOutcome {
    /// A rule applies.
    Rule {
        /// Its path.
        path: String,
        /// The plan that its limits come from.
        plan: Option<String>,
        /// The terms of the client's row.
        #[serde(skip_serializing_if = "Option::is_none")]
        terms: Option<String>,
        /// How many limits it has; none when it is unlimited.
        limits: usize,
    },
    /// The last entry leads to a descriptor without a limit.
    NoLimitThere {
        /// Its path.
        path: String,
    },
    /// The last entry's value names no plan, and there is no default.
    NoSuchPlan {
        /// The descriptor's path.
        path: String,
    },
    /// An entry matches nothing. Less specific rules are not tried.
    NoMatch,
    /// The descriptor has no entries.
    NoEntries,
}

pub(crate) fn explain(domain: &Domain, entries: &[Entry<'_>], now: Timestamp) -> Explanation {
    let mut fork = domain.tree.top().below;
    let mut end = End::Nothing;
    let mut levels = Vec::new();
    let mut path = Vec::new();
    for entry in entries {
        let (level, next) = explain_level(domain, fork, *entry);
        path.extend(level.matched.clone());
        levels.push(level);
        match next {
            Some(edge) => (fork, end) = (edge.below, edge.end),
            None => break,
        }
    }
    let arrived = path.len() == entries.len();
    let path = path.join(".");
    let ending = if entries.is_empty() {
        MatchOutcome::NoEntries
    } else if !arrived {
        MatchOutcome::NoMatch
    } else if let Some(rule) = domain.rule_at(end, entries, now) {
        MatchOutcome::Rule {
            path,
            plan: rule.plan().map(str::to_owned),
            terms: rule.terms().map(str::to_owned),
            limits: rule.limits().len(),
        }
    } else if matches!(end, End::Choice(_)) {
        MatchOutcome::NoSuchPlan { path }
    } else {
        MatchOutcome::NoLimitThere { path }
    };
    Explanation { domain: domain.name().to_owned(), levels, ending }
}

fn explain_level(
    domain: &Domain,
    fork: Fork,
    entry: Entry<'_>,
) -> (LevelExplanation, Option<Edge>) {
    let step = domain.tree.step(fork, entry.key, entry.value);
    let ways = domain.tree.ways(fork, entry.key);
    let known_keys = match ways {
        Some(_) => Vec::new(),
        None => domain.tree.keys_at(fork).into_iter().map(str::to_owned).collect(),
    };
    let mut tried = Vec::new();
    for way in ways.into_iter().flatten() {
        let matched = step.is_some_and(|step| step.way == way);
        tried.push(Attempt { way, matched });
        if matched {
            break;
        }
    }
    let label = step.and_then(|step| domain.labels.get(step.edge.child.index()));
    let counted_by = step.and_then(|step| counted(step.edge.count_by, entry.value));
    let level = LevelExplanation {
        key: entry.key.to_owned(),
        value: entry.value.to_owned(),
        tried,
        matched: label.map(ToString::to_string),
        range: step.and_then(|step| step.range).map(|range| range.to_string()),
        counted_by: counted_by.map(|value| match value {
            KeyValue::Text(text) => text.to_owned(),
            KeyValue::Net(net) => net.to_string(),
        }),
        known_keys,
    };
    (level, step.map(|step| *step.edge))
}

impl fmt::Display for Way {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Way::Exact => "exact value",
            Way::Pattern => "patterns",
            Way::Cidr => "address ranges",
            Way::BareKey => "bare key",
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "domain {}", self.domain)?;
        for (at, level) in self.levels.iter().enumerate() {
            writeln!(out, "{}. ({}, {})", at + 1, level.key, level.value)?;
            if level.tried.is_empty() {
                let known = level.known_keys.join(", ");
                writeln!(out, "   no such key here; known are: {known}")?;
            }
            for attempt in &level.tried {
                let result = match (&level.matched, attempt.matched, &level.range) {
                    (Some(label), true, Some(range)) => format!("{range} matches {label}"),
                    (Some(label), true, None) => format!("matches {label}"),
                    _ => "no match".to_owned(),
                };
                writeln!(out, "   {}: {result}", attempt.way)?;
            }
            if let Some(value) = &level.counted_by {
                writeln!(out, "   counted apart by {value}")?;
            }
        }
        writeln!(out, "{}", self.ending)
    }
}

impl fmt::Display for MatchOutcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MatchOutcome::Rule {
                path,
                plan,
                terms,
                limits,
            } => {
                write!(out, "rule {path} applies")?;
                if let Some(plan) = plan {
                    write!(out, " with plan {plan}")?;
                }
                if let Some(terms) = terms {
                    write!(out, " with the row's terms `{terms}`")?;
                }
                match limits {
                    0 => out.write_str(": unlimited"),
                    1 => out.write_str(": 1 limit"),
                    more => write!(out, ": {more} limits"),
                }
            }
            MatchOutcome::NoLimitThere { path } => {
                write!(out, "no limit: the last entry leads to {path}, which has none")
            }
            MatchOutcome::NoSuchPlan { path } => write!(
                out,
                "no limit: the last value names no plan, and {path} has no default"
            ),
            MatchOutcome::NoMatch => out.write_str(
                "no limit: the last entry shown leads nowhere, and a less specific rule is not tried",
            ),
            MatchOutcome::NoEntries => out.write_str("no limit: a descriptor without entries matches nothing"),
        }
    }
}
