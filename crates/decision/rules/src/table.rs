//! Every key of a rule file, once: its type, its marks, its meaning.
//!
//! Reader, hints and JSON Schema come from these declarations. The mark `upstream` says that envoyproxy/ratelimit
//! knows the word. The other marks name the algorithms that a key has a meaning for: their words, `timed` for all
//! with a length of time, `counting` for those that count hits; without one, all algorithms.

use tidegate_algorithms::{Charge, Consistency, Mode, OnStoreError, RoundingMode};
use tidegate_document::{Key, LocatedValue, MappingType, NameMap, ScalarOr, Word, mapping};

use crate::choices::{AlgorithmName, PlanSource, RefusalStatus, WhenOver};
use crate::document::{AddressRanges, Descriptor, LimitList, LimitText, Metadata};
use crate::kinds::{Interval, PlanName, RuleName, RuleText, SoftPercent, UnitText};

mapping! {
    /// the top level of the file
    pub(crate) RuleFileKeys "root" {
        /// The namespace of these rules. Requests name it.
        domain [upstream]: Option<LocatedValue<RuleName>> = required,
        /// The rules: a tree, matched entry by entry.
        descriptors [upstream]: Vec<Descriptor>,
        /// Which limits are charged when one limit of a request refuses: none of them (the default), or every limit
        /// that matched, as in envoyproxy/ratelimit.
        charge: Option<LocatedValue<Word<Charge>>>,
        /// How long the shared store may take for a request of this domain before it counts as failed, such as
        /// `20ms`. Default: `store.redis.deadline` of the configuration.
        store_deadline: Option<LocatedValue<Interval>>,
        /// Named sets of limits. Descriptors refer to them with `plan`.
        plans: Option<NameMap<PlanKeys>>,
        /// Tables of rows: limits of single clients. Descriptors refer to them with `overrides`.
        tables: Option<NameMap<TableKeys>>,
    }
}

mapping! {
    /// a descriptor
    pub(crate) DescriptorKeys "descriptor" {
        /// The key of the request's entry.
        key [upstream]: Option<LocatedValue<RuleName>> = required,
        /// The value of the request's entry; `*` stands for any characters. Without it every value matches and has a
        /// counter of its own.
        value [upstream]: Option<RuleText>,
        /// Address ranges that the value must be in, instead of `value`. The longest prefix wins.
        cidr: Option<AddressRanges>,
        /// Values are IP addresses. An IPv4-mapped IPv6 address counts as IPv4; IPv6 is counted by prefix.
        address: Option<ScalarOr<bool, AddressKeys>>,
        /// The limit of this rule.
        rate_limit [upstream]: Option<LimitText>,
        /// Several limits of this rule, all of which apply. Instead of `rate_limit`.
        limits: Option<LimitList>,
        /// The plan whose limits this rule has: a name, or where to find the name.
        plan: Option<LocatedValue<ScalarOr<PlanName, PlanChoiceKeys>>>,
        /// The table whose rows change the limits of this rule for single clients.
        overrides: Option<LocatedValue<RuleName>>,
        /// Rules for the next entry of the request.
        descriptors [upstream]: Vec<Descriptor>,
        /// What the limits of this rule do: `enforce` (the default) refuses, `shadow` only counts, `off` does
        /// nothing.
        mode: Option<LocatedValue<Word<Mode>>>,
        /// The percentage of keys for which the limits of this rule are enforced; for the others they are in shadow
        /// mode. Default 100.
        enforce_percent: Option<u64> = optional in 0..=100,
        /// The same as `mode: shadow`.
        shadow_mode [upstream]: Option<bool>,
        /// A request is refused by its quota limits only when all of them are used up.
        quota_mode [upstream]: Option<bool>,
        /// All values that match the pattern or the range share one counter.
        share_threshold [upstream]: Option<LocatedValue<bool>>,
        /// The metric of this rule has every key and value of the request.
        detailed_metric [upstream]: Option<bool>,
        /// The metric of this rule has the request's value at this level.
        value_to_metric [upstream]: Option<bool>,
        /// Any data; returned to the caller when this rule admits a request.
        metadata [upstream]: Option<Metadata>,
    }
}

mapping! {
    /// a limit (`rate_limit` or an item of `limits`)
    pub(crate) LimitKeys "limit" {
        /// The unit of time. A month is 30 days and a year 365, unless `calendar` is set.
        unit [upstream, timed]: Option<LocatedValue<UnitText>>,
        /// How many hits are allowed per unit of time; for `concurrency`, at once. Without it the limit is zero and
        /// refuses everything.
        requests_per_unit [upstream]: Option<u64> = optional in 0..=u64::MAX,
        /// Never limited and never counted.
        unlimited [upstream]: Option<bool>,
        /// A name for answers and for `replaces`. It also keeps the usage of a limit when the list of limits changes.
        name [upstream]: Option<RuleText>,
        /// Named limits that do not apply when this one matches in the same request.
        replaces [upstream]: Vec<LocatedValue<ReplacedKeys>>,
        /// How to limit. Default `fixed_window`.
        algorithm: Option<AlgorithmName>,
        /// The length of time instead of a unit, from 1ms to 366d: `500ms`, `30s`, `5m`, `1h30m`, `7d`, `2w`.
        per [timed]: Option<Interval>,
        /// How much can be used at once from a full bucket. Default `requests_per_unit`.
        burst [token_bucket]: Option<u64> = optional in 0..=u64::MAX,
        /// How many requests may wait for their turn. Default `requests_per_unit`.
        queue [leaky_bucket]: Option<u64> = optional in 0..=u64::MAX,
        /// The number of slices of the window; more are more exact. Default 1.
        buckets [sliding_window]: Option<u64> = optional in 1..=tidegate_algorithms::SLICES_MAX as u64,
        /// How the weighted use of the window is rounded to whole units. Default `up`.
        rounding [sliding_window]: Option<Word<RoundingMode>>,
        /// The window is a day, week, month or year of the calendar.
        calendar [fixed_window]: Option<bool>,
        /// The time zone of the calendar, such as `Europe/Berlin`. Default `UTC`.
        time_zone [fixed_window]: Option<LocatedValue<RuleName>>,
        /// Refused requests count too: a caller that keeps retrying stays refused.
        count_refused [counting]: Option<bool>,
        /// How long a slot is held that nobody renews. Default `60s`.
        time_to_live [concurrency]: Option<Interval>,
        /// What this limit does; overrides the rule's `mode`.
        mode: Option<Word<Mode>>,
        /// The percentage of keys for which this limit is enforced; overrides the rule's.
        enforce_percent: Option<u64> = optional in 0..=100,
        /// By how much, and for how long, the limit may be exceeded.
        soft: Option<LocatedValue<SoftKeys>>,
        /// What decides while the shared store is unavailable: `local` (this process, on its share of the limit; the
        /// default), `allow` or `deny`.
        on_store_error: Option<Word<OnStoreError>>,
        /// How closely processes that share this limit agree. Default `exact`.
        consistency: Option<Word<Consistency>>,
        /// What happens to a request over the limit. Default `refuse`.
        when_over: Option<WhenOver>,
        /// The HTTP status of this limit's refusals. Default: the route's, or 429.
        refusal_status: Option<RefusalStatus>,
        /// The cost of one hit. Default 1.
        cost: Option<u64> = optional in 1..=u64::MAX,
    }
}

mapping! {
    /// an item of `replaces`
    pub(crate) ReplacedKeys "replaced" {
        /// The name of the limit that does not apply.
        name [upstream]: Option<RuleName> = required,
    }
}

mapping! {
    /// a plan
    pub(crate) PlanKeys "plan" {
        /// The plan's limits. A limit with the same name in two plans keeps its usage when a caller changes plans.
        limits: Option<LimitList> = required,
    }
}

mapping! {
    /// a table
    pub(crate) TableKeys "table" {
        /// The key of the entry whose value is looked up, here or further up in the tree.
        key: Option<LocatedValue<RuleName>> = required,
        /// The CSV file with the rows, relative to this file. Without it the rows come from a control plane.
        file: Option<LocatedValue<RuleName>>,
    }
}

mapping! {
    /// `plan`
    pub(crate) PlanChoiceKeys "plan_choice" {
        /// Where the plan's name is: in the value of the request's entry.
        from: Option<PlanSource> = required,
        /// The plan for values that name no plan. Without it such requests are not limited by this rule.
        default: Option<LocatedValue<RuleName>>,
    }
}

mapping! {
    /// `address`
    pub(crate) AddressKeys "address" {
        /// IPv4 addresses with a common prefix of this length share a counter. Default 32.
        v4: Option<u64> = optional in 0..=32,
        /// IPv6 addresses with a common prefix of this length share a counter. Default 64.
        v6: Option<u64> = optional in 0..=128,
    }
}

mapping! {
    /// `soft`
    pub(crate) SoftKeys "soft" {
        /// How far above the limit, such as `20%`.
        over: Option<SoftPercent> = required,
        /// For how long, such as `30s`; then the limit is hard for one of its periods.
        lasting as "for": Option<Interval> = required,
    }
}

use AlgorithmName::{FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};

const TIMED: &[AlgorithmName] = &[FixedWindow, SlidingWindow, SlidingLog, TokenBucket, LeakyBucket];
const COUNTING: &[AlgorithmName] = &[FixedWindow, SlidingWindow, SlidingLog];

/// Whether envoyproxy/ratelimit knows the word. It accepts it anywhere.
pub(crate) fn is_upstream(key: &Key) -> bool {
    key.has_mark("upstream")
}

/// Whether envoyproxy/ratelimit has such a mapping too.
pub(crate) fn is_upstream_mapping(mapping: &MappingType) -> bool {
    matches!(mapping.name, "root" | "descriptor" | "limit" | "replaced")
}

/// The algorithms that a key has a meaning for; all when there is none.
pub(crate) fn algorithms_of(key: &Key) -> Vec<AlgorithmName> {
    let algorithms = |mark: &&str| match *mark {
        "timed" => TIMED.to_vec(),
        "counting" => COUNTING.to_vec(),
        word => AlgorithmName::from_word(word).into_iter().collect(),
    };
    key.marks.iter().flat_map(algorithms).collect()
}

/// Every key, with its mapping.
pub(crate) fn all_keys() -> impl Iterator<Item = (&'static MappingType, &'static Key)> {
    let mappings = RuleFileKeys::mapping().reachable().into_iter();
    mappings.flat_map(|mapping| mapping.keys.iter().map(move |key| (mapping, key)))
}

/// The mappings that have a key of this name.
pub(crate) fn homes_of(name: &str) -> impl Iterator<Item = (&'static MappingType, &'static Key)> {
    all_keys().filter(move |(_, key)| key.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_declared_twice_in_one_mapping() {
        for mapping in RuleFileKeys::mapping().reachable() {
            let mut names: Vec<&str> = mapping.names().collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), mapping.keys.len(), "{}", mapping.name);
        }
    }

    #[test]
    fn every_mark_has_a_meaning() {
        for (_, key) in all_keys() {
            for mark in key.marks {
                let known = matches!(*mark, "upstream" | "timed" | "counting");
                assert!(known || AlgorithmName::from_word(mark).is_some(), "{mark}");
            }
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
            assert!(homes_of(word).any(|(_, key)| is_upstream(key)), "{word}");
        }
        let mut upstream: Vec<&str> =
            all_keys().filter(|(_, key)| is_upstream(key)).map(|(_, key)| key.name).collect();
        upstream.sort_unstable();
        upstream.dedup();
        assert_eq!(upstream.len(), words.len());
    }
}
