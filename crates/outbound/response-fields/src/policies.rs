//! Quotas that an answer names: `RateLimit` and `RateLimit-Policy`, their predecessors, and the vendors' fields.

use compact_str::CompactString;
use http::HeaderMap;
use tidegate_algorithms::{Nanos, Timestamp};

use crate::span::{read_integer, read_reset};
use crate::structured::{BareItem, FIELD_BYTES_MAX, Item, read_list};
use crate::text;

/// Quotas read from one answer. Tidegate shows at most sixteen.
pub const POLICIES_MAX: usize = 16;
/// Bytes kept of a quota's name.
pub const NAME_BYTES_MAX: usize = 128;

/// One quota, as far as an answer says something about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyReading {
    /// Its name; empty if the fields have none.
    pub name: CompactString,
    /// What it counts.
    pub unit: PolicyUnit,
    /// How much it allows in its window.
    pub quota: Option<u64>,
    /// Its window.
    pub window: Option<Nanos>,
    /// How much is left.
    pub remaining: Option<u64>,
    /// When there is more, or all of it again.
    pub reset: Option<Nanos>,
}

/// What a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyUnit {
    /// Requests.
    Requests,
    /// Requests in flight.
    Concurrency,
    /// Something else: bytes, tokens. A caller cannot pace requests by it.
    Other,
}

/// Fields of three: limit, remaining and reset, and the unit that they count.
const TRIPLES: [(&str, &str, &str, &str, PolicyUnit); 8] = [
    ("", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", PolicyUnit::Requests),
    ("", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", PolicyUnit::Requests),
    (
        "",
        "x-rate-limit-limit",
        "x-rate-limit-remaining",
        "x-rate-limit-reset",
        PolicyUnit::Requests,
    ),
    (
        "requests",
        "x-ratelimit-limit-requests",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
        PolicyUnit::Requests,
    ),
    (
        "tokens",
        "x-ratelimit-limit-tokens",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-tokens",
        PolicyUnit::Other,
    ),
    (
        "requests",
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
        PolicyUnit::Requests,
    ),
    (
        "input-tokens",
        "anthropic-ratelimit-input-tokens-limit",
        "anthropic-ratelimit-input-tokens-remaining",
        "anthropic-ratelimit-input-tokens-reset",
        PolicyUnit::Other,
    ),
    (
        "output-tokens",
        "anthropic-ratelimit-output-tokens-limit",
        "anthropic-ratelimit-output-tokens-remaining",
        "anthropic-ratelimit-output-tokens-reset",
        PolicyUnit::Other,
    ),
];

/// Reads all quotas. The structured fields say the most: where they are there, the others repeat one of them.
pub(crate) fn read_policies(headers: &HeaderMap, now: Timestamp) -> Vec<PolicyReading> {
    let mut policies = Vec::new();
    for item in lists(headers, "ratelimit-policy") {
        read_policy(&item, &mut policies);
    }
    for item in lists(headers, "ratelimit") {
        read_state(&item, &mut policies);
    }
    if policies.is_empty() {
        policies.extend(TRIPLES.iter().filter_map(|triple| read_triple(headers, triple, now)));
    }
    policies.truncate(POLICIES_MAX);
    policies
}

/// The members of all lines of a field.
fn lists<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = Item<'a>> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    // Many long lines are no reason to read more than one of the longest.
    let mut bytes = 0;
    lines
        .take_while(move |line| {
            bytes += line.len();
            bytes <= FIELD_BYTES_MAX
        })
        .filter_map(read_list)
        .flatten()
}

/// `"hourly";q=100;w=3600`; before draft 8 `100;w=3600`.
fn read_policy(item: &Item<'_>, policies: &mut Vec<PolicyReading>) {
    if policies.len() >= POLICIES_MAX || item.key.is_some() {
        return;
    }
    let quota = match item.value {
        BareItem::Number(number) => u64::try_from(number).ok(),
        BareItem::Text(_) => item.number("q"),
        BareItem::Other => return,
    };
    let unit = match item.text("qu") {
        None | Some("requests") => PolicyUnit::Requests,
        Some("concurrent-requests") => PolicyUnit::Concurrency,
        Some(_) => PolicyUnit::Other,
    };
    let window = item.number("w").map(Nanos::from_secs);
    let name = name_of(item);
    policies.push(PolicyReading { name, unit, quota, window, remaining: None, reset: None });
}

/// `"hourly";r=4;t=720`; before draft 8 `limit=100, remaining=4, reset=720`.
fn read_state(item: &Item<'_>, policies: &mut Vec<PolicyReading>) {
    let Some(key) = item.key else {
        let name = name_of(item);
        let (remaining, reset) = (item.number("r"), item.number("t").map(Nanos::from_secs));
        if let Some(policy) = policies.iter_mut().find(|policy| policy.name == name) {
            (policy.remaining, policy.reset) = (remaining, reset);
        } else if policies.len() < POLICIES_MAX {
            let unnamed = PolicyReading::unnamed(PolicyUnit::Requests);
            policies.push(PolicyReading { name, remaining, reset, ..unnamed });
        }
        return;
    };
    let BareItem::Number(number) = item.value else { return };
    let Ok(number) = u64::try_from(number) else { return };
    if policies.is_empty() {
        policies.push(PolicyReading::unnamed(PolicyUnit::Requests));
    }
    // The members of a dictionary speak of one quota: of several policies, of the first.
    let policy = &mut policies[0];
    match key {
        "limit" => policy.quota = policy.quota.or(Some(number)),
        "remaining" => policy.remaining = Some(number),
        "reset" => policy.reset = Some(Nanos::from_secs(number)),
        _ => {}
    }
}

fn read_triple(
    headers: &HeaderMap,
    (name, limit, remaining, reset, unit): &(&'static str, &str, &str, &str, PolicyUnit),
    now: Timestamp,
) -> Option<PolicyReading> {
    // Some services list further windows behind the limit: `100, 100;w=60`.
    let first = |field: &str| Some(text(headers, field)?.split([',', ';']).next()?.trim());
    let quota = first(limit).and_then(read_integer);
    let remaining = first(remaining).and_then(read_integer);
    let reset = first(reset).and_then(|reset| read_reset(reset, now));
    (quota.is_some() || remaining.is_some()).then(|| PolicyReading {
        name: CompactString::const_new(name),
        quota,
        remaining,
        reset,
        ..PolicyReading::unnamed(*unit)
    })
}

fn name_of(item: &Item<'_>) -> CompactString {
    match &item.value {
        // A list is ASCII, so that every index is between characters.
        BareItem::Text(text) => text[..text.len().min(NAME_BYTES_MAX)].into(),
        BareItem::Number(_) | BareItem::Other => CompactString::const_new(""),
    }
}

impl PolicyReading {
    const fn unnamed(unit: PolicyUnit) -> Self {
        PolicyReading {
            name: CompactString::const_new(""),
            unit,
            quota: None,
            window: None,
            remaining: None,
            reset: None,
        }
    }
}
