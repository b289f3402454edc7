//! A rule file as written: typed, with locations, nothing resolved yet.
//!
//! Reading reports every problem and continues, so that one run shows all of them. A part that cannot be read is left
//! out; the result is then only checked further, never used. The compiler resolves what depends on other parts:
//! duplicates, plans, identities.

mod descriptor;
mod limit;
mod metadata;
mod rule_file;

use ipnet::IpNet;
use tidegate_algorithms::{Charge, Consistency, Limit, Mode, OnStoreError, Period};
use tidegate_document::{GivenKey, LocatedValue, Location, NodeKind, Reader};

use crate::address::PrefixLengths;
use crate::choices::{RefusalStatus, Unit, WhenOver};

pub(crate) use descriptor::AddressRanges;
pub(crate) use limit::LimitList;
pub(crate) use metadata::Metadata;
pub(crate) use rule_file::read;

/// Whether the value of a key is a list without items.
fn is_empty_list(reader: &Reader<'_, '_>, given: &GivenKey) -> bool {
    let yaml = reader.yaml();
    matches!(yaml.node(given.node).kind, NodeKind::Sequence(items) if yaml.items(items).is_empty())
}

/// One file.
#[derive(Debug)]
pub(crate) struct RuleFile {
    pub(crate) domain: LocatedValue<String>,
    pub(crate) charge: Option<LocatedValue<Charge>>,
    pub(crate) store_deadline: Option<LocatedValue<Period>>,
    pub(crate) plans: Vec<Plan>,
    pub(crate) tables: Vec<Table>,
    pub(crate) descriptors: Vec<Descriptor>,
}

/// A named set of limits.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) name: LocatedValue<String>,
    pub(crate) limits: Vec<LimitText>,
}

/// A table as declared: where its rows are, and which entry they are about.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: LocatedValue<String>,
    pub(crate) key: LocatedValue<String>,
    pub(crate) file: Option<LocatedValue<String>>,
}

/// One descriptor and those below it.
#[derive(Debug)]
pub(crate) struct Descriptor {
    pub(crate) location: Location,
    pub(crate) key: String,
    pub(crate) values: ValuePattern,
    pub(crate) sharing: CounterSharing,
    /// The location of a `share_threshold` without a pattern or a range to share.
    pub(crate) misused_share: Option<Location>,
    pub(crate) limits: Limits,
    /// The table whose rows change the limits.
    pub(crate) overrides: Option<LocatedValue<String>>,
    pub(crate) mode: Option<Mode>,
    pub(crate) enforce_percent: Option<u8>,
    pub(crate) quota: bool,
    pub(crate) detailed_metric: bool,
    pub(crate) value_to_metric: bool,
    pub(crate) metadata: Option<serde_json::Value>,
    pub(crate) children: Vec<Descriptor>,
}

/// Which values a descriptor takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValuePattern {
    Any,
    Exactly(String),
    /// With a `*` in it.
    Like(String),
    Within(Vec<IpNet>),
}

/// Which values of a descriptor share a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterSharing {
    /// All that match.
    All,
    /// None.
    None,
    /// Those of one network.
    SameNetwork(PrefixLengths),
}

/// Where a descriptor's limits come from.
#[derive(Debug)]
pub(crate) enum Limits {
    None,
    Own(Vec<LimitText>),
    Plan(LocatedValue<String>),
    PlanNamedByValue { default: Option<LocatedValue<String>> },
}

/// One limit as written.
#[derive(Clone, Debug)]
pub(crate) struct LimitText {
    pub(crate) location: Location,
    pub(crate) name: Option<String>,
    pub(crate) replaces: Vec<LocatedValue<String>>,
    /// None when unlimited.
    pub(crate) terms: Option<Terms>,
    /// The quota as written; also of an unlimited one, where it has no effect.
    pub(crate) requests_per_unit: u64,
}

/// The terms of a limit that is not unlimited.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) limit: Limit,
    /// Whether the file has `count_refused`.
    pub(crate) says_count_refused: bool,
    pub(crate) unit: Option<Unit>,
    pub(crate) mode: Option<Mode>,
    pub(crate) enforce_percent: Option<u8>,
    /// None if the file does not say it.
    pub(crate) on_store_error: Option<OnStoreError>,
    pub(crate) consistency: Consistency,
    pub(crate) when_over: WhenOver,
    pub(crate) refusal_status: Option<RefusalStatus>,
    pub(crate) cost: u64,
}
