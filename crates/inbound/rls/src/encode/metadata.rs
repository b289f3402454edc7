//! Dynamic metadata of an answer, for the logs and routes of the proxy.
//!
//! Built for each answer. Upstream merges into the metadata of its loaded rules, so that metadata of one request shows up
//! in another.

use serde_json::{Map, Value, json};
use tidegate_engine::Verdict;

use super::answer::{Code, DescriptorStatus};
use crate::decode::{RateLimitRequest, RequestDescriptor};
use crate::settings::RlsSettings;
use crate::unit::UnitNumber;

/// Metadata members by name.
pub(crate) type Metadata = Map<String, Value>;

/// The metadata of one answer.
pub(crate) fn of(
    verdict: &Verdict,
    request: &RateLimitRequest<'_>,
    statuses: &[DescriptorStatus<'_>],
    settings: &RlsSettings,
) -> Metadata {
    let mut members = Map::new();
    members.insert("domain".to_owned(), request.domain.into());
    let descriptors = request.descriptors().iter().map(|each| describe(request, each));
    members.insert("descriptors".to_owned(), descriptors.collect());
    if request.hits != 0 {
        members.insert("hitsAddend".to_owned(), request.hits.into());
    }
    let mut merged = Map::new();
    for (rule, status) in verdict.matched_rules().zip(statuses) {
        let metadata = rule.and_then(|rule| rule.metadata()).and_then(Value::as_object);
        // Rules that are unlimited or replaced, or have no limit, show none.
        let shows = status.current_limit.is_some() && status.code != Code::OverLimit;
        if let Some(metadata) = metadata.filter(|_| shows) {
            merge(&mut merged, metadata);
        }
    }
    if !merged.is_empty() {
        members.insert("metadata".to_owned(), merged.into());
    }
    // Upstream has no such member.
    let refusal = if settings.upstream_errors { Map::new() } else { describe_refusal(verdict) };
    if !refusal.is_empty() {
        members.insert("tidegate".to_owned(), refusal.into());
    }
    members
}

fn describe(request: &RateLimitRequest<'_>, descriptor: &RequestDescriptor) -> Value {
    let entries = request.entries(descriptor).iter();
    let entries: Value = entries.map(|entry| format!("{}={}", entry.key, entry.value)).collect();
    let mut members = Map::new();
    members.insert("entries".to_owned(), entries);
    if let Some(limit) = descriptor.limit {
        let unit = UnitNumber::of(UnitNumber::read(limit.unit)).name();
        // As protobuf writes a message: without a number that is zero.
        let text = match limit.requests_per_unit {
            0 => format!("unit:{unit}"),
            quota => format!("requests_per_unit:{quota} unit:{unit}"),
        };
        members.insert("limit".to_owned(), text.into());
    }
    if let Some(hits) = descriptor.hits {
        members.insert("hitsAddend".to_owned(), hits.into());
    }
    members.into()
}

/// The limit that refused, and why it may not count.
fn describe_refusal(verdict: &Verdict) -> Metadata {
    let mut members = Map::new();
    if let Some(refusal) = verdict.refusal() {
        let mut by = Map::new();
        by.insert("domain".to_owned(), refusal.domain.into());
        by.insert("path".to_owned(), refusal.path.into());
        if let Some(limit) = refusal.limit {
            by.insert("limit".to_owned(), limit.into());
        }
        members.insert("refused_by".to_owned(), by.into());
    }
    let flags = [
        ("shadow", verdict.refused_in_shadow()),
        ("soft", verdict.is_soft()),
        ("switched_off", verdict.is_switched_off()),
        ("undecided", verdict.undecided().is_some()),
    ];
    for (name, _) in flags.into_iter().filter(|(_, holds)| *holds) {
        members.insert(name.to_owned(), json!(true));
    }
    members
}

/// Adds members that are missing; maps on both sides are merged. The depth is that of rule files, which is bounded.
fn merge(into: &mut Metadata, from: &Metadata) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (None, _) => _ = into.insert(key.clone(), value.clone()),
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            (Some(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_wins_and_maps_are_merged() {
        let mut merged = Map::new();
        let first = json!({"a": 1, "deep": {"x": 1, "deeper": {"p": 1}}, "text": "t"});
        let second =
            json!({"a": 2, "b": 2, "deep": {"x": 2, "y": 2, "deeper": {"q": 2}}, "text": {}});
        for each in [&first, &second] {
            merge(&mut merged, each.as_object().unwrap());
        }
        let expected = json!({
            "a": 1, "b": 2, "deep": {"x": 1, "y": 2, "deeper": {"p": 1, "q": 2}}, "text": "t"
        });
        assert_eq!(Value::Object(merged), expected);
    }
}
