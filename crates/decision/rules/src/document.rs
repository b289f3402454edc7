//! A rule file as written: typed, with places, nothing looked up yet.
//!
//! Reading reports every fault it meets and goes on, so that one look at a file
//! shows all of them. A part that cannot be read is left out; since there was an
//! error the result is never used, only checked further. What parts mean together
//! (duplicates, plans, identities) is the compiler's work.

mod descriptor;
mod duration;
mod limit;
mod metadata;
mod reader;
mod rule_file;

use ipnet::IpNet;
use tidegate_algorithms::{Limit, Period};

use crate::address::Grouping;
use crate::choices::{Charge, Consistency, Mode, OnStoreError, RefusalStatus, Unit, WhenOver};
use crate::diagnostics::Spot;

pub use duration::parse_duration;
pub(crate) use rule_file::read;

/// Something and where it is written.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) what: T,
    pub(crate) spot: Spot,
}

/// One file.
#[derive(Debug)]
pub(crate) struct RuleFile {
    pub(crate) domain: Placed<String>,
    pub(crate) charge: Option<Placed<Charge>>,
    pub(crate) store_deadline: Option<Placed<Period>>,
    pub(crate) plans: Vec<Plan>,
    pub(crate) descriptors: Vec<Descriptor>,
}

/// A named set of limits.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) name: Placed<String>,
    pub(crate) limits: Vec<LimitText>,
}

/// One descriptor and those below it.
#[derive(Debug)]
pub(crate) struct Descriptor {
    pub(crate) spot: Spot,
    pub(crate) key: String,
    pub(crate) values: Values,
    pub(crate) counting: Counting,
    /// Where `share_threshold` stands without a pattern or a range to share.
    pub(crate) misused_share: Option<Spot>,
    pub(crate) limits: Limits,
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
pub(crate) enum Values {
    Any,
    Exactly(String),
    /// With a `*` in it.
    Like(String),
    Within(Vec<IpNet>),
}

/// Which values of a descriptor share a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// All that match.
    Together,
    /// None.
    Apart,
    /// Those of one network.
    ByNetwork(Grouping),
}

/// Where a descriptor's limits come from.
#[derive(Debug)]
pub(crate) enum Limits {
    None,
    Own(Vec<LimitText>),
    Plan(Placed<String>),
    PlanNamedByValue { default: Option<Placed<String>> },
}

/// One limit as written.
#[derive(Clone, Debug)]
pub(crate) struct LimitText {
    pub(crate) spot: Spot,
    pub(crate) name: Option<String>,
    pub(crate) replaces: Vec<Placed<String>>,
    /// None when unlimited.
    pub(crate) terms: Option<Terms>,
}

/// What a limit that limits says.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) limit: Limit,
    /// Whether the file says if refused hits count.
    pub(crate) says_count_refused: bool,
    pub(crate) unit: Option<Unit>,
    pub(crate) mode: Option<Mode>,
    pub(crate) enforce_percent: Option<u8>,
    pub(crate) on_store_error: OnStoreError,
    pub(crate) consistency: Consistency,
    pub(crate) when_over: WhenOver,
    pub(crate) refusal_status: Option<RefusalStatus>,
    pub(crate) cost: u64,
}
