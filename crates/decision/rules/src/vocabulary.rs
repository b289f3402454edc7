//! Every key of the rule language, once.
//!
//! The reader, the hints and the schema all work from this table, so a key
//! that is added here is known, explained and completed everywhere. What the
//! keys mean is in the table's texts; how they are read is in `document`.

use crate::choices::{
    AlgorithmName, Charge, Consistency, Mode, OnStoreError, RefusalStatus, Unit, WhenOver,
};
use crate::diagnostics::closest;

/// A kind of mapping in a rule file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Root,
    Descriptor,
    Limit,
    Replaced,
    Plan,
    PlanChoice,
    Address,
    Soft,
}

impl Place {
    pub(crate) const ALL: [Place; 8] = [
        Place::Root,
        Place::Descriptor,
        Place::Limit,
        Place::Replaced,
        Place::Plan,
        Place::PlanChoice,
        Place::Address,
        Place::Soft,
    ];

    /// Where that is, for messages.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Place::Root => "at the top level of the file",
            Place::Descriptor => "in a descriptor",
            Place::Limit => "in a limit (`rate_limit` or an item of `limits`)",
            Place::Replaced => "in an item of `replaces`",
            Place::Plan => "in a plan",
            Place::PlanChoice => "in `plan`",
            Place::Address => "in `address`",
            Place::Soft => "in `soft`",
        }
    }

    /// Whether envoyproxy/ratelimit has such a mapping too.
    pub(crate) const fn is_upstream(self) -> bool {
        matches!(self, Place::Root | Place::Descriptor | Place::Limit | Place::Replaced)
    }

    /// Its name in the schema.
    pub(crate) const fn schema_name(self) -> &'static str {
        match self {
            Place::Root => "root",
            Place::Descriptor => "descriptor",
            Place::Limit => "limit",
            Place::Replaced => "replaced",
            Place::Plan => "plan",
            Place::PlanChoice => "plan_choice",
            Place::Address => "address",
            Place::Soft => "soft",
        }
    }
}

/// What stands after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Text; numbers and booleans count as their text.
    Text,
    /// Text that must not be empty.
    FilledText,
    Flag,
    Count {
        least: u64,
        most: u64,
    },
    Choice(&'static [&'static str]),
    /// One of the words in any case.
    AnyCaseChoice(&'static [&'static str]),
    Duration,
    Percent,
    One(Place),
    Many(Place),
    /// Names to mappings.
    Named(Place),
    Cidrs,
    /// `true`, or a mapping.
    FlagOr(Place),
    /// Text, or a mapping.
    TextOr(Place),
    Anything,
}

/// One key in one place.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) place: Place,
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) required: bool,
    /// Whether envoyproxy/ratelimit knows the word; it does not mind where it stands.
    pub(crate) upstream: bool,
    /// The algorithms that the key has a meaning for; all when empty.
    pub(crate) algorithms: &'static [AlgorithmName],
    pub(crate) about: &'static str,
}

const fn key(place: Place, name: &'static str, shape: Shape, about: &'static str) -> Key {
    Key { place, name, shape, required: false, upstream: false, algorithms: &[], about }
}

impl Key {
    const fn upstream(self) -> Self {
        Key { upstream: true, ..self }
    }

    const fn required(self) -> Self {
        Key { required: true, ..self }
    }

    const fn only(self, algorithms: &'static [AlgorithmName]) -> Self {
        Key { algorithms, ..self }
    }
}

use AlgorithmName::{
    Concurrency as InFlight, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
};
use Place::{Address, Descriptor, Limit, Plan, PlanChoice, Replaced, Root, Soft};
use Shape::{
    AnyCaseChoice, Anything, Choice, Cidrs, Count, Duration, FilledText, Flag, FlagOr, Many, Named,
    One, Percent, Text, TextOr,
};

const ANY_COUNT: Shape = Count { least: 0, most: u64::MAX };
const PERCENTAGE: Shape = Count { least: 0, most: 100 };
const TIMED: &[AlgorithmName] = &[FixedWindow, SlidingWindow, SlidingLog, TokenBucket, LeakyBucket];
const COUNTING: &[AlgorithmName] = &[FixedWindow, SlidingWindow, SlidingLog];

/// The whole language, in the order in which it is explained.
#[rustfmt::skip]
pub(crate) static KEYS: &[Key] = &[
    key(Root, "domain", FilledText, "The namespace of these rules. Requests name it.").upstream().required(),
    key(Root, "descriptors", Many(Descriptor), "The rules: a tree, matched entry by entry.").upstream(),
    key(Root, "charge", Choice(Charge::WORDS), "Who is charged when one limit of a request refuses: nobody (the default), or every limit that matched, as envoyproxy/ratelimit has it."),
    key(Root, "store_deadline", Duration, "How long the shared store may take for a request of this domain before it counts as failed, such as `20ms`. Default: the service's `store.redis.deadline`."),
    key(Root, "plans", Named(Plan), "Named sets of limits that descriptors can refer to with `plan`."),

    key(Descriptor, "key", FilledText, "The key of the request's entry.").upstream().required(),
    key(Descriptor, "value", Text, "The value of the request's entry; `*` stands for any characters. Without it every value matches and is counted on its own.").upstream(),
    key(Descriptor, "cidr", Cidrs, "Address ranges that the value must be in, instead of `value`. The longest prefix wins."),
    key(Descriptor, "address", FlagOr(Address), "Values are IP addresses: IPv4-mapped IPv6 counts as IPv4, and IPv6 is counted by prefix."),
    key(Descriptor, "rate_limit", One(Limit), "The limit of this rule.").upstream(),
    key(Descriptor, "limits", Many(Limit), "Several limits of this rule; all of them hold. Instead of `rate_limit`."),
    key(Descriptor, "plan", TextOr(PlanChoice), "The plan whose limits this rule has: a name, or where to find the name."),
    key(Descriptor, "descriptors", Many(Descriptor), "Rules for the entries that follow this one.").upstream(),
    key(Descriptor, "mode", Choice(Mode::WORDS), "What this rule's limits do with their answer: hold it (the default), only report it, or nothing at all."),
    key(Descriptor, "enforce_percent", PERCENTAGE, "The share of keys for which this rule's limits are enforced; the others are in shadow mode. Default 100."),
    key(Descriptor, "shadow_mode", Flag, "The same as `mode: shadow`.").upstream(),
    key(Descriptor, "quota_mode", Flag, "A request is refused for its quota limits only when all of them are used up.").upstream(),
    key(Descriptor, "share_threshold", Flag, "All values that match the pattern or the range share one counter.").upstream(),
    key(Descriptor, "detailed_metric", Flag, "The metric of this rule carries every key and value of the request.").upstream(),
    key(Descriptor, "value_to_metric", Flag, "The metric of this rule carries the request's value at this level.").upstream(),
    key(Descriptor, "metadata", Anything, "Free data that is returned to the caller when this rule admits a request.").upstream(),

    key(Limit, "unit", AnyCaseChoice(Unit::WORDS), "The unit of time. A month is 30 days and a year 365, unless `calendar` is set.").upstream().only(TIMED),
    key(Limit, "requests_per_unit", ANY_COUNT, "How much is allowed per unit of time; for `concurrency`, at once. Absent means zero: always over.").upstream(),
    key(Limit, "unlimited", Flag, "Never limited and never counted.").upstream(),
    key(Limit, "name", Text, "A name for answers, for `replaces`, and to keep a limit's usage when the list of limits changes.").upstream(),
    key(Limit, "replaces", Many(Replaced), "Named limits that do not apply when this one matches in the same request.").upstream(),
    key(Limit, "algorithm", Choice(AlgorithmName::WORDS), "How to limit. Default `fixed_window`."),
    key(Limit, "per", Duration, "The length of time instead of a unit, from 1ms to 366d: `500ms`, `30s`, `5m`, `1h30m`, `7d`, `2w`.").only(TIMED),
    key(Limit, "burst", ANY_COUNT, "How much can be used at once from a full bucket. Default `requests_per_unit`.").only(&[TokenBucket]),
    key(Limit, "queue", ANY_COUNT, "How many may wait their turn. Default `requests_per_unit`.").only(&[LeakyBucket]),
    key(Limit, "buckets", Count { least: 1, most: tidegate_algorithms::SLICES_MAX as u64 }, "Into how many slices the window is cut; more are more exact. Default 1.").only(&[SlidingWindow]),
    key(Limit, "calendar", Flag, "The window is a day, week, month or year of the calendar.").only(&[FixedWindow]),
    key(Limit, "time_zone", FilledText, "The time zone of the calendar, such as `Europe/Berlin`. Default `UTC`.").only(&[FixedWindow]),
    key(Limit, "count_refused", Flag, "Refused requests count too: who keeps retrying stays out.").only(COUNTING),
    key(Limit, "time_to_live", Duration, "After how long a slot that nobody renews comes back by itself. Default `60s`.").only(&[InFlight]),
    key(Limit, "mode", Choice(Mode::WORDS), "What this limit does with its answer; overrides the rule's `mode`."),
    key(Limit, "enforce_percent", PERCENTAGE, "The share of keys for which this limit is enforced; overrides the rule's."),
    key(Limit, "soft", One(Soft), "The limit may be exceeded by so much, for so long."),
    key(Limit, "on_store_error", Choice(OnStoreError::WORDS), "What decides while the shared store cannot be asked. Default `local`."),
    key(Limit, "consistency", Choice(Consistency::WORDS), "How closely processes that share this limit agree. Default `exact`."),
    key(Limit, "when_over", Choice(WhenOver::WORDS), "What happens to a request over the limit. Default `refuse`."),
    key(Limit, "refusal_status", Choice(RefusalStatus::WORDS), "The HTTP status of this limit's refusals. Default: the route's, or 429."),
    key(Limit, "cost", Count { least: 1, most: u64::MAX }, "What one hit costs of this limit. Default 1."),

    key(Replaced, "name", FilledText, "The name of the limit that does not apply.").upstream().required(),

    key(Plan, "limits", Many(Limit), "The plan's limits. The same name in two plans keeps usage across a change of plan.").required(),

    key(PlanChoice, "from", Choice(&["value"]), "Where the plan's name is: in the value of the request's entry.").required(),
    key(PlanChoice, "default", FilledText, "The plan for values that name no plan. Without it they are not limited here."),

    key(Address, "v4", Count { least: 0, most: 32 }, "IPv4 addresses with this prefix length in common share a counter. Default 32."),
    key(Address, "v6", Count { least: 0, most: 128 }, "IPv6 addresses with this prefix length in common share a counter. Default 64."),

    key(Soft, "over", Percent, "How far above the limit, such as `20%`.").required(),
    key(Soft, "for", Duration, "For how long, such as `30s`; then the limit is hard for one of its periods.").required(),
];

/// Words that people bring from elsewhere, and what they are called here.
static ELSEWHERE: &[(&str, &str)] = &[
    ("limit", "requests_per_unit"),
    ("requests", "requests_per_unit"),
    ("rate", "requests_per_unit"),
    ("count", "requests_per_unit"),
    ("max", "requests_per_unit"),
    ("window", "per"),
    ("period", "per"),
    ("interval", "per"),
    ("duration", "per"),
    ("ttl", "time_to_live"),
    ("rules", "descriptors"),
    ("shadow", "shadow_mode"),
    ("dry_run", "shadow_mode"),
    ("type", "algorithm"),
    ("strategy", "algorithm"),
    ("tz", "time_zone"),
    ("ip", "cidr"),
];

/// The key of this name in this place.
pub(crate) fn find(place: Place, name: &str) -> Option<&'static Key> {
    keys_of(place).find(|key| key.name == name)
}

/// The keys of a place.
pub(crate) fn keys_of(place: Place) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.place == place)
}

/// The places that know this word.
pub(crate) fn places_of(name: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.name == name)
}

/// What an unknown key was probably meant to be.
pub(crate) fn suggestion(place: Place, written: &str) -> String {
    let words = || keys_of(place).map(|key| key.name);
    let from_elsewhere =
        ELSEWHERE.iter().find(|(word, ours)| *word == written && words().any(|word| word == *ours));
    if let Some((_, ours)) = from_elsewhere {
        return format!("use `{ours}`");
    }
    if let Some(word) = closest(written, words()) {
        return format!("did you mean `{word}`?");
    }
    if let Some(word) = closest(written, KEYS.iter().map(|key| key.name)) {
        let home = places_of(word).next().map_or("", |key| key.place.title());
        return format!("did you mean `{word}`, which belongs {home}?");
    }
    let all: Vec<&str> = words().collect();
    format!("known {} are {}", place.title(), all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_described_twice_in_one_place() {
        for (at, key) in KEYS.iter().enumerate() {
            let again = KEYS[at + 1..]
                .iter()
                .any(|other| (other.place, other.name) == (key.place, key.name));
            assert!(!again, "{}", key.name);
        }
    }

    #[test]
    fn every_upstream_word_is_known() {
        let words = [
            "domain",
            "key",
            "value",
            "descriptors",
            "rate_limit",
            "unit",
            "requests_per_unit",
            "unlimited",
            "shadow_mode",
            "quota_mode",
            "name",
            "replaces",
            "detailed_metric",
            "value_to_metric",
            "share_threshold",
            "metadata",
        ];
        for word in words {
            assert!(places_of(word).any(|key| key.upstream), "{word}");
        }
        let mut upstream: Vec<&str> =
            KEYS.iter().filter(|key| key.upstream).map(|key| key.name).collect();
        upstream.sort_unstable();
        upstream.dedup();
        assert_eq!(upstream.len(), words.len());
    }

    #[test]
    fn words_from_elsewhere_lead_to_keys_that_exist() {
        for (word, ours) in ELSEWHERE {
            assert!(places_of(word).next().is_none(), "{word} is a key");
            assert!(places_of(ours).next().is_some(), "{ours} is no key");
        }
    }
}
